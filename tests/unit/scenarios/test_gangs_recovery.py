"""Taking running gangs up again: after a restart, and when the configuration changed (the table of FACTS B9)."""

from __future__ import annotations

from typing import Any

import pytest
from small_cells import cells, layout, request, start, where
from tests.support.cells_invariants import check_cells

from skep.scenarios.gangs import Gang, GangRequest
from skep.scenarios.recover import GangRecord, PodRecord, record, recover
from skep.scenarios.scheduler import GangScheduler

BEFORE: dict[str, Any] = {"racks": 2, "a": "2 node", "b": "1 rack"}


def taken_up(placements: list[tuple[GangRequest, GangRecord]], **given: Any) -> GangScheduler:
    seen = GangScheduler(layout(**given))
    for asked, placement in placements:
        recover(seen, asked, placement)
        check_cells(seen)
    return seen


def on(*pods: tuple[str, tuple[int, ...]], granted: str) -> GangRecord:
    return GangRecord("rack", tuple(PodRecord(node, gpus, granted) for node, gpus in pods))


@pytest.mark.parametrize(
    ("after", "keeps", "found"),
    [
        pytest.param(BEFORE, True, 8, id="nothing changed"),
        pytest.param({**BEFORE, "racks": 3}, True, 8, id="a rack added"),
        pytest.param({**BEFORE, "a": "2 node, 1 switch", "racks": 3}, True, 8, id="the VC grew"),
        pytest.param({**BEFORE, "a": "1 node"}, False, 8, id="the VC shrank"),
        pytest.param({"racks": 2, "b": "1 rack"}, False, 8, id="the VC is gone"),
        pytest.param({"racks": 2, "x": "2 node", "b": "1 rack"}, False, 8, id="the VC has another name"),
        pytest.param({**BEFORE, "a": "4 switch"}, False, 8, id="the VC owns cells of another type"),
        pytest.param({"racks": 1, "nodes": 1, "a": "1 node"}, True, 4, id="a node removed: the rest is accounted for"),
        pytest.param({**BEFORE, "switches": 1}, True, 4, id="nodes became smaller"),
    ],
)
def test_what_becomes_of_a_running_gang(after: dict[str, Any], keeps: bool, found: int) -> None:
    old = cells(**BEFORE)
    gang = start(old, request("g", "a", 0, 4, 4))
    assert {leaf.node for leaf, _ in gang.pairs()} == {"n0", "n1"}
    seen = taken_up([(gang.request, record(gang))], **after)
    again = seen.gangs["g"]
    assert (again.virtual is not None) == keeps
    assert again.is_downgraded == (not keeps)
    assert len(again.pairs()) == found
    if found == 8:
        assert where(again) == where(gang)


def test_a_gang_whose_node_moved_to_another_chain_is_found_there() -> None:
    seen = cells(racks=2, a="2 node")
    again = recover(seen, request("g", "a", 0, 4), on(("n3", (0, 1, 2, 3)), granted="node"))
    other = recover(seen, request("h", "a", 0, 4), GangRecord("elsewhere", (PodRecord("n0", (0, 1, 2, 3), "node"),)))
    check_cells(seen)
    assert again.virtual is not None
    assert other.virtual is not None


@pytest.mark.parametrize("is_first", [True, False], ids=["recovered first", "recovered last"])
def test_in_a_vc_that_shrank_the_higher_priority_keeps_its_guarantee(is_first: bool) -> None:
    old = cells(racks=2, a="2 node")
    high, low = start(old, request("high", "a", 5, 4)), start(old, request("low", "a", 1, 4))
    placements = [(gang.request, record(gang)) for gang in (high, low)]
    seen = taken_up(placements if is_first else placements[::-1], racks=2, a="1 node")
    assert seen.gangs["high"].virtual is not None
    assert seen.gangs["low"].is_downgraded


def test_of_two_gangs_at_one_place_only_one_is_believed() -> None:
    seen = cells(racks=1, a="2 node")
    place = on(("n0", (0, 1)), granted="node")
    recover(seen, request("g", "a", 0, 2), place)
    again = recover(seen, request("h", "a", 0, 2), place)
    check_cells(seen)
    assert again.physical == [[None, None]]


# Found by the property tests ------------------------------------------------------------------------------------


def test_a_granted_cell_that_is_no_longer_free_as_a_whole_cannot_be_had() -> None:
    """A gang in a switch, then one that had the whole node: this raised `is not free`."""
    small = (request("g", "a", 0, 2), on(("n0", (2, 3)), granted="switch"))
    large = (request("h", "a", 0, 2), on(("n0", (0, 1)), granted="node"))
    seen = taken_up([small, large], racks=2, a="1 node, 1 switch")
    assert seen.gangs["h"].is_downgraded
    seen = taken_up([large, small], racks=2, a="1 node, 1 switch")
    assert seen.gangs["g"].virtual is not None, "the VC's node is around it"


def test_a_cell_that_another_vc_uses_now_is_not_shared_with_it() -> None:
    other = (request("g", "b", 0, 1), on(("n0", (0,)), granted="switch"))
    mine = (request("h", "a", 0, 1), on(("n0", (1,)), granted="node"))
    seen = taken_up([other, mine], racks=2, a="1 node", b="1 switch")
    assert seen.gangs["g"].virtual is not None
    assert seen.gangs["h"].is_downgraded


def test_a_cell_pinned_elsewhere_is_not_bound_again() -> None:
    pinned = {"racks": 2, "pins": {"1/n2": "mine"}, "a": "1 @mine, 1 node"}
    low = (request("low", "a", 0, 4, pinned="mine"), on(("n2", (0, 1, 2, 3)), granted="node"))
    high = (request("high", "a", 5, 4, pinned="mine"), on(("n0", (0, 1, 2, 3)), granted="node"))
    seen = taken_up([low, high], **pinned)
    assert seen.gangs["low"].virtual is not None
    assert seen.gangs["high"].is_downgraded


def test_a_gang_that_would_break_what_others_own_loses_its_guarantee() -> None:
    """Two switches in two nodes leave 2 whole nodes beside b's rack, and c owns 3; level by level there is enough."""
    first = (request("g", "a", 0, 2), on(("n0", (0, 1)), granted="switch"))
    second = (request("h", "a", 0, 2), on(("n1", (0, 1)), granted="switch"))
    seen = taken_up([first, second], racks=2, nodes=4, a="2 switch", b="1 rack", c="3 node")
    assert seen.gangs["g"].virtual is not None
    assert seen.gangs["h"].is_downgraded
    start(seen, request("r", "b", 0, 4, 4, 4, 4))
    answer = seen.ask(request("n", "c", 0, 4, 4, 4))
    assert [gang.name for gang in answer.victims] == ["h"]


def test_the_record_of_a_pod_that_lost_its_first_gpu_still_says_what_was_granted() -> None:
    seen = cells(racks=1, a="1 node")
    gang = start(seen, request("g", "a", 0, 2))
    lost = Gang(gang.request, [[None, gang.physical[0][1]]], [[None, gang.virtual[0][1]]])  # type: ignore[index]
    assert record(lost).pods == (PodRecord("n0", (1,), "node"),)
