"""The indexes of a pool against what the nodes have."""

from __future__ import annotations

from skep.core.allocation import Allocation, Slice
from skep.core.cluster import bits
from skep.testing import cluster


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
