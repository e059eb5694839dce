"""Jobs whose tasks start one by one: who needs them, how they end, and that a large one costs no more per task."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.core.reports import Exited, LaunchFailed
from skep.jobs.request import Completion, Request, TaskRole
from skep.service import commands
from skep.service.turn import Command


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def singles(count: int, gpus: int = 1, **completion: int | None) -> Request:
    role = TaskRole(count=count, gpus=gpus, command="true", completion=Completion(**completion))
    return Request("single", {"w": role}, user="ann", gang=False)


def reason(world: LiveWorld, job: str) -> str:
    found = world.store.job(int(job))
    assert found is not None
    return found[0].reason


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_who_needs_it_starts_when_enough_tasks_have_succeeded(world: LiveWorld, at_once: bool, restarts: bool) -> None:
    if at_once:
        single, next_one = world.submit(singles(3, min_succeeded=1), request(needs=("single",)))
    else:
        (single,) = world.submit(singles(3, min_succeeded=1))
        (next_one,) = world.submit(request(needs=(single,)))
    world.settle()
    if restarts:
        world.writer.save_snapshot()
        world.crash()
    world.end(f"{single}/w-1")
    assert [world.state(job) for job in (single, next_one)] == ["succeeded", "running"]
    jobs = world.writer.state.jobs
    assert [str(jobs[f"{single}/w-{number}"].state) for number in range(3)] == ["stopped", "succeeded", "stopped"]
    assert world.submit(request(needs=(single,)))  # it has succeeded already


def test_who_needs_it_ends_when_it_fails_or_is_stopped(world: LiveWorld) -> None:
    first, second = world.submit(singles(2), singles(2))
    last = world.submit(request("a", needs=(first,)), request("b", needs=(second, first)))
    world.settle()
    world.end(f"{first}/w-0", 3, "SyntaxError")
    assert [world.state(job) for job in (first, *last)] == ["failed", "stopped", "stopped"]
    assert [reason(world, job) for job in last] == [f"needs {first}, which ended as failed"] * 2
    (third,) = world.submit(request(needs=(second,)))
    world.ask(commands.stop(second, "ann", ""))
    world.settle()
    assert world.state(third) == "stopped"


def test_an_end_and_a_need_in_one_turn(world: LiveWorld) -> None:
    (single,) = world.submit(singles(1))
    world.settle()
    prepare = commands.submit([request(needs=(single,))], "ann", "")
    asked: Future[list[str]] = Future()
    world.turn([Command(prepare, asked)], [Exited(f"{single}/w-0", 1, 0)])
    world.settle()
    assert world.state(asked.result(0)[0]) == "running"


def test_one_that_cannot_start_says_why(world: LiveWorld) -> None:
    (job,) = world.submit(singles(2))
    world.tell(LaunchFailed(f"{job}/w-0", 1, "no such folder"))
    world.settle()
    assert world.state(job) == "failed"
    assert "no such folder" in reason(world, job)


def test_one_that_can_never_run_any_more_says_why(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="nodes: [{name: a, gpus: 2}, {name: b, gpus: 8}]")
    role = TaskRole(count=2, gpus=8, command="true")
    (job,) = world.submit(Request("large", {"w": role}, user="ann", gang=False, hold=True))
    world.ask(commands.apply_cluster("nodes: [{name: a, gpus: 2}]", "less", "root"))
    world.ask(commands.hold(job, False, "ann"))
    assert world.state(job) == "failed"
    assert "asks for 8" in reason(world, job)


def test_the_row_is_the_sum_of_its_tasks_however_they_come_and_go(world: LiveWorld) -> None:
    (job,) = world.submit(singles(12, min_failed=None))
    world.settle()
    for number, code in enumerate((0, 3, 0, 3, 0)):
        world.end(f"{job}/w-{number}", code)
    row = world.writer.book.records[job].row
    jobs = [world.writer.state.jobs[name] for name in world.writer.book.records[job].members]
    assert row.attempts == sum(each.launches for each in jobs)
    assert row.service_gpu_s == pytest.approx(sum(each.service_gpu_s for each in jobs))
    assert row.start_s == min(each.start_s for each in jobs if each.start_s is not None)
    assert set(row.nodes) == {
        world.writer.state.cluster.nodes[number].name
        for each in jobs
        if each.held is not None
        for number in each.held.nodes()
    }
    world.crash()
    assert world.writer.book.records[job].row == row
    while world.writer.state.held_jobs:
        world.end(next(iter(world.writer.state.held_jobs.values())).id)
    assert world.state(job) == "succeeded"


def test_a_large_one_costs_no_more_per_task_than_a_small_one(tmp_path: Path) -> None:
    """Tasks start and end one by one. Ten times as many took a hundred times as long."""

    def seconds(count: int) -> float:
        folder = tmp_path / str(count)
        folder.mkdir()
        world = LiveWorld(folder, cluster="1x1")
        began_s = time.process_time()
        (job,) = world.submit(singles(count))
        for number in range(100):
            core_id = f"{job}/w-{number}"
            world.writer.turn([], [Exited(core_id, 1, 0)], world.now_s + number)
        world.store.close()
        return time.process_time() - began_s

    assert seconds(4000) < 6 * seconds(400) + 2.0
