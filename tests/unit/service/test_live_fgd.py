"""`place=fgd` in the live world: typical tasks are those of the latest jobs, also after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core.fragments import typical_tasks
from skep.core.model import gpu_shape
from skep.core.record import decode
from skep.policies.place.fgd import settled
from skep.service.recover import recompute, recover


def nodes_of(world: LiveWorld, job_id: str) -> list[int]:
    held = world.writer.state.jobs[job_id].held
    assert held is not None
    return held.nodes()


@pytest.mark.parametrize("crashes", [False, True])
def test_a_small_job_goes_where_a_large_one_would_not_fit_anyway(tmp_path: Path, crashes: bool) -> None:
    world = LiveWorld(tmp_path, cluster="2x2", policy="fifo:place=fgd")
    large, small = world.submit(request(gpus=2), request(gpus=1))
    world.settle()
    assert (nodes_of(world, large), nodes_of(world, small)) == ([0], [1])
    world.end(large)
    if crashes:
        world.writer.save_snapshot()
        world.crash()
    (next_small,) = world.submit(request(gpus=1))
    world.settle()
    assert nodes_of(world, next_small) == [1], "two GPUs are typical too, and the idle node can still have them"
    assert snapshot(recover(world.store)[0]) == snapshot(world.writer.state)
    assert recompute([decode(entry) for entry in world.store.entries()]) == []


def test_without_large_jobs_among_the_latest_the_lowest_node_is_as_good(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="2x2", policy="fifo:place=fgd")
    first, second, third = world.submit(*(request(gpus=1) for _ in range(3)))
    world.settle()
    world.end(first)
    world.end(second)
    assert nodes_of(world, third) == [1]
    (fourth,) = world.submit(request(gpus=1))
    world.settle()
    assert nodes_of(world, fourth) == [0]


def test_what_is_typical_settles() -> None:
    assert [settled(count) for count in (0, 1, 2, 19, 25, 100, 109, 110, 9_999, 10_000, 10_999, 25_700)] == [
        *(0, 1, 2, 19, 24, 100, 100, 110, 9_990, 10_000, 10_000, 25_000),
    ]


def test_typical_are_the_tasks_of_the_latest_jobs(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="2x2", policy="fifo:place=fgd")
    world.submit(*(request(gpus=gpus) for gpus in (1, 2, 1)))
    latest = world.writer.state.knowledge.requests.shapes()
    assert [shape.gpus for shape in latest] == [1, 2, 1]
    assert typical_tasks(latest, 2).tasks == typical_tasks([gpu_shape(1), gpu_shape(2), gpu_shape(1)], 2).tasks
