"""The cluster's books and its index of free gpus."""

from __future__ import annotations

import pytest
from tests.support import cluster, node, snapshot_cluster
from tests.support.invariants import check_books

from skep.core.cluster import GONE, TRIAL, Allocation, Cluster, NodeSpec, Slice, Tenant, bits, lowest_bits
from skep.core.errors import InvariantBroken


def whole(index: int, mask: int, **more: int) -> Allocation:
    return Allocation((Slice(index, mask, **more),), mask.bit_count())


def share(index: int, gpu: int, milli: int, gpu_mem_mib: int = 0) -> Allocation:
    return Allocation((Slice(index, 1 << gpu, milli=milli, gpu_mem_mib=gpu_mem_mib),), milli / 1000)


def halves(index: int, mask: int) -> Allocation:
    return Allocation((Slice(index, mask, milli=500, tasks=mask.bit_count()),), mask.bit_count() / 2)


def small() -> Cluster:
    return cluster([node(4, cpu=8, memory_gib=16, gpu_mem_gib=16), node(4), node(2, "k80"), node(0, cpu=4)])


def test_a_new_cluster_is_free() -> None:
    there = small()
    check_books(there, [])
    assert [(pool.gpu_type, pool.free, pool.total) for pool in there.pools] == [("", 8, 8), ("k80", 2, 2)]
    assert there.gpu_total == 10
    assert there.free_gpus(("k80",)) == 2
    assert there.free_gpus(("a100",)) == 0


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param([whole(0, 0b1010)], id="some gpus"),
        pytest.param([whole(0, 0b1111), whole(1, 0b1111)], id="whole nodes"),
        pytest.param([share(0, 2, 400), share(0, 2, 600), share(0, 0, 10)], id="shares of two gpus"),
        pytest.param([halves(0, 0b110), share(0, 1, 500), halves(1, 0b1111)], id="halves of several gpus at once"),
        pytest.param([share(0, 1, 500, 16384)], id="all memory of a gpu"),
        pytest.param([share(0, 1, 0, 100)], id="memory of a gpu and none of its time"),
        pytest.param([Allocation((Slice(3, cpu_milli=4000, memory_mib=5),), 0)], id="cpus of a node without gpus"),
        pytest.param([whole(0, 1, cpu_milli=8000, memory_mib=16384), whole(2, 0b11)], id="everything of two nodes"),
    ],
)
def test_giving_back_restores_exactly_what_was(taken: list[Allocation]) -> None:
    there = small()
    states = [snapshot_cluster(there)]
    for allocation in taken:
        there.take(allocation)
        states.append(snapshot_cluster(there))
    check_books(there, [(TRIAL, each) for each in taken])
    assert states[0] != states[-1]
    for number in reversed(range(len(taken))):
        there.give(taken[number])
        assert snapshot_cluster(there) == states[number]


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (whole(0, 0b11), whole(0, 0b10), "is not free"),
        (whole(0, 0b1), share(0, 0, 10), "is not free"),
        (share(0, 0, 10), whole(0, 0b1), "is not free"),
        (share(0, 0, 600), share(0, 0, 401), "1001 milli"),
        (share(0, 1, 501), halves(0, 0b11), "GPU 1 .* 1001 milli"),
        (whole(0, 0b10), halves(0, 0b11), "GPU 1 of node n0 is not free"),
        (share(0, 0, 1, 16000), share(0, 0, 1, 400), "16400 MiB"),
        (whole(0, 0b1, cpu_milli=8000), whole(0, 0b10, cpu_milli=1), "over capacity"),
        (whole(0, 0b1, memory_mib=16384), whole(0, 0b10, memory_mib=1), "over capacity"),
    ],
)
def test_what_is_not_there_cannot_be_taken(first: Allocation, second: Allocation, says: str) -> None:
    there = small()
    there.take(first)
    with pytest.raises(InvariantBroken, match=says):
        there.take(second)


def test_what_is_free_cannot_be_given_back() -> None:
    there = small()
    with pytest.raises(InvariantBroken, match="not held"):
        there.give(whole(0, 1))
    with pytest.raises(InvariantBroken, match="over capacity"):
        there.give(Allocation((Slice(0, cpu_milli=1),), 0))


