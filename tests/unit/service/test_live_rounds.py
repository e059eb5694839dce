"""Rounds in the live world: decisions at boundaries only, through restarts and clocks that are set."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core.record import decode
from skep.core.snapshot import dump
from skep.service import commands
from skep.service.recover import recompute, recover

POLICY = "las:round_s=60"
LAB = "nodes: [{count: 2, name: n, gpus: 4}]\nvcs: {red: 1 node, blue: 1 node}\n"


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path, policy=POLICY)


def go_to(world: LiveWorld, now_s: float) -> None:
    world.now_s = now_s - 1.0
    world.tell()
    world.settle()


def check_log(world: LiveWorld) -> None:
    assert snapshot(recover(world.store)[0]) == snapshot(world.writer.state)
    assert recompute([decode(entry) for entry in world.store.entries()]) == []


def test_jobs_start_and_make_room_at_boundaries(world: LiveWorld) -> None:
    first, second = world.submit(request(gpus=8), request(gpus=8))
    assert [world.state(job) for job in (first, second)] == ["pending", "pending"]
    assert world.writer.wake_s == 1020.0
    go_to(world, 1020.0)
    assert [world.state(job) for job in (first, second)] == ["running", "pending"]
    go_to(world, 1079.0)
    assert world.state(first) == "running"
    go_to(world, 1080.0)
    assert [world.state(job) for job in (first, second)] == ["pending", "running"], "the one with the least goes next"
    check_log(world)


def test_a_boundary_that_is_heard_late_is_one(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    go_to(world, 1033.0)
    assert world.state(job) == "running"
    assert world.writer.wake_s == 1080.0


def test_what_was_gathered_in_a_round_outlives_a_restart(world: LiveWorld) -> None:
    done, waits = world.submit(request(gpus=8), request(gpus=8))
    go_to(world, 1020.0)
    world.end(done)
    world.writer.save_snapshot()
    (new,) = world.submit(request(gpus=8))
    world.crash()
    assert world.writer.wake_s == 1080.0, "nothing was set anew"
    assert [world.state(job) for job in (waits, new)] == ["pending", "pending"]
    go_to(world, 1080.0)
    assert [world.state(job) for job in (done, waits, new)] == ["succeeded", "running", "pending"]


def test_a_clock_that_is_set_does_not_end_a_round(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    world.now_s += 1e6
    world.writer.turn([], [], world.now_s, stepped_s=1e6)
    assert world.state(job) == "pending"
    assert 0 < world.writer.wake_s - world.now_s <= 60.0
    go_to(world, world.writer.wake_s)
    assert world.state(job) == "running"
    check_log(world)


def test_rounds_come_and_go_with_the_policy(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    world.ask(commands.use_policy("las", "ann"))
    world.settle()
    assert world.state(job) == "running"
    world.ask(commands.use_policy(POLICY, "ann"))
    (other,) = world.submit(request())
    world.settle()
    assert world.state(other) == "pending"
    check_log(world)


def test_an_idle_server_is_not_woken(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    go_to(world, 1020.0)
    world.end(job)
    go_to(world, 1080.0)
    assert world.writer.wake_s == float("inf")


def test_in_virtual_clusters_too(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=LAB, policy=POLICY)
    jobs = world.submit(request(gpus=4, vc="red"), request(gpus=4, vc="blue"), request(gpus=4, vc="red"))
    world.settle()
    assert {world.state(job) for job in jobs} == {"pending"}
    go_to(world, 1020.0)
    assert [world.state(job) for job in jobs] == ["running", "running", "pending"]
    check_log(world)
    assert dump(recover(world.store)[0]) == dump(world.writer.state)
