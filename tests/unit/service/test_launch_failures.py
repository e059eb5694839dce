"""Launches that fail: what is tried again, how often, and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.core.reports import Exited, LaunchFailed
from skep.jobs.exits import SOME
from skep.jobs.request import Completion, Request, TaskRole


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def row(world: LiveWorld, job_id: str):
    found = world.store.job(int(job_id))
    assert found is not None
    return found[0]


def fail(world: LiveWorld, core_id: str, reason: str, cause: str = "") -> None:
    world.tell(LaunchFailed(core_id, world.writer.state.jobs[core_id].held_launch, reason, cause))


def wait_for_launch(world: LiveWorld, core_id: str) -> None:
    """Until its back-off is over and the engine is asked again."""
    world.now_s += 100.0
    world.tell()
    assert world.writer.state.jobs[core_id].held is not None


def test_a_shortage_is_waited_for_without_end_and_with_its_reason(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    for _ in range(3 * SOME):
        fail(world, job, "No space left on device: /data", "shortage")
        shown = row(world, job)
        assert shown.state == "pending"
        assert "No space left on device: /data" in shown.reason
        wait_for_launch(world, job)
    world.settle()
    assert world.state(job) == "running"


def test_a_killed_shim_is_no_fault_of_the_job_for_some_time(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    for _ in range(SOME):
        fail(world, job, "task task-0 was killed before it could start", "shim-killed")
        assert world.state(job) == "pending"
        wait_for_launch(world, job)
    fail(world, job, "task task-0 was killed before it could start", "shim-killed")
    assert world.state(job) == "failed"
    assert row(world, job).reason == "its shim was killed: task task-0 was killed before it could start"


def test_what_was_killed_while_the_server_was_down_is_started_again(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    for _ in range(3 * SOME):
        world.settle()
        world.tell(Exited(job, world.writer.state.jobs[job].held_launch, 137, cause="server-away"))
        assert world.state(job) == "pending"
        wait_for_launch(world, job)


def test_what_is_wrong_with_the_job_fails_it(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    fail(world, job, "the allocation has no task")
    assert (world.state(job), row(world, job).reason) == ("failed", "could not be started: the allocation has no task")


@pytest.mark.parametrize("count", [1, 3])
def test_a_job_of_single_tasks_that_cannot_start_ends_with_a_reason(world: LiveWorld, count: int) -> None:
    (job,) = world.submit(Request("job", {"w": TaskRole(count=count, gpus=1, command="true")}, user="ann", gang=False))
    world.puppet.asked.clear()
    fail(world, f"{job}/w-0", "the account is gone")
    world.settle()
    shown = row(world, job)
    assert shown.state == "failed"
    assert "could not be started: the account is gone" in shown.reason


def test_single_tasks_that_cannot_start_count_as_failed_ones(world: LiveWorld) -> None:
    role = TaskRole(count=3, gpus=1, command="true", completion=Completion(min_failed=2))
    (job,) = world.submit(Request("job", {"w": role}, user="ann", gang=False))
    world.settle()
    fail(world, f"{job}/w-0", "no")
    assert world.state(job) == "running"
    fail(world, f"{job}/w-1", "no")
    world.settle()
    assert world.state(job) == "failed"
