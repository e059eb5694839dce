"""Shared clusters: whatever happens, every VC can have what it owns, and nothing is counted wrong (DESIGN §7).

The steps and what is asserted after each of them are in `cells_worlds.py`.
"""

from __future__ import annotations

import random

import pytest
from cells_layouts import make_layout
from cells_worlds import CellsWorld, outline, snapshot
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cells_invariants import check_cells
from worlds import examples

from skep.core.errors import InvariantBroken
from skep.scenarios.gangs import GangRequest, GangState, GangUse
from skep.scenarios.recover import record, recover
from skep.scenarios.scheduler import GangScheduler

STEPS = 25
LONG = 50


def world(data: st.DataObject, *, can_fail: bool = False, can_change: bool = False) -> CellsWorld:
    return CellsWorld(lambda count: data.draw(st.integers(0, count - 1)), can_fail=can_fail, can_change=can_change)


@examples(25)
@given(st.data())
def test_vc_safety_with_all_nodes_well(data: st.DataObject) -> None:
    """A guaranteed request is refused only if it does not fit its VC; questions, starts and cancels leave no trace."""
    seen = world(data)
    seen.run(STEPS)
    seen.drain()


@examples(25)
@given(st.data())
def test_bad_nodes_take_nothing_new_and_are_shown_to_those_who_lack_cells(data: st.DataObject) -> None:
    seen = world(data, can_fail=True)
    seen.run(STEPS)
    seen.drain()


@examples(25)
@given(st.data())
def test_changes_of_the_configuration_keep_what_runs_and_what_vcs_own(data: st.DataObject) -> None:
    seen = world(data, can_change=True)
    seen.run(STEPS)
    seen.drain()


@examples(25)
@given(st.data())
def test_everything_at_once(data: st.DataObject) -> None:
    seen = world(data, can_fail=True, can_change=True)
    seen.run(STEPS)
    seen.drain()


@pytest.mark.slow
@pytest.mark.parametrize("can_change", [False, True], ids=["one configuration", "configurations change"])
@pytest.mark.parametrize("can_fail", [False, True], ids=["all nodes well", "nodes fail"])
def test_long_histories(can_fail: bool, can_change: bool) -> None:
    """Hypothesis prefers small worlds; these are larger. `SKEP_EXAMPLES=20` looks at twenty times as many."""
    for seed in range(examples(40).max_examples):
        seen = CellsWorld(random.Random(seed).randrange, can_fail=can_fail, can_change=can_change)
        seen.run(LONG)
        seen.drain()


@examples(20)
@given(st.data())
def test_placements_alone_bring_everything_back_in_any_order(data: st.DataObject) -> None:
    seen = world(data)
    seen.run(STEPS)
    seen.cancel_all()
    placements = [(gang.request, record(gang)) for gang in seen.cells.gangs.values()]
    again = GangScheduler(make_layout(seen.plan))
    for request, placement in data.draw(st.permutations(placements)):
        recover(again, request, placement)
    check_cells(again)
    assert outline(again) == outline(seen.cells)


@examples(20)
@given(st.data())
def test_cancelling_all_preemptions_gives_every_victim_its_guarantee_back(data: st.DataObject) -> None:
    seen = world(data)
    seen.run(STEPS)
    seen.cancel_all()
    check_cells(seen.cells)
    for gang in seen.cells.gangs.values():
        assert gang.state is GangState.ALLOCATED
        assert all(leaf.priority == gang.priority for leaf, _ in gang.pairs())


@pytest.mark.parametrize("spoil", ["gang", "use", "count", "binding", "left", "unused", "free", "bad"])
def test_the_checker_sees_what_is_wrong(spoil: str) -> None:
    seen = CellsWorld(lambda count: 0)
    cells = seen.cells
    request = GangRequest("g", "a", 0, {1: 1})
    placement = cells.ask(request).placement
    assert placement is not None
    gang = cells.allocate(request, placement)
    check_cells(cells)
    leaf, chain = placement.physical[0][0], cells.chains[placement.chain]
    before = snapshot(cells)
    if spoil == "gang":
        cells.on(leaf).gang = None
    elif spoil == "use":
        cells.on(leaf).use = GangUse.RESERVED
    elif spoil == "count":
        leaf.used_total += 1
    elif spoil == "binding":
        leaf.virtual = None
    elif spoil == "left":
        chain.left[1] += 1
    elif spoil == "unused":
        chain.unused_by["a"][chain.top] += 1
    elif spoil == "free":
        chain.free[1].add(leaf)
    elif spoil == "bad":
        cells.bad_nodes[leaf.node] = 1
    assert gang.name in before["gangs"]
    with pytest.raises(InvariantBroken):
        check_cells(cells)
