"""DRF against the example of its paper, and against progressive filling written out naively."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace

from skep.core.cluster import Cluster, NodeSpec
from skep.core.model import gpu_shape
from skep.traces.trace import TraceJob
from skep.verify.play import endless, play_jobs

Demand = tuple[int, int]
"""Cpus and GiB of one task."""


def machine(cpus: int, memory_gib: int) -> Cluster:
    return Cluster([NodeSpec("n0", 0, cpu_milli=cpus * 1000, memory_mib=memory_gib * 1024)], "one node")


def task(user: str, number: int, demand: Demand) -> TraceJob:
    return endless(f"{user}-{number}", gpu_shape(0, cpu=demand[0], memory_gib=demand[1]), user=user)


def granted(cluster: Cluster, jobs: list[TraceJob]) -> dict[str, int]:
    counts = {job.spec.user: 0 for job in jobs}
    for row in play_jobs("drf", cluster, jobs).rows:
        if row.start_s is not None:
            counts[row.job_id.split("-")[0]] += 1
    return counts


A_THEN_B = [("A", number) for number in range(12)] + [("B", number) for number in range(12)]


@pytest.mark.parametrize(
    "rows",
    [A_THEN_B, A_THEN_B[::-1], sorted(A_THEN_B, key=lambda row: row[1])],
    ids=["A's tasks first", "B's tasks first", "in turn"],
)
def test_nine_cpus_and_eighteen_gib_are_three_and_two_tasks(rows: list[tuple[str, int]]) -> None:
    demands = {"A": (1, 4), "B": (3, 1)}
    found = granted(machine(9, 18), [task(user, number, demands[user]) for user, number in rows])
    assert found == {"A": 3, "B": 2}
    assert found["A"] * 4 / 18 == pytest.approx(2 / 3)
    assert found["B"] * 3 / 9 == pytest.approx(2 / 3)


def filled(capacity: Demand, demands: list[Demand]) -> dict[str, int]:
    """Progressive filling: again and again one task for the user with the smallest dominant share whose task fits.

    Of equal shares the user goes whose next task came first; here all tasks of a user came before the next user's.
    """
    counts = [0] * len(demands)
    while True:
        used = [sum(count * demand[r] for count, demand in zip(counts, demands, strict=True)) for r in (0, 1)]
        fitting = [
            (round(max(counts[u] * demand[r] / capacity[r] for r in (0, 1)), 9), u)
            for u, demand in enumerate(demands)
            if all(used[r] + demand[r] <= capacity[r] for r in (0, 1))
        ]
        if not fitting:
            return {f"u{u}": count for u, count in enumerate(counts)}
        counts[min(fitting)[1]] += 1


@given(
    capacity=st.tuples(st.integers(4, 24), st.integers(4, 24)),
    demands=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4),
)
def test_it_is_progressive_filling(capacity: Demand, demands: list[Demand]) -> None:
    jobs = [task(f"u{u}", number, demand) for u, demand in enumerate(demands) for number in range(25)]
    assert granted(machine(*capacity), jobs) == filled(capacity, demands)


@given(users=st.integers(1, 5), gpus=st.integers(1, 20))
def test_on_gpus_alone_it_is_max_min(users: int, gpus: int) -> None:
    jobs = [endless(f"u{u}-{n}", gpu_shape(1), user=f"u{u}") for u in range(users) for n in range(gpus)]
    found = {job.spec.user: 0 for job in jobs}
    for row in play_jobs("drf", f"1x{gpus}", jobs).rows:
        if row.start_s is not None:
            found[row.job_id.split("-")[0]] += 1
    assert sum(found.values()) == gpus
    assert set(found.values()) <= {gpus // users, math.ceil(gpus / users)}


def test_a_job_that_was_started_before_its_better_at_the_same_instant_gives_way_at_once() -> None:
    """A has the smaller share and goes first; B's second job has the higher priority and may stop A's."""
    jobs = (
        job(1, work=100, user="B", priority=1),
        job(1, work=100, at=10, user="A"),
        job(1, work=50, at=10, user="B", priority=1),
    )
    course = World(trace(*jobs), cluster("1x2"), "drf").run()
    assert [row.finish_s for row in course.rows()] == [100, 160, 60]
