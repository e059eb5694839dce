"""Timers of the live service: what has ended is heard first, and no set clock makes them due."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from live_world import LiveWorld, request
from test_live_service import Quiet
from tests.support.snapshot import snapshot

from skep.core.events import ClockStepped
from skep.core.record import decode
from skep.core.reports import Exited, Looked
from skep.core.timers import BACK_OFF
from skep.service.clock import Clock
from skep.service.files import open_store
from skep.service.live import Live
from skep.service.recover import recompute, recover

DAY_S = 86400.0
AGAIN = "NCCL error: unhandled system error"


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def run_limited(world: LiveWorld, **fields: Any) -> str:
    (job,) = world.submit(request(time_limit_s=100.0, **fields))
    world.settle()
    return job


def test_an_exit_is_heard_before_the_limit(world: LiveWorld) -> None:
    """The server was down, stopped or busy while the job ended and its time ran out."""
    job = run_limited(world)
    world.now_s += 5000
    world.writer.turn([], [], world.now_s)
    assert world.puppet.is_asked_to_look
    assert world.state(job) == "running"
    assert world.writer.wake_s > world.now_s, "there is nothing to do until the engine has looked"
    world.writer.turn([], [Exited(job, 1, 3), Looked()], world.now_s)
    found = world.store.job(int(job))
    assert found is not None
    assert found[0].state == "failed"
    assert world.store.attempts(int(job))[0].code == 3
    assert recompute([decode(entry) for entry in world.store.entries()]) == []


def test_a_job_that_is_tried_again_is_not_stopped_by_the_limit_of_the_start_before(world: LiveWorld) -> None:
    job = run_limited(world, retries=3)
    world.now_s += 5000
    world.writer.turn([], [], world.now_s)
    world.writer.turn([], [Exited(job, 1, 1), Looked()], world.now_s)
    assert world.state(job) in ("pending", "launching")


def test_after_a_restart_too(world: LiveWorld) -> None:
    job = run_limited(world)
    world.now_s += 5000
    world.crash()
    world.writer.turn([], [], world.now_s)
    assert world.state(job) == "running"
    world.writer.turn([], [Exited(job, 1, 0), Looked()], world.now_s)
    assert world.state(job) == "succeeded"


def test_a_limit_that_is_really_over_stops_the_job(world: LiveWorld) -> None:
    job = run_limited(world)
    world.now_s += 99
    world.tell()
    world.settle()
    assert world.state(job) == "stopped"


def held_back(world: LiveWorld) -> tuple[str, float]:
    """A job that waits after a failure, and until when."""
    (job,) = world.submit(request(retries=9))
    world.settle()
    while True:  # each time it waits longer
        world.tell(Exited(job, world.writer.state.jobs[job].held_launch, 1, log_tail=AGAIN))
        until_s = world.writer.state.timers.at_s(BACK_OFF, job)
        assert until_s is not None
        if until_s > world.now_s + 20:
            return job, until_s
        world.now_s = until_s
        world.tell()
        world.settle()


def test_a_back_off_goes_on_after_a_restart(world: LiveWorld) -> None:
    job, until_s = held_back(world)
    world.crash()
    world.tell()
    assert "held: back-off" in world.store.job(int(job))[0].reason  # type: ignore[index]
    assert world.writer.wake_s == until_s
    world.now_s = until_s
    world.tell()
    world.settle()
    assert world.state(job) == "running"


def test_a_clock_that_is_set_ends_no_limit_and_no_back_off(world: LiveWorld) -> None:
    limited = run_limited(world)
    job, until_s = held_back(world)
    before = {each.id: each.service_at(world.now_s) for each in world.writer.state.jobs.values()}
    before_s = world.now_s
    world.now_s += 40 * DAY_S
    world.writer.turn([], [], world.now_s, stepped_s=40 * DAY_S)
    state = world.writer.state
    assert {each.id: pytest.approx(each.service_at(world.now_s)) for each in state.jobs.values()} == before
    assert world.writer.wake_s > before_s + 40 * DAY_S
    assert world.state(limited) == "running"
    assert "back-off" in world.store.job(int(job))[0].reason  # type: ignore[index]
    assert any(isinstance(event, ClockStepped) for entry in world.store.entries() for event in decode(entry).events)
    assert snapshot(recover(world.store)[0]) == snapshot(state)
    assert recompute([decode(entry) for entry in world.store.entries()]) == []
    world.now_s = until_s + 40 * DAY_S
    world.tell()
    world.settle()
    assert world.state(job) == "running"


class Told:
    """Live, with clocks in hand."""

    def __init__(self, folder: Path) -> None:
        self.wall_s, self.steady_s = 1e9, 100.0
        self.forgotten: list[str] = []
        self.clock = Clock(lambda: self.wall_s, lambda: self.steady_s, boot="one")
        self.live = Live(open_store(folder), lambda live: Quiet(), self.clock, cluster=("t", "1x4"))
        self.live.engine.forget = self.forgotten.append  # type: ignore[attr-defined]

    def turn(self) -> None:
        """At least one has been since this was called."""
        self.live.note("test", "now").result(60)


def test_40_days_for_a_moment_are_reported_and_delete_nothing(tmp_path: Path) -> None:
    told = Told(tmp_path)
    (job,) = told.live.submit([request()], "ann").result(60)
    told.live.stop(job, "ann").result(60)
    told.live.tell([Exited(job, 1, 143, was_stopped=True)])
    told.turn()
    told.wall_s += 40 * DAY_S
    told.turn()
    told.live._forget()
    assert "40.0 days ahead" in told.clock.problem
    told.wall_s -= 40 * DAY_S
    told.turn()
    assert told.live.brief(job)["state"] == "stopped"
    assert told.forgotten == []
    texts = [event["text"] for event in told.live.events(0, None, 100) if event["kind"] == "clock"]
    assert "40.0 days ahead" in texts[0]
    assert "agrees again" in texts[1]
    told.live.close()


def test_the_next_server_goes_on_from_where_the_clocks_stood(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.turn()
    told.live.close()
    store = open_store(tmp_path)
    kept = store.meta("clock")
    assert kept is not None
    assert '"boot":"one"' in kept
    store.close()


def test_readers_do_not_disturb_it(tmp_path: Path) -> None:
    told = Told(tmp_path)
    readers = [threading.Thread(target=told.live.usage, args=("user", None, None)) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert told.clock.steps == 0
    told.live.close()
