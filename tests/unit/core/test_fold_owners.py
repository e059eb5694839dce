"""Requests of owners: what becomes of jobs that are submitted, held, released, reordered, stopped and dropped."""

from __future__ import annotations

import msgspec
import pytest
from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.errors import InvariantBroken
from skep.core.events import (
    Exit,
    GroupFormed,
    JobAltered,
    JobHeld,
    JobReleased,
    JobsForgotten,
    JobSubmitted,
    PriorityChanged,
    StopRequested,
    TasksExited,
)
from skep.core.group import FIRST_FAILED, FIRST_SUCCEEDED, GroupSpec
from skep.core.job import JobState
from skep.core.model import GroupRef
from skep.core.timers import BACK_OFF


def test_a_submitted_job_is_news_to_the_planner() -> None:
    world = ByHand()
    trigger = world.apply(JobSubmitted(job(id="a").spec), JobSubmitted(job(id="b").spec, hold="later"))
    assert [each.id for each in trigger.submitted] == ["a"]
    assert (world.state.pending_count, world["a"].seq, world["b"].seq) == (2, 0, 1)
    with pytest.raises(InvariantBroken, match="submitted twice"):
        world.apply(JobSubmitted(job(id="a").spec))


def test_a_job_waits_for_those_it_needs() -> None:
    world = ByHand(job(id="a"), job(id="b", needs=("a",)))
    assert (world["b"].needs_left, world["b"].is_ready) == (1, False)
    world.start("a", gpus(0, 0b1))
    trigger = world.apply(TasksExited("a", Exit.FINISHED, 1.0))
    assert [each.id for each in trigger.submitted] == ["b"]
    assert world["b"].is_ready


def test_a_job_that_needs_a_failed_one_ends_at_once() -> None:
    world = ByHand(job(id="a"))
    world.apply(StopRequested("a", "no"))
    world.apply(JobSubmitted(job(id="b", needs=("a",)).spec))
    assert world["b"].state.is_final
    assert world["b"].state is not JobState.SUCCEEDED


def test_a_hold_withdraws_a_pending_job_until_it_is_released() -> None:
    world = ByHand(job(id="a"))
    trigger = world.apply(JobHeld("a", "back-off", until_s=30.0))
    assert [each.id for each in trigger.withdrawn] == ["a"]
    assert [(timer.kind, timer.at_s) for timer in world.state.timers.all()] == [(BACK_OFF, 30.0)]
    trigger = world.apply(JobReleased("a"))
    assert [each.id for each in trigger.submitted] == ["a"]
    assert (world["a"].hold, world.state.timers.all()) == ("", [])
    assert not world.apply(JobReleased("a")).submitted


def test_a_running_job_cannot_be_held() -> None:
    world = ByHand(job(id="a"))
    world.start("a", gpus(0, 0b1))
    world.apply(JobHeld("a", "no"))
    assert (world["a"].hold, world["a"].state) == ("", JobState.RUNNING)


def test_another_priority_puts_a_pending_job_in_line_again() -> None:
    world = ByHand(job(id="a"))
    trigger = world.apply(PriorityChanged("a", 50))
    assert ([each.id for each in trigger.withdrawn], [each.id for each in trigger.submitted]) == (["a"], ["a"])
    assert (world["a"].rank, world["a"].spec.priority) == (-50, 50)


def test_an_altered_job_keeps_its_place_and_planners_look_at_everything() -> None:
    world = ByHand(job(4, id="a", vc="red"), job(id="b"))
    world.state.memory.jobs["a"] = {"of red": b""}
    spec = msgspec.structs.replace(world["a"].spec, shapes=job(2).spec.shapes)
    assert world.apply(JobAltered(spec)).nodes_changed
    assert (world["a"].gpus, world["a"].gpu_count, world["a"].seq, world["a"].is_ready) == (2, 2, 0, True)
    assert "a" in world.state.memory.jobs
    world.apply(JobAltered(msgspec.structs.replace(spec, vc="blue")))
    assert (world["a"].spec.vc, dict(world.state.memory.jobs)) == ("blue", {})


def test_a_pending_job_that_is_stopped_ends_at_once() -> None:
    world = ByHand(job(id="a"))
    trigger = world.apply(StopRequested("a", "wrong data"))
    assert (world["a"].state, world["a"].reason, world.state.pending_count) == (JobState.STOPPED, "wrong data", 0)
    assert [each.id for each in trigger.withdrawn] == ["a"]


def test_only_jobs_that_ended_are_dropped() -> None:
    world = ByHand(job(id="a"), job(id="b"))
    world.apply(StopRequested("a", ""))
    world.apply(JobsForgotten(("a", "b")))
    assert list(world.state.jobs) == ["b"]


def member(name: str) -> JobSubmitted:
    return JobSubmitted(job(id=name, group=GroupRef("g")).spec)


def test_a_member_that_comes_when_its_group_is_decided_ends_at_once() -> None:
    world = ByHand()
    world.apply(GroupFormed(GroupSpec("g", ends_when=FIRST_SUCCEEDED)), member("a"), member("b"))
    world.start("a", gpus(0, 0b1))
    world.start("b", gpus(0, 0b10))
    world.apply(TasksExited("a", Exit.FINISHED, 1.0))
    assert world["b"].is_ending, "the group has not ended yet"
    trigger = world.apply(member("c"))
    assert (world["c"].state, world["c"].reason, trigger.submitted) == (JobState.STOPPED, world["b"].reason, [])


def test_a_job_that_needs_a_failed_group_ends_at_once() -> None:
    world = ByHand()
    world.apply(GroupFormed(GroupSpec("g", ends_when=FIRST_FAILED)), member("a"))
    world.start("a", gpus(0, 0b1))
    world.apply(TasksExited("a", Exit.FAILED, 1.0))
    trigger = world.apply(JobSubmitted(job(id="b", needs_groups=("g",)).spec))
    assert (world["b"].state, trigger.submitted) == (JobState.STOPPED, [])


def test_an_open_group_can_be_described_anew() -> None:
    world = ByHand()
    world.apply(member("a"), GroupFormed(GroupSpec("g", weight=3.0)))
    group = world.state.groups["g"]
    assert (group.spec.weight, list(group.members)) == (3.0, ["a"])
