"""Splitting and merging cells, ways around bad ones, and bad ones that VCs are shown."""

from __future__ import annotations

import pytest
from small_cells import cells, fail, free, heal, request, start, where
from tests.support.cells_invariants import check_cells

from skep.scenarios.gangs import WaitCause


def test_a_cell_is_split_as_far_as_needed_and_its_buddies_are_free() -> None:
    seen = cells(racks=2, a="1 switch")
    gang = start(seen, request("g", "a", 0, 2))
    assert where(gang) == ["0/n0/0/0", "0/n0/0/1"]
    assert free(seen) == {"rack": ["1"], "node": ["0/n1"], "switch": ["0/n0/1"]}


def test_given_back_it_merges_with_its_buddies_up_to_the_top() -> None:
    seen = cells(racks=2, a="2 switch")
    first, second = (start(seen, request(name, "a", 0, 2)) for name in "gh")
    seen.release(first)
    assert free(seen)["switch"] == ["0/n0/0"]
    seen.release(second)
    assert free(seen) == {"rack": ["0", "1"]}
    check_cells(seen)


def test_the_smallest_free_cell_that_fits_is_split() -> None:
    seen = cells(racks=2, a="1 node", b="1 rack", c="1 gpu")
    start(seen, request("g", "c", 0, 1))
    big = start(seen, request("h", "a", 0, 4))
    assert {leaf.node for leaf, _ in big.pairs()} == {"n1"}
    assert free(seen)["rack"] == ["1"]


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        pytest.param(["n0"], "n1", id="the other node of the same rack"),
        pytest.param(["n0", "n1"], "n2", id="a node of the next rack when all of this one are bad"),
    ],
)
def test_buddy_allocation_backs_up_around_bad_cells(bad: list[str], expected: str) -> None:
    seen = cells(racks=2, a="1 switch")
    fail(seen, *bad)
    assert start(seen, request("g", "a", 0, 2)).physical[0][0].node == expected


def test_relaxed_allocation_splits_a_larger_cell_than_needed_if_nobody_can_miss_it() -> None:
    seen = cells(racks=2, a="2 node")
    start(seen, request("g", "a", 0, 4))
    fail(seen, "n1")
    assert {leaf.node for leaf, _ in start(seen, request("h", "a", 0, 4)).pairs()} == {"n2"}


def test_relaxed_allocation_leaves_the_last_rack_to_the_vc_that_owns_it() -> None:
    seen = cells(racks=2, a="2 node", b="1 rack")
    start(seen, request("g", "a", 0, 4))
    fail(seen, "n1")
    answer = seen.ask(request("h", "a", 0, 4))
    assert answer.placement is None
    start(seen, request("r", "b", 0, 4, 4))


def test_relaxed_allocation_through_two_levels_spares_the_nodes_in_between() -> None:
    """The second rack may be split, but both its nodes are b's."""
    seen = cells(racks=2, a="2 switch", b="3 node")
    start(seen, request("g", "a", 0, 2))
    assert {leaf.node for leaf, _ in start(seen, request("m", "b", 0, 4)).pairs()} == {"n1"}
    fail(seen, "n0")
    assert seen.ask(request("h", "a", 0, 2)).placement is None
    start(seen, request("r", "b", 0, 4, 4))


def test_relaxed_allocation_looks_at_every_piece_of_what_it_splits() -> None:
    seen = cells(racks=2, nodes=3, a="3 switch")
    start(seen, request("g", "a", 0, 2))
    fail(seen, "n0", "n1", "n2", "n3")
    assert {leaf.node for leaf, _ in start(seen, request("h", "a", 0, 2)).pairs()} == {"n4"}


# Bad cells that a VC is shown -----------------------------------------------------------------------------------


def test_a_vc_is_shown_a_bad_cell_when_too_few_healthy_ones_are_left() -> None:
    seen = cells(racks=1, nodes=3, a="2 node")
    fail(seen, "n0")
    assert seen.chains["rack"].doomed["a"][3] == []
    fail(seen, "n1")
    [doomed] = seen.chains["rack"].doomed["a"][3]
    assert doomed.node in ("n0", "n1")
    assert seen.ask(request("g", "a", 0, 4, 4)).cause is WaitCause.BAD_NODE
    heal(seen, "n0")
    assert seen.chains["rack"].doomed["a"][3] == []


