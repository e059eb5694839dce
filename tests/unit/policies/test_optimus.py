"""Optimus: sizes by marginal gain, against a plain loop and all divisions; what a restart costs; where jobs sit."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from tests.support.world import held_after

from skep.core.model import gpu_shape
from skep.core.plan import Plan
from skep.policies.optimus import Sized, share_out
from skep.policies.place import PLACES
from skep.traces.trace import TraceJob


def falling(drops: list[float]) -> list[float]:
    """Remaining times by size that fall by less with every GPU, as they do for most models."""
    drops = sorted(drops, reverse=True)
    return [sum(drops[number:]) + 1.0 for number in range(len(drops) + 1)]


TIMES = st.lists(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=4).map(falling), min_size=1, max_size=4)


@given(times=TIMES, gpus=st.integers(1, 8))
def test_sizes_are_those_of_a_plain_loop_and_the_best_of_all(times: list[list[float]], gpus: int) -> None:
    found = shared_out(times, gpus)
    assert found == by_a_plain_loop(times, gpus)
    if len(times) <= gpus:
        divisions = itertools.product(*(range(len(each)) for each in times))
        best = min(total(times, sizes) for sizes in divisions if sum(sizes) + len(sizes) <= gpus)
        assert total(times, found) == pytest.approx(best)


def total(times: list[list[float]], sizes: Any) -> float:
    return sum(each[size] for each, size in zip(times, sizes, strict=True))


def shared_out(times: list[list[float]], gpus: int) -> list[int]:
    """By the planner's function; it reads nothing of the state but the cluster, and of a job what it holds."""
    here = cluster(f"1x{gpus}")
    home = (here.pools[0].gpu_type,)
    pending: Any = SimpleNamespace(allocation=None)
    jobs = [
        Sized(pending, [gpu_shape(size + 1) for size in range(len(each))], each.__getitem__, (home,)) for each in times
    ]
    view: Any = SimpleNamespace(cluster=here)
    share_out(view, jobs)
    return [each.size for each in jobs]


def by_a_plain_loop(times: list[list[float]], gpus: int) -> list[int]:
    sizes = [0 if number < gpus else -1 for number in range(len(times))]
    for _ in range(gpus - len(times)):
        gains = [
            each[size] - each[size + 1] if size + 1 < len(each) else 0.0
            for each, size in zip(times, sizes, strict=True)
        ]
        most = max(range(len(gains)), key=gains.__getitem__)
        sizes[most] += gains[most] > 0
    return sizes


def elastic(gpus: int, low: int, high: int, **more: Any) -> TraceJob:
    return job(gpus, min_gpus=low, max_gpus=high, **more)


def test_a_gpu_goes_where_it_saves_most() -> None:
    jobs = trace(elastic(1, 1, 8, work=300, id="a"), elastic(1, 1, 8, work=3000, id="b"))
    world = World(jobs, cluster("1x8"), "optimus:round_s=0,restart=0")
    # Times fall as 300 / n and 3000 / n: the second GPU of a saves 150 s, the seventh of b 71 s, its sixth 100 s.
    assert held_after(world)[0.0] == {"a": 2, "b": 6}


@pytest.mark.parametrize(("restart", "expected"), [(10, 8), (60, 4)], ids=["worth it", "not worth it"])
def test_growing_must_bring_more_than_a_restart_costs(restart: int, expected: int) -> None:
    jobs = trace(elastic(4, 4, 8, work=100, id="a"), job(4, work=5, id="b"))
    world = World(jobs, cluster("1x8"), f"optimus:round_s=0,restart={restart}")
    # When b ends, a has 95 s left on 4 GPUs: four more save 47.5 s.
    assert held_after(world)[5.0] == {"a": expected}


def test_jobs_are_stopped_only_if_there_are_more_of_them_than_gpus() -> None:
    jobs = trace(elastic(1, 1, 2, work=100, id="a"), elastic(1, 1, 2, work=100, id="b", at=10, priority=5))
    world = World(jobs, cluster("1x1"), "optimus:round_s=0")
    assert held_after(world)[10.0] == {"b": 1}


@pytest.mark.parametrize(("name", "expected"), [("even", [3, 3]), ("roomiest", [4, 2])])
def test_where_a_gang_sits(name: str, expected: list[int]) -> None:
    here = cluster("3x4")
    waiting: Any = None
    found = PLACES[name]().find(here, Plan({}, here), waiting, gpu_shape(6), 0.0)
    assert found is not None
    assert [piece.gpus.bit_count() for piece in found.slices] == expected
