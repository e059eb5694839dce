"""The ledger against a naive twin that keeps a list of who has what and adds everything up anew for each question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import cluster, node, snapshot_cluster
from tests.support.invariants import Held, check_books, count_use
from worlds import examples

from skep.core.cluster import TRIAL, UNLIMITED, Allocation, Cluster, Slice, bits
from skep.core.errors import InvariantBroken
from skep.core.share import SHARED

MEMORY_MIB = 16 * 1024
OWNERS = (0, 1, 2, 3, TRIAL, -7)


def small(spare_mib: int = MEMORY_MIB) -> Cluster:
    return cluster(
        [node(2, gpu_mem_gib=16, cpu=8, memory_gib=32), node(3, gpu_mem_gib=spare_mib / 1024), node(1, "k80")]
    )


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    index = draw(st.sampled_from([0, 0, 1, 1, 2]))
    milli = draw(st.sampled_from([0, 0, 100, 300, 428, 500, 500, 1000, 1000]))
    mode = draw(st.sampled_from(["", "", *sorted(SHARED), "lane", "lane"]))
    memory_mib = draw(st.sampled_from([0, 0, 1024, 6 * 1024, MEMORY_MIB]))
    return Slice(
        index,
        draw(st.integers(0, (1 << (2, 3, 1)[index]) - 1)),
        milli=milli,
        gpu_mem_mib=memory_mib,
        cpu_milli=draw(st.sampled_from([0, 0, 1000, 4000])),
        memory_mib=draw(st.sampled_from([0, 0, 1024, 20 * 1024])),
        role=draw(st.sampled_from([0, 1])),
        limit=draw(st.sampled_from([0, milli, 1000])),
        mode=mode,
        slot=draw(st.sampled_from([0, 0, 4])),
        group=draw(st.sampled_from(["", "g", "g", "h"])),
        weight=draw(st.sampled_from([1, 2])),
        quantum_ms=draw(st.sampled_from([0, 100])),
        ephemeral_mib=draw(st.sampled_from([0, memory_mib // 2])) if mode == "lane" else 0,
    )


@st.composite
def allocations(draw: st.DrawFn) -> Allocation:
    made = Allocation(tuple(draw(st.lists(slices(), min_size=1, max_size=3))), 1)
    memory = draw(st.sampled_from([None, None, None, "resident", "swapped"]))
    return made if memory is None else made.suspended(memory)


def could_take(there: Cluster, held: list[Held], owner: int, allocation: Allocation) -> bool:
    try:
        count_use(there, [*held, (owner, allocation)])
    except InvariantBroken:
        return False
    return True


class Twin:
    """A cluster, and the list of what is held of it."""

    def __init__(self) -> None:
        self.there = small()
        self.blank = snapshot_cluster(self.there)
        self.held: list[Held] = []

    def take(self, owner: int, allocation: Allocation) -> bool:
        fits = could_take(self.there, self.held, owner, allocation)
        if fits:
            self.there.take(allocation, owner)
            self.held.append((owner, allocation))
        else:
            before = snapshot_cluster(self.there)
            with pytest.raises(InvariantBroken):
                self.there.take(allocation, owner)
            assert snapshot_cluster(self.there) == before
        return fits

    def give(self, number: int) -> Held:
        owner, allocation = self.held.pop(number % len(self.held))
        self.there.give(allocation, owner)
        return owner, allocation

    def check(self) -> None:
        check_books(self.there, self.held)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(OWNERS), allocations()),
        st.tuples(st.just("give"), st.integers(0, 20), st.none()),
        st.tuples(st.just("node"), st.sampled_from([0, 1]), st.none()),
    ),
    max_size=25,
)


def carry_out(twin: Twin, steps: list[tuple[str, int, Allocation | None]]) -> None:
    for kind, number, allocation in steps:
        if allocation is not None:
            twin.take(number, allocation)
        elif kind == "give" and twin.held:
            twin.give(number)
        elif kind == "node":
            which = twin.there.nodes[number]
            (twin.there.lose if which.is_up else twin.there.restore)(which)


@examples(150)
@given(STEPS)
def test_the_books_are_what_a_recount_gives_whatever_comes_and_goes(steps: list) -> None:
    twin = Twin()
    for step in steps:
        carry_out(twin, [step])
        twin.check()
    while twin.held:
        twin.give(len(twin.held) // 2)
    for each in twin.there.nodes:
        twin.there.restore(each)
    assert snapshot_cluster(twin.there) == twin.blank


@examples(100)
@given(STEPS, st.lists(st.one_of(allocations(), st.integers(0, 20)), max_size=12))
def test_a_trial_that_is_taken_back_leaves_no_trace(steps: list, trial: list[Allocation | int]) -> None:
    twin = Twin()
    carry_out(twin, steps)
    before, held = snapshot_cluster(twin.there), list(twin.held)
    undo: list[tuple[bool, Held]] = []
    for each in trial:
        if isinstance(each, Allocation):
            if twin.take(TRIAL, each):
                undo.append((True, (TRIAL, each)))
        elif twin.held:
            undo.append((False, twin.give(each)))
    for was_taken, (owner, allocation) in reversed(undo):
        (twin.there.give if was_taken else twin.there.take)(allocation, owner)
    assert snapshot_cluster(twin.there) == before
    check_books(twin.there, held)


@examples(150)
@given(STEPS, st.sampled_from([1, 100, 300, 500, 700]), st.sampled_from([0, 1024, 10 * 1024, MEMORY_MIB]))
def test_shared_gpus_with_room_come_fullest_first_then_by_number(steps: list, milli: int, memory_mib: int) -> None:
    twin = Twin()
    carry_out(twin, steps)
    for pool in twin.there.pools:
        naive = sorted(
            (each.milli_left(gpu), each.index, gpu)
            for each in pool.nodes
            for gpu in each.shares
            if each.is_up
            and each.shares[gpu].mode == ""
            and milli <= each.milli_left(gpu)
            and each.memory_left(gpu) >= memory_mib
        )
        found = [(each.index, gpu) for each, mask in pool.shares(milli, memory_mib) for gpu in bits(mask)]
        assert found == [(index, gpu) for _, index, gpu in naive]


@examples(100)
@given(STEPS)
def test_everybody_on_a_gpu_is_known_by_it(steps: list) -> None:
    twin = Twin()
    carry_out(twin, steps)
    there = twin.there
    for each in there.nodes:
        for gpu in range(each.gpu_count):
            on_it = [
                (owner, piece.milli, piece.gpu_mem_mib)
                for owner, allocation in twin.held
                for piece in allocation.slices
                if piece.node == each.index and piece.gpus >> gpu & 1
            ]
            tenants = each.tenants(gpu)
            assert sorted((one.owner, one.milli, one.memory_mib) for one in tenants) == sorted(on_it)
            assert each.milli_left(gpu) == 1000 - sum(milli for _, milli, _ in on_it)
            limit = each.spec.gpu_mem_mib if each.spec.gpu_mem_mib < UNLIMITED else UNLIMITED
            if not any(one.ephemeral_mib for one in tenants):
                assert each.memory_left(gpu) == limit - sum(memory for _, _, memory in on_it)
    for owner, allocation in twin.held:
        gpus = {(piece.node, gpu) for piece in allocation.slices for gpu in bits(piece.gpus)}
        naive = {
            other
            for other, theirs in twin.held
            for piece in theirs.slices
            for gpu in bits(piece.gpus)
            if other != owner and (piece.node, gpu) in gpus
        }
        assert set(there.neighbours(allocation, owner)) == naive
