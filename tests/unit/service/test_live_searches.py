"""Searches in a live service: trials report, pause and go on; nothing of it is lost by a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_world import LiveWorld

from skep.core.actions import Stop
from skep.core.errors import Conflict
from skep.core.reports import Exited, Progressed
from skep.jobs.read import from_mapping
from skep.jobs.request import Request
from skep.service import searches

GROUP = "default/ann/tune"


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path, cluster="1x3")


def trials(count: int = 3, **search: Any) -> list[Request]:
    rule = {"metric": "loss", "rule": "asha", "first": 10, "parameters": {"lr": list(range(count))}, **search}
    job = {"name": "tune", "command": "train ${lr}", "gpus": 1, "user": "ann", "search": rule}
    return from_mapping(job, user="ann").requests


def report(world: LiveWorld, job_id: str, step: float, **values: float | str | None) -> None:
    job = world.writer.state.jobs[job_id]
    world.tell(Progressed(job_id, job.held_launch, {"step": step, "steps": 100, **values}))


def started(world: LiveWorld, count: int = 3, **search: Any) -> list[str]:
    ids = world.submit(*trials(count, **search))
    world.settle()
    return ids


def test_the_first_two_pause_and_the_third_shows_who_goes_on(world: LiveWorld) -> None:
    a, b, c = started(world)
    report(world, a, 10, loss=0.5)
    report(world, b, 11, loss=0.2)
    assert [type(action) for action in world.puppet.asked] == [Stop, Stop]
    world.settle()
    assert [world.state(each) for each in (a, b, c)] == ["pending", "pending", "running"]
    assert "paused by its search: loss 0.5 at step 10 is 1 of 1" in row(world, a).reason
    report(world, c, 12, loss=0.9)
    world.settle()
    assert [world.state(each) for each in (a, b, c)] == ["pending", "running", "pending"]
    world.end(b)
    assert [world.state(each) for each in (a, b, c)] == ["stopped", "succeeded", "stopped"]
    assert row(world, a).reason == "stopped by its search: loss 0.5 at step 10 was 2 of 3, better ones went on"
    assert {notice.kind for notice in world.store.notices(0, a, 100)} >= {"held", "stopping", "preempted"}


def row(world: LiveWorld, job_id: str) -> Any:
    found = world.store.job(int(job_id))
    assert found is not None
    return found[0]


def test_a_report_at_a_rung_is_logged_at_once_and_others_are_not(world: LiveWorld) -> None:
    a, *_ = started(world)
    report(world, a, 1, loss=3.0)
    before = world.store.log_seq
    report(world, a, 2, loss=2.0)
    report(world, a, 9, loss=1.0)
    assert world.store.log_seq == before
    report(world, a, 10)
    assert world.store.log_seq == before  # without the metric there is nothing to compare
    report(world, a, 10, loss=0.5)
    assert world.store.log_seq > before


def test_a_loss_that_is_not_a_number_stops_the_trial(world: LiveWorld) -> None:
    a, *_ = started(world)
    report(world, a, 10, loss=None, diverged="loss")
    world.settle()
    assert (world.state(a), row(world, a).reason) == ("stopped", "stopped by its search: its loss is not a number")


def test_a_crash_loses_no_result_and_no_verdict(world: LiveWorld) -> None:
    a, b, c = started(world)
    report(world, a, 10, loss=0.5)
    world.crash()
    world.settle()
    report(world, b, 10, loss=0.2)
    world.settle()
    world.writer.save_snapshot()
    world.crash()
    report(world, c, 10, loss=0.9)
    world.crash()
    world.settle()
    assert [world.state(each) for each in (a, b, c)] == ["pending", "running", "pending"]
    trials_now = world.writer.state.groups[GROUP].trials
    assert {name: trial.results for name, trial in trials_now.items()} == {a: [0.5], b: [0.2], c: [0.9]}


def test_a_paused_trial_whose_process_fails_stays_paused(world: LiveWorld) -> None:
    a, *_ = started(world)
    report(world, a, 10, loss=0.5)
    world.puppet.asked.clear()
    job = world.writer.state.jobs[a]
    world.tell(Exited(a, job.held_launch, 137, cause="node-lost"))
    assert (world.state(a), job.hold[:20]) == ("pending", "paused by its search")


def test_a_budget_and_a_deadline_end_a_search(world: LiveWorld) -> None:
    ids = started(world, gpu_hours=3 * 60 / 3600)
    world.now_s += 100.0
    world.tell()
    world.settle()
    assert [world.state(each) for each in ids] == ["stopped"] * 3
    assert row(world, ids[0]).reason == "the budget of the search is spent: 0.05 GPU-hours"
    ids = started(world, deadline_s=60)
    world.now_s += 61.0
    world.tell()
    world.settle()
    assert {row(world, each).reason for each in ids} == {"the deadline of the search came after 60 s"}


def test_a_search_is_stopped_as_a_whole_and_its_name_is_free_again(world: LiveWorld) -> None:
    started(world)
    with pytest.raises(Conflict, match="a search tune is running"):
        world.submit(*trials())
    world.ask(searches.stop(GROUP, "ann"))
    world.settle()
    assert all(world.state(str(number)) == "stopped" for number in (1, 2, 3))
    with pytest.raises(Conflict, match="has already ended"):
        world.ask(searches.stop(GROUP, "ann"))
    again = started(world)
    assert world.writer.state.groups[GROUP].trials == {}
    assert world.state(again[0]) == "running"


def test_trials_without_the_metric_run_to_their_end(world: LiveWorld) -> None:
    ids = started(world)
    for each in ids:
        report(world, each, 50, accuracy=1.0)
        world.end(each)
    assert [world.state(each) for each in ids] == ["succeeded"] * 3


def test_a_bad_trial_that_ended_before_it_could_be_paused_does_not_end_the_search(world: LiveWorld) -> None:
    a, b, c = started(world)
    report(world, b, 10, loss=0.2)
    world.settle()
    report(world, a, 10, loss=0.9)
    world.puppet.asked.clear()
    world.end(a)  # by itself
    world.end(c, code=1)
    assert [world.state(each) for each in (a, b, c)] == ["succeeded", "running", "failed"]
    world.end(b)
    assert world.writer.state.groups[GROUP].has_ended
