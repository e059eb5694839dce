"""The ledger of GPUs: what can be taken, that a refused take changes nothing, that giving back restores exactly."""

from __future__ import annotations

import pytest
from tests.support import cluster, node

from skep.core.cluster import TRIAL, WHOLE, Allocation, Cluster, Slice
from skep.core.errors import InvariantBroken


def one(piece: Slice, gpus: int = 0) -> Allocation:
    return Allocation((piece,), gpus)


@pytest.fixture
def books() -> Cluster:
    """One node with four GPUs of 16 GiB, 8 CPUs, 64 GiB; and one without anything to share out."""
    return cluster([node(4, gpu_mem_gib=16, cpu=8, memory_gib=64), node(2)])


def shown(books: Cluster) -> object:
    return [
        (each.free_mask, dict(each.holders), dict(each.terms), dict(each.shares), each.cpu_free, each.memory_free)
        for each in books.nodes
    ]


FITTING = {
    "a whole GPU": Slice(0, 0b1),
    "all whole GPUs with all that goes with them": Slice(0, 0b1111, cpu_milli=8000, memory_mib=65536),
    "with all memory of the GPU": Slice(0, 0b1, gpu_mem_mib=16384),
    "parts of two GPUs": Slice(0, 0b11, milli=500, gpu_mem_mib=1024),
    "no compute, memory only": Slice(0, 0b1, milli=0, gpu_mem_mib=1024),
    "CPUs alone": Slice(0, cpu_milli=8000),
}


@pytest.mark.parametrize("piece", FITTING.values(), ids=FITTING)
def test_what_is_given_back_is_as_it_was(books: Cluster, piece: Slice) -> None:
    before = shown(books)
    books.take(one(piece), 7)
    assert shown(books) != before
    books.give(one(piece), 7)
    assert shown(books) == before


REFUSED = {
    "too much memory of a whole GPU": (Slice(0, 0b1, gpu_mem_mib=16385), "less than 16385 MiB"),
    "too much memory of a part": (Slice(0, 0b1, milli=100, gpu_mem_mib=16385), "16385 MiB"),
    "too many CPUs": (Slice(0, 0b1, cpu_milli=8001), "over capacity"),
    "too many CPUs without GPUs": (Slice(0, cpu_milli=8001), "over capacity"),
    "too much memory of the node": (Slice(0, 0b1, memory_mib=65537), "over capacity"),
    "more than a whole GPU": (Slice(0, 0b1, milli=WHOLE + 1), ""),
    "less than nothing": (Slice(0, 0b1, milli=-1), ""),
}


@pytest.mark.parametrize(("piece", "why"), REFUSED.values(), ids=REFUSED)
def test_a_refused_take_changes_nothing(books: Cluster, piece: Slice, why: str) -> None:
    before = shown(books)
    with pytest.raises(InvariantBroken) as raised:
        books.take(Allocation((Slice(1, 0b1), Slice(0, 0b1000, milli=300), piece), 3), 7)
    assert why in str(raised.value)
    assert shown(books) == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Slice(0, 0b11), Slice(0, 0b110)),
        (Slice(0, 0b1), Slice(0, 0b1, milli=1)),
        (Slice(0, 0b1, milli=1), Slice(0, 0b1)),
        (Slice(0, 0b1, milli=600), Slice(0, 0b1, milli=401)),
        (Slice(0, 0b1, milli=100, gpu_mem_mib=10000), Slice(0, 0b1, milli=100, gpu_mem_mib=6385)),
        (Slice(0, 0b1, milli=0, gpu_mem_mib=10000), Slice(0, 0b1, gpu_mem_mib=6385)),
    ],
    ids=[
        "whole twice",
        "a part of a whole",
        "the whole of a part",
        "milli",
        "memory of parts",
        "memory beside a whole",
    ],
)
def test_two_that_do_not_fit_on_one_gpu(books: Cluster, first: Slice, second: Slice) -> None:
    books.take(one(first), 1)
    before = shown(books)
    with pytest.raises(InvariantBroken):
        books.take(one(second), 2)
    assert shown(books) == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Slice(0, 0b1, milli=600), Slice(0, 0b1, milli=400)),
        (Slice(0, 0b1, milli=1, gpu_mem_mib=10000), Slice(0, 0b1, milli=1, gpu_mem_mib=6384)),
        (Slice(0, 0b1, milli=0, gpu_mem_mib=10000), Slice(0, 0b1, gpu_mem_mib=6384)),
    ],
    ids=["milli", "memory of parts", "memory beside a whole"],
)
def test_two_that_just_fit_on_one_gpu_in_any_order(books: Cluster, first: Slice, second: Slice) -> None:
    empty = shown(books)
    books.take(one(first), 1)
    books.take(one(second), 2)
    both = shown(books)
    books.give(one(first), 1)
    books.give(one(second), 2)
    assert shown(books) == empty
    books.take(one(second), 2)
    books.take(one(first), 1)
    assert shown(books) == both


@pytest.mark.parametrize("piece", [Slice(0, 0b1), Slice(0, 0b1, milli=500)], ids=["whole", "part"])
def test_only_its_owner_gives_it_back(books: Cluster, piece: Slice) -> None:
    books.take(one(piece), 1)
    before = shown(books)
    with pytest.raises(InvariantBroken):
        books.give(one(piece), 2)
    with pytest.raises(InvariantBroken):
        books.give(one(Slice(0, 0b10, milli=piece.milli)), 1)
    assert shown(books) == before