def test_gpus_with_room_are_counted() -> None:
    there = small()
    there.take(halves(0, 0b11))
    there.take(share(0, 2, 700))
    there.take(whole(1, 0b1))
    assert [there.free_gpus(("",), milli) for milli in (1000, 501, 500, 301, 300)] == [4, 4, 6, 6, 7]
    there.lose(there.nodes[0])
    assert there.free_gpus(("",), 300) == 3


def test_a_node_that_is_down_is_in_no_index_and_keeps_its_books() -> None:
    there = small()
    held = [whole(0, 0b11), share(0, 2, 300)]
    for allocation in held:
        there.take(allocation)
    up = snapshot_cluster(there)
    there.lose(there.nodes[0])
    there.lose(there.nodes[0])
    check_books(there, [(TRIAL, each) for each in held])
    assert there.free_gpus(("",)) == 4
    there.give(held[0])
    there.take(held[0])
    check_books(there, [(TRIAL, each) for each in held])
    there.restore(there.nodes[0])
    there.restore(there.nodes[0])
    assert snapshot_cluster(there) == up


def test_what_is_given_back_while_the_node_is_down_is_free_when_it_is_up() -> None:
    there = small()
    blank = snapshot_cluster(there)
    there.take(whole(0, 0b11))
    there.take(share(0, 2, 300))
    there.lose(there.nodes[0])
    there.give(whole(0, 0b11))
    there.give(share(0, 2, 300))
    there.restore(there.nodes[0])
    assert snapshot_cluster(there) == blank


TREE = [
    node(8, rack="r0", inner=(("socket", 4), ("switch", 2))),
    node(8, rack="r0"),
    node(8, rack="r1"),
]


@pytest.mark.parametrize(
    ("pieces", "level"),
    [
        ([(0, 0b1)], "gpu"),
        ([(0, 0b11)], "switch"),
        ([(0, 0b110)], "socket"),
        ([(0, 0b11000)], "node"),
        ([(1, 0b11)], "node"),
        ([(0, 0b1), (1, 0b1)], "rack"),
        ([(0, 0b1), (2, 0b1)], "cluster"),
        ([(0, 0b1), (1, 0b1), (2, 0b1)], "cluster"),
        ([(0, 0b1), (0, 0b10)], "switch"),
        ([(1, 0b1), (0, 0)], "gpu"),
        ([(0, 0)], "gpu"),
    ],
)
def test_the_common_level_is_that_of_the_smallest_cell_around_all(pieces: list[tuple[int, int]], level: str) -> None:
    slices = tuple(Slice(index, mask) for index, mask in pieces)
    assert cluster(TREE).common_level(Allocation(slices, 1)) == level


@pytest.mark.parametrize(
    ("taken", "count", "picked"),
    [
        pytest.param(0, 2, 0b11, id="the first switch"),
        pytest.param(0b1, 2, 0b1100, id="a whole switch rather than halves of two"),
        pytest.param(0b1, 1, 0b10, id="the smallest cell with room, not the lowest gpu of a roomy one"),
        pytest.param(0b1, 4, 0b11110000, id="a whole socket"),
        pytest.param(0b10001, 5, 0b101110 | 0b1000000, id="the lowest where no cell has enough"),
        pytest.param(0b1, 7, 0b11111110, id="all that is free"),
    ],
)
def test_gpus_are_picked_close_together(taken: int, count: int, picked: int) -> None:
    there = cluster(TREE)
    if taken:
        there.take(whole(0, taken))
    assert there.nodes[0].pick(count) == picked


def test_bits() -> None:
    assert list(bits(0b10110)) == [1, 2, 4]
    assert lowest_bits(0b10110, 2) == 0b110


def test_sizes_are_gpus_by_owner_and_nothing_for_parts() -> None:
    """A job in a share mode counts with the GPUs that it shares."""
    there = cluster([node(8)])
    there.take(whole(0, 0b11), 1)
    there.take(share(0, 2, 400), 2)
    there.take(share(0, 2, 300), 3)
    for owner in (4, 5):
        there.take(Allocation((Slice(0, 0b11000, milli=0, limit=1000, mode="slice", group="g", tasks=2),), 2), owner)
    assert sorted(there.nodes[0].sizes()) == [0, 0, 2, 2, 2]


