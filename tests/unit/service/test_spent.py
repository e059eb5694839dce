"""Waited, ran and GPU time: sums over attempts, the running one included."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.jobs.request import Request, TaskRole
from skep.service.order import parse_order
from skep.service.spent import NOTHING, shown_spent, spent
from skep.service.store import JobFilter
from skep.service.values import Json


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def shown(world: LiveWorld, job: str) -> Json:
    found = world.store.job(int(job))
    assert found is not None
    had = spent(world.store, [int(job)], world.now_s).get(int(job), NOTHING)
    return shown_spent(found[0], had, world.now_s)


def test_the_time_between_attempts_is_waiting_and_both_attempts_count(world: LiveWorld) -> None:
    (job,) = world.submit(request(gpus=2, retries=3))
    submitted_s = world.now_s
    world.settle()
    first_s = world.now_s
    assert shown(world, job)["held_gpus"] == 2
    world.now_s += 99
    world.end(job, 1)
    middle_s = world.now_s
    found = shown(world, job)
    assert (found["ran_s"], found["service_gpu_s"], found["held_gpus"]) == (100, 200, None)
    world.now_s += 40
    assert shown(world, job)["waited_s"] == world.now_s - submitted_s - 100
    while world.state(job) != "running":
        world.now_s += 30
        world.turn([], [])
        world.settle()
    second_s = world.now_s
    assert second_s > middle_s + 40
    world.now_s += 50
    found = shown(world, job)
    assert (found["ran_s"], found["service_gpu_s"]) == (150, 300)
    assert found["waited_s"] == (first_s - submitted_s) + (second_s - middle_s)
    world.end(job)
    found = shown(world, job)
    world.now_s += 1000
    assert shown(world, job) | {"at_s": 0} == found | {"at_s": 0}  # what has ended stays


def test_tasks_that_run_at_once_count_once_in_time_and_each_in_gpus(world: LiveWorld) -> None:
    role = TaskRole(count=2, gpus=3, command="true")
    (job,) = world.submit(Request("single", {"w": role}, user="ann", gang=False))
    world.settle()
    world.now_s += 9
    world.end(f"{job}/w-0")
    world.now_s += 9
    found = shown(world, job)
    assert (found["ran_s"], found["service_gpu_s"], found["held_gpus"]) == (19, 3 * 10 + 3 * 19, 3)
    world.end(f"{job}/w-1")
    assert shown(world, job)["ran_s"] == 20


def test_lists_are_sorted_by_the_same_sums(world: LiveWorld) -> None:
    tasks = Request("tasks", {"w": TaskRole(count=2, gpus=1, command="true")}, user="ann", gang=False)
    retried, short, both, waiting = world.submit(
        request("retried", gpus=4, retries=9), request("short", gpus=2), tasks, request("waiting", gpus=8)
    )
    world.settle()
    world.now_s += 30
    world.end(f"{both}/w-0")
    for _ in range(3):
        world.now_s += 60
        world.end(retried, 1)
        world.now_s += 60
        world.turn([], [])
        world.settle()
    jobs = {job: shown(world, job) for job in (retried, short, both, waiting)}
    for column, key in (("ran", "ran_s"), ("waited", "waited_s")):
        order = parse_order(f"-{column}", world.now_s)
        found = [str(row.seq) for row in world.store.jobs(JobFilter(all=True), 10, None, order)]
        assert found == sorted(jobs, key=lambda job: (-jobs[job][key], -int(job)))
    assert jobs[short]["ran_s"] == jobs[both]["ran_s"] > jobs[retried]["ran_s"] > jobs[waiting]["ran_s"]
