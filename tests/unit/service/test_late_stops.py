"""A job that ends by itself while a stop is under way: what is said of it is how it ended, not why it was to stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.core.reports import Exited
from skep.jobs.request import Completion, OfGroup, Request, TaskRole
from skep.service import commands


def limit(world: LiveWorld, job: str) -> None:
    world.now_s += 60
    world.tell()


def owner(world: LiveWorld, job: str) -> None:
    world.ask(commands.stop(job, "bob", "enough"))


def group(world: LiveWorld, job: str) -> None:
    """Another member of its group fails, which ends the group."""
    world.tell(Exited("2", 1, 1))


def down(world: LiveWorld, job: str) -> None:
    """The server is asked to end with its jobs, crashes, and finds the end of the job at its next start."""
    world.ask(commands.stop(job, "skep down", "the server was stopped with its jobs"))
    world.crash()


STOPS: list[Callable[[LiveWorld, str], None]] = [limit, owner, group, down]


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    world = LiveWorld(tmp_path)
    both = {"group": "g", "of_group": OfGroup(ends_when="first-failed")}
    world.submit(request(time_limit_s=50.0, **both), request(**both))
    world.submit(request(name="next", needs=("1",)))
    world.settle()
    return world


def said(world: LiveWorld, job: str = "1") -> tuple[str, str]:
    row = world.store.job(int(job))
    assert row is not None
    return row[0].state, row[0].reason


@pytest.mark.parametrize("stop", STOPS)
def test_one_that_succeeds_has_no_reason(world: LiveWorld, stop: Callable[[LiveWorld, str], None]) -> None:
    stop(world, "1")
    assert said(world)[0] == "stopping"
    world.tell(Exited("1", 1, 0))
    assert said(world) == ("succeeded", "")
    assert world.store.attempts(1)[-1].phrase == "succeeded"
    assert world.store.notices(0, "1", 100)[-1].text == "succeeded"
    assert said(world, "3")[0] == "launching"  # it needed the first


@pytest.mark.parametrize("stop", STOPS)
def test_one_that_fails_says_how(world: LiveWorld, stop: Callable[[LiveWorld, str], None]) -> None:
    stop(world, "1")
    world.tell(Exited("1", 1, 1, log_tail="ModuleNotFoundError: x"))
    assert said(world) == ("failed", "an import failed, exit code 1")
    assert said(world, "3") == ("stopped", "needs 1, which ended as failed")


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(
    "exit",
    [Exited("1", 1, 143, was_stopped=True), Exited("1", 1, 137, cause="node-lost"), Exited("1", 1, 9, cause="oom")],
)
def test_one_that_was_stopped_says_why(world: LiveWorld, stop: Callable[[LiveWorld, str], None], exit: Exited) -> None:
    stop(world, "1")
    why = said(world)[1]
    world.tell(exit)
    assert why
    assert said(world) == (
        ("failed", "used more memory than it requested, exit code 9") if exit.cause == "oom" else ("stopped", why)
    )


@pytest.mark.parametrize("stop", STOPS)
def test_a_failure_that_would_be_retried_counts_as_the_stop(
    world: LiveWorld, stop: Callable[[LiveWorld, str], None]
) -> None:
    stop(world, "1")
    why = said(world)[1]
    world.tell(Exited("1", 1, 137, cause="shim-killed"))
    assert said(world) == ("stopped", why)
    assert world.store.attempts(1)[-1].outcome == "stopped"


def test_a_preempted_job_that_succeeds_was_not_preempted(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, "1x4", "srsf")
    world.submit(request(gpus=4, expect_s=10_000.0))
    world.settle()
    world.submit(request(gpus=4, expect_s=10.0))
    assert world.state("1") == "stopping"
    world.tell(Exited("1", 1, 0))
    assert said(world) == ("succeeded", "")
    assert [(each.outcome, each.phrase) for each in world.store.attempts(1)] == [("succeeded", "succeeded")]
    assert world.writer.state.jobs["1"].preemptions == 0


def test_a_stopped_job_of_single_tasks_does_not_tell_of_a_failure_that_was_retried(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    role = TaskRole(count=2, gpus=1, command="true", retries=3, completion=Completion(min_failed=1))
    world.submit(Request("inc", {"w": role}, gang=False))
    world.settle()
    world.end("1/w-0", 1)
    world.now_s += 100
    world.tell()
    world.settle()
    world.ask(commands.stop("1", "bob", "enough"))
    world.settle()
    assert said(world) == ("stopped", "enough")