def test_each_shared_gpu_with_room_is_found_once() -> None:
    there = cluster([node(4), node(4)])
    for owner, (index, gpu, milli) in enumerate([(0, 0, 900), (0, 1, 870), (1, 2, 500), (1, 3, 100)]):
        there.take(share(index, gpu, milli), owner)
    (pool,) = there.pools
    assert [(found.index, mask) for found, mask in pool.shares(100, 0)] == [
        (0, 0b1),
        (0, 0b10),
        (1, 0b100),
        (1, 0b1000),
    ]
    assert [(found.index, mask) for found, mask in pool.shares(120, 0)] == [(0, 0b10), (1, 0b100), (1, 0b1000)]


def test_the_index_knows_how_much_memory_is_left_beside_each_part() -> None:
    """Among GPUs with nearly the same part left, and when the one with most memory left is gone."""
    there = cluster([node(4, gpu_mem_gib=16)])
    held = [(owner, share(0, owner, 500 + 25 * owner, 1000 * owner)) for owner in range(4)]
    for owner, part in held:
        there.take(part, owner)
    while held:
        check_books(there, held)
        owner, part = held.pop(-1 if len(held) % 2 else 0)
        there.give(part, owner)
    check_books(there, [])


@pytest.mark.parametrize(("mask", "level"), [(0b0011, "switch"), (0b1100, "switch"), (0b0110, "node"), (0b0100, "gpu")])
def test_the_smallest_cell_around_gpus_of_a_node(mask: int, level: str) -> None:
    there = cluster([node(4, inner=(("switch", 2),))])
    assert there.common_level(whole(0, mask)) == level


def test_the_holder_of_a_gpu_is_found_by_its_mask() -> None:
    there = small()
    there.take(whole(0, 0b1), 2)
    there.take(whole(0, 0b10), 1)
    assert [there.nodes[0].holder(gpu).owner for gpu in (0, 1)] == [2, 1]


def test_a_node_has_no_more_gpus_than_it_has() -> None:
    tenant = Tenant(1, 100, 100, 0)
    assert [small().nodes[0].clash(gpu, tenant) for gpu in (-1, 3, 4)] == [
        "there is no such GPU",
        "",
        "there is no such GPU",
    ]


def test_gpus_are_found_by_the_memory_they_have_left() -> None:
    there = small()
    there.take(share(0, 1, 500, 10000))
    node = there.nodes[0]
    assert [node.free_with(memory_mib) for memory_mib in (16384, 16385)] == [0b1101, 0]
    assert [node.shared_mask(500, memory_mib) for memory_mib in (6384, 6385)] == [0b10, 0]


def test_a_node_that_has_left_is_down() -> None:
    there = Cluster([GONE, node(2, name="a")])
    assert [each.is_up for each in there.nodes] == [False, True]
    assert there.gpu_total == 2


def test_cells_are_within_each_other_as_the_nodes_say() -> None:
    specs = [NodeSpec(f"n{at}", 1, within=(("row", "r"), ("rack", rack))) for at, rack in enumerate("aab")]
    there = Cluster([*specs, NodeSpec("n3", 1, within=(("row", "s"), ("rack", "a")))])
    across = [Allocation((Slice(0, 1), Slice(other, 1)), 2) for other in (1, 2, 3)]
    assert [there.common_level(each) for each in across] == ["rack", "row", "cluster"]


def test_inner_cells_divide_the_gpus_of_the_cell_around_them() -> None:
    there = cluster([node(4, inner=(("socket", 2), ("board", 1)))])
    assert [(cell.level, cell.mask) for cell in there.nodes[0].inner] == [
        ("socket", 0b0011),
        ("board", 0b0001),
        ("board", 0b0010),
        ("socket", 0b1100),
        ("board", 0b0100),
        ("board", 0b1000),
    ]