def test_a_whole_gpu_is_free_again_only_where_no_part_is_taken(books: Cluster) -> None:
    books.take(one(Slice(0, 0b1, milli=0, gpu_mem_mib=100)), 1)
    books.take(one(Slice(0, 0b11, gpu_mem_mib=100)), 2)
    assert books.nodes[0].free_mask == 0b1100
    books.give(one(Slice(0, 0b11, gpu_mem_mib=100)), 2)
    assert books.nodes[0].free_mask == 0b1111, "a tenant without compute takes no time of the GPU"


def test_neighbours_are_the_others_on_the_same_gpus(books: Cluster) -> None:
    mine = one(Slice(0, 0b11, milli=300))
    books.take(mine, 1)
    books.take(one(Slice(0, 0b110, milli=300)), 2)
    books.take(one(Slice(0, 0b1000, milli=300)), 3)
    assert books.neighbours(mine, 1) == [2]


def test_readers_see_which_nodes_have_changed(books: Cluster) -> None:
    changes = books.changes()
    seen = changes.count
    assert changes.since(seen) == []
    books.take(one(Slice(1, 0b1)), 1)
    books.take(one(Slice(0, 0b1)), 2)
    assert changes.since(seen) == [0, 1]
    seen = changes.count
    books.give(one(Slice(1, 0b1)), 1)
    assert changes.since(seen) == [1]


def turns(mask: int, group: str = "g", node: int = 0) -> Slice:
    return Slice(node, mask, milli=0, limit=WHOLE, mode="slice", group=group)


@pytest.mark.parametrize("second", [0b1, 0b111, 0b110], ids=["fewer GPUs", "more GPUs", "some others"])
def test_members_of_a_share_group_have_the_same_gpus(books: Cluster, second: int) -> None:
    books.take(one(turns(0b11)), 0)
    before = shown(books)
    with pytest.raises(InvariantBroken, match=r"GPU . of node n0: members of share group g must have the same GPUs"):
        books.take(one(turns(second)), 2)
    assert shown(books) == before
    both = Allocation((turns(0b1), turns(0b10)), 2)
    books.take(both, 2)
    books.give(both, 2)
    books.give(one(turns(0b11)), 0)
    books.take(one(turns(second)), 2)


def test_groups_on_other_gpus_are_other_groups_whatever_their_names(books: Cluster) -> None:
    for seq, piece in enumerate((turns(0b11), turns(0b11), turns(0b100), turns(0b1, node=1))):
        books.take(one(piece), seq)
    assert books.neighbours(one(turns(0b100)), 2) == []


def test_no_whole_gpu_has_more_memory_than_its_node_says(books: Cluster) -> None:
    with pytest.raises(InvariantBroken, match="less than 16385 MiB"):
        books.take(one(Slice(0, 0b1, gpu_mem_mib=16385)), 7)
    books.take(one(Slice(0, 0b1, gpu_mem_mib=16384)), 7)


def test_only_jobs_that_take_turns_are_listed_with_their_gpus(books: Cluster) -> None:
    books.take(one(Slice(0, 0b1)), 1)
    books.take(one(Slice(0, 0b10, milli=300)), 2)
    books.take(one(turns(0b100)), TRIAL)
    books.take(Allocation((turns(0b1000), turns(0b1, node=1)), 2), 3)
    assert books.turns == {3: ((0, 0b1000), (1, 0b1))}
    books.give(one(Slice(0, 0b10, milli=300)), 2)
    assert list(books.turns) == [3]
    books.give(Allocation((turns(0b1000), turns(0b1, node=1)), 2), 3)
    assert books.turns == {}


def test_gpus_that_an_opportunistic_job_uses_are_not_free_when_the_guaranteed_one_leaves(books: Cluster) -> None:
    guaranteed = one(Slice(0, 0b110, mode="lend"))
    books.take(one(Slice(0, 0b10, milli=0, limit=WHOLE, mode="lend")), 1)
    books.take(guaranteed, 2)
    assert books.nodes[0].free_mask == 0b1001
    books.give(guaranteed, 2)
    assert books.nodes[0].free_mask == 0b1101


def test_a_gpu_is_free_when_the_last_tenant_with_compute_has_left(books: Cluster) -> None:
    suspended, first, second = (one(Slice(0, 0b1, milli=milli, gpu_mem_mib=100)) for milli in (0, 300, 400))
    for owner, each in enumerate((suspended, first, second), start=1):
        books.take(each, owner)
    books.give(first, 2)
    assert (books.nodes[0].free_mask, books.nodes[0].shares[0].mode) == (0b1110, "")
    books.give(second, 3)
    assert (books.nodes[0].free_mask, books.nodes[0].shares[0].mode) == (0b1111, None)


def test_an_exchange_books_the_second_instead_of_the_first_or_nothing(books: Cluster) -> None:
    first, second, taken = (one(Slice(0, mask), 1) for mask in (0b1, 0b10, 0b100))
    books.take(first, 7)
    books.take(taken, 8)
    before = shown(books)
    assert not books.exchange(first, taken, 7)
    assert shown(books) == before
    assert books.exchange(first, second, 7)
    assert books.nodes[0].holders == {0b10: 7, 0b100: 8}