def test_what_heals_for_one_vc_helps_another() -> None:
    seen = cells(racks=1, nodes=3, a="1 node", b="1 node", c="1 node")
    fail(seen, "n0", "n1", "n2")
    for node in ("n2", "n1", "n0"):
        heal(seen, node)
    assert not any(map(any, seen.chains["rack"].doomed.values()))


def test_a_shown_cell_that_is_used_and_left_is_counted_once() -> None:
    """The healthy node of a rack that is shown as bad can be used; when it is left the rack is shown again."""
    seen = cells(racks=1, a="1 rack")
    fail(seen, "n0")
    gang = start(seen, request("g", "a", 0, 4))
    assert {leaf.node for leaf, _ in gang.pairs()} == {"n1"}
    assert seen.chains["rack"].doomed["a"][4] == []
    seen.release(gang)
    check_cells(seen)
    assert [cell.address for cell in seen.chains["rack"].doomed["a"][4]] == ["0"]
    heal(seen, "n0")
    assert free(seen) == {"rack": ["0"]}


def test_bad_nodes_in_a_cell_that_a_vc_begins_to_use_are_shown_to_it() -> None:
    seen = cells(racks=2, nodes=3, a="2 rack")
    fail(seen, "n1", "n2")
    start(seen, request("g", "a", 0, 4))
    roots = [root for root in seen.tenancies["a"].roots["rack"][4] if root.physical is not None]
    shown = {node.physical.node for root in roots for node in root.children if node.physical is not None}
    assert {"n1", "n2"} <= shown
    first, second = (start(seen, request(name, "a", 0, 4)) for name in "hi")
    assert {leaf.node for leaf, _ in [*first.pairs(), *second.pairs()]} <= {"n0", "n3", "n4", "n5"}


def test_running_work_stays_on_a_bad_node_and_nothing_new_comes() -> None:
    seen = cells(racks=1, a="2 node")
    gang = start(seen, request("g", "a", 0, 1))
    fail(seen, "n0")
    assert seen.gangs["g"] is gang
    assert {leaf.node for leaf, _ in start(seen, request("h", "a", 0, 2)).pairs()} == {"n1"}
    assert {leaf.node for leaf, _ in start(seen, request("o", "a", -1, 2)).pairs()} == {"n1"}
    assert seen.ask(request("p", "a", -1, 1)).cause is WaitCause.BAD_NODE


def test_a_bad_node_stays_in_sight_of_the_vc_when_its_work_leaves() -> None:
    seen = cells(racks=1, nodes=3, a="1 rack")
    gang, other = start(seen, request("g", "a", 0, 4)), start(seen, request("h", "a", 0, 4))
    fail(seen, "n0")
    seen.release(gang)
    check_cells(seen)
    assert seen.ask(request("i", "a", 0, 4, 4)).cause is WaitCause.BAD_NODE
    assert {leaf.node for leaf, _ in other.pairs()} == {"n1"}


# Pinned cells ---------------------------------------------------------------------------------------------------


def test_a_pinned_cell_is_used_by_those_who_name_it_and_by_borrowers() -> None:
    seen = cells(racks=1, pins={"0/n1": "mine"}, a="1 node, 1 @mine")
    assert {leaf.node for leaf, _ in start(seen, request("g", "a", 0, 4)).pairs()} == {"n0"}
    assert seen.ask(request("h", "a", 0, 1)).placement is None
    borrower = start(seen, request("o", "a", -1, 2))
    assert {leaf.node for leaf, _ in borrower.pairs()} == {"n1"}
    answer = seen.ask(request("p", "a", 0, 4, pinned="mine"))
    assert answer.victims == [borrower]


def test_two_pins_in_two_racks_leave_no_rack() -> None:
    seen = cells(racks=2, pins={"0/n0": "one", "1/n2/0/1": "two"}, a="1 @one, 1 @two, 2 node")
    check_cells(seen)
    assert free(seen) == {"node": ["0/n1", "1/n3"], "switch": ["1/n2/1"], "gpu": ["1/n2/0/0"]}
    assert {leaf.node for leaf, _ in start(seen, request("g", "a", 0, 4, 4)).pairs()} == {"n1", "n3"}
