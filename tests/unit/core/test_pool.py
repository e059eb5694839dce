"""The indexes of a pool against what the nodes have."""

from __future__ import annotations

from tests.support import cluster, node

from skep.core.allocation import Allocation, Slice
from skep.core.cluster import bits


def test_nodes_are_listed_by_their_free_gpus() -> None:
    made = cluster("3x4")
    (pool,) = made.pools
    made.take(Allocation((Slice(0, 0b0111), Slice(2, 0b1111)), 7), 1)
    assert {count: list(bits(pool.by_free[count])) for count in (0, 1, 4)} == {0: [2], 1: [0], 4: [1]}
    assert list(bits(pool.having(2))) == [1]
    assert list(bits(pool.idle[4])) == [1]
    assert pool.free == 5


def test_a_node_that_is_down_is_in_no_index() -> None:
    made = cluster("2x4")
    (pool,) = made.pools
    made.lose(made.nodes[1])
    assert list(bits(pool.having(0))) == [0]
    assert pool.free == 4
    made.restore(made.nodes[1])
    assert pool.free == 8


def test_shared_gpus_come_fullest_first_and_only_with_enough_left() -> None:
    made = cluster("2x2")
    (pool,) = made.pools
    made.take(Allocation((Slice(0, 0b01, milli=700),), 0.7), 1)
    made.take(Allocation((Slice(1, 0b10, milli=400),), 0.4), 2)
    fitting = [(node.index, mask) for node, mask in pool.shares(300, 0)]
    assert fitting == [(0, 0b01), (1, 0b10)]
    assert [(node.index, mask) for node, mask in pool.shares(301, 0)] == [(1, 0b10)]
    assert list(pool.shares(601, 0)) == []


def test_nodes_are_known_by_the_cell_around_them() -> None:
    (pool,) = cluster([node(2, rack="a"), node(2, rack="b"), node(2, rack="a")]).pools
    assert {cell.name: list(bits(nodes)) for cell, nodes in pool.racks.items() if cell} == {"a": [0, 2], "b": [1]}


def test_nodes_are_counted_after_every_booking() -> None:
    made = cluster("1x4")
    (pool,) = made.pools
    made.take(Allocation((Slice(0, 0b1),), 1), 1)
    made.take(Allocation((Slice(0, 0b10),), 1), 2)
    assert (pool.free, pool.by_free) == (2, [0, 0, 1, 0, 0])
    made.give(Allocation((Slice(0, 0b1),), 1), 1)
    made.give(Allocation((Slice(0, 0b10),), 1), 2)
    assert (pool.free, pool.by_free) == (4, [0, 0, 0, 0, 1])
    made.take(Allocation((Slice(0, 0b11, milli=400),), 0.8), 3)
    assert (pool.free, pool.by_free) == (2, [0, 0, 1, 0, 0])


def test_what_is_left_of_shared_gpus_is_counted_up_to_the_last_booking() -> None:
    made = cluster("1x2")
    (pool,) = made.pools
    made.take(Allocation((Slice(0, 0b01, milli=700),), 0.7), 1)
    assert pool.shared_milli == 300
    made.take(Allocation((Slice(0, 0b10, milli=400),), 0.4), 2)
    assert (pool.shared_milli, pool.stale) == (900, [])


def test_of_several_gpus_the_one_with_the_most_memory_left_counts() -> None:
    made = cluster([node(4, gpu_mem_gib=16)])
    (pool,) = made.pools
    taken = [Allocation((Slice(0, 1 << gpu, milli=500, gpu_mem_mib=mib),), 0.5) for gpu, mib in enumerate((1, 9, 6000))]
    for owner, allocation in enumerate(taken):
        made.take(allocation, owner)
    assert [mask for _, mask in pool.shares(500, 16000)] == [0b11]
    made.give(taken[0], 0)
    assert [mask for _, mask in pool.shares(500, 16000)] == [0b10]
