"""Parts of GPUs: which ones a job gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support import cluster, job, node, role

from skep.core.cluster import Allocation, Cluster, Slice
from skep.core.job import Job
from skep.core.model import Role
from skep.core.plan import Plan
from skep.core.view import ClusterView, JobView, NodeView, PoolView
from skep.policies.place import PLACES
from skep.policies.place.simple import Consolidate


def found(there: Cluster, *roles: Role, place: str = "consolidate") -> list[tuple[int, int, int]] | None:
    """(node, mask, tasks) of each slice."""
    asking = Job(job(roles=roles, id="x").spec, 0, 0.0)
    placed = PLACES[place]().find(there, Plan({}, there), asking, asking.spec.shapes[0], 0.0)
    return None if placed is None else [(piece.node, piece.gpus, piece.tasks) for piece in placed.slices]


def half(gpus: int = 1, count: int = 1, **more: float) -> Role:
    return role(count, gpus, gpu_milli=500, **more)


def apart(count: int) -> Role:
    return role(count, 1, gpu_milli=500, is_apart=True)


def taken(there: Cluster, index: int, mask: int, milli: int = 500) -> Cluster:
    there.take(Allocation((Slice(index, mask, milli=milli),), 0))
    return there


def test_a_task_gets_a_part_of_each_of_its_gpus() -> None:
    assert found(cluster("1x4"), half(2)) == [(0, 0b11, 1)]


@pytest.mark.parametrize("place", sorted(set(PLACES) - {"random"}))
def test_the_gpus_of_a_task_are_on_one_node(place: str) -> None:
    assert found(cluster("2x1"), half(2), place=place) is None


def test_shared_gpus_with_room_go_before_idle_ones() -> None:
    assert found(taken(cluster("1x4"), 0, 0b1010), half(2)) == [(0, 0b1010, 1)]
    assert found(taken(cluster("1x4"), 0, 0b1000), half(2)) == [(0, 0b1001, 1)]
    assert found(taken(taken(cluster("2x2"), 0, 0b01), 1, 0b11), half(2)) == [(1, 0b11, 1)]


def test_a_gpu_without_room_is_passed_over() -> None:
    assert found(taken(cluster("1x3"), 0, 0b1, milli=501), half(2)) == [(0, 0b110, 1)]


def test_the_memory_of_each_gpu_must_suffice() -> None:
    there = cluster([node(2, gpu_mem_gib=16)])
    there.take(Allocation((Slice(0, 0b1, milli=100, gpu_mem_mib=10 * 1024),), 0))
    assert found(there, half(2, gpu_mem_gib=7.0)) is None
    assert found(there, half(2, gpu_mem_gib=6.0)) == [(0, 0b11, 1)]


def test_tasks_of_a_role_may_share_a_gpu_unless_they_stay_apart() -> None:
    assert found(cluster("1x2"), half(count=2)) == [(0, 0b1, 1), (0, 0b1, 1)]
    assert found(cluster("1x2"), apart(2)) == [(0, 0b11, 2)]
    assert found(cluster("1x2"), apart(2), place="any") == [(0, 0b1, 1), (0, 0b10, 1)]
    assert found(cluster("1x1"), apart(2)) is None


def test_tasks_apart_sit_on_one_node_where_the_placement_keeps_together() -> None:
    there = taken(cluster("2x2"), 0, 0b1, milli=1000)
    assert found(there, apart(2)) == [(1, 0b11, 2)]
    assert found(there, apart(2), place="any") == [(0, 0b10, 1), (1, 0b1, 1)]


def test_more_tasks_apart_than_a_node_has_gpus_are_spread() -> None:
    there = cluster("2x2")
    assert found(there, apart(3)) == [(0, 0b1, 1), (0, 0b10, 1), (1, 0b1, 1)]
    assert found(there, apart(5)) is None


def beside_a_suspended_job() -> Cluster:
    """A node of two free GPUs; the memory of the first is in use."""
    there = cluster([node(2, gpu_mem_gib=16, cpu=8)])
    there.take(Allocation((Slice(0, 0b1, milli=0, gpu_mem_mib=10 * 1024),), 0))
    return there


@pytest.mark.parametrize("place", sorted(PLACES))
def test_a_free_gpu_whose_memory_is_in_use_is_passed_over(place: str) -> None:
    for milli in (500, 1000):
        roomy, large = (role(1, 1, gpu_milli=milli, gpu_mem_gib=gib) for gib in (6.0, 7.0))
        both = role(1, 2, gpu_milli=milli, gpu_mem_gib=7.0)
        assert found(beside_a_suspended_job(), roomy, place=place) == [(0, 0b1, 1)]
        assert found(beside_a_suspended_job(), large, place=place) == [(0, 0b10, 1)]
        assert found(beside_a_suspended_job(), both, place=place) is None


class Watched(Consolidate):
    """Counts the nodes that are looked at one by one."""

    def __init__(self) -> None:
        self.looked_at = 0

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        for each in super().prefer(cluster, pool, job, among):
            self.looked_at += 1
            yield each


@pytest.mark.parametrize(
    "asked",
    [half(), half(2), role(1, 2, cpu=1.0), role(3, 1, cpu=1.0)],
    ids=["half a GPU", "halves of two", "two GPUs", "three tasks"],
)
def test_where_nothing_can_fit_no_node_is_looked_at(asked: Role) -> None:
    there = cluster([node(2, cpu=8) for _ in range(20)])
    for index in range(1, 20):
        taken(there, index, 0b11, milli=1000)
    taken(there, 0, 0b11, milli=700)
    asking, watched = Job(job(roles=(asked,), id="x").spec, 0, 0.0), Watched()
    assert watched.find(there, Plan({}, there), asking, asking.spec.shapes[0], 0.0) is None
    assert not watched.looked_at
