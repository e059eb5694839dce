"""What engines learn of exits: that they are durable; and which jobs they are asked about."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.core.reports import Exited, LaunchFailed, Started


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def test_an_exit_is_settled_when_it_is_durable_and_again_when_it_is_reported_again(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    world.tell(Started(job, 1))
    assert world.puppet.settled == []
    world.tell(Exited(job, 1, 0))
    assert world.puppet.settled == [(job, 1)]
    world.tell(Exited(job, 1, 0))
    assert world.puppet.settled == [(job, 1)] * 2


def test_a_launch_that_failed_is_settled(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    world.tell(LaunchFailed(job, 1, "no such image", "image"))
    assert world.puppet.settled == [(job, 1)]


def test_an_exit_that_was_not_written_is_not_settled(world: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = world.submit(request())
    world.tell(Started(job, 1))

    def full(writes: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(world.store, "commit", full)
    with pytest.raises(sqlite3.OperationalError):
        world.tell(Exited(job, 1, 0))
    assert world.puppet.settled == []


def test_the_engine_is_asked_about_the_jobs_whose_timers_are_due(world: LiveWorld) -> None:
    limited, other = world.submit(request(time_limit_s=60.0), request())
    world.settle()
    world.now_s += 100.0
    world.tell()
    assert world.puppet.looked_at == [{limited}]
    assert world.state(other) == "running"


def test_a_wake_up_of_the_policy_asks_about_no_job(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, policy="las:round_s=10")
    world.submit(request())
    world.settle()
    world.now_s += 100.0
    world.tell()
    assert set().union(*world.puppet.looked_at) == set()
    assert world.puppet.looked_at
