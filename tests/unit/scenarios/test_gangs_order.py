"""In which order equal nodes and free cells are tried: as HiveD would, but by default without a trace of questions."""

from __future__ import annotations

import random

import msgspec
import pytest
from small_cells import cells, layout, request, start
from tests.support.cells_invariants import check_order

from skep.core.cells.chain import CellList
from skep.core.cells.tree import FREE, OPPORTUNISTIC, BaseCell, set_use
from skep.scenarios.node_order import NodeOrder, Sorts
from skep.scenarios.scheduler import GangScheduler


@pytest.mark.parametrize("keeps_apart", [False, True], ids=["any use", "opportunistic work apart"])
@pytest.mark.parametrize("seed", range(20))
def test_a_view_is_what_a_stable_sort_of_all_nodes_would_be(seed: int, keeps_apart: bool) -> None:
    chance = random.Random(seed)
    nodes: list[BaseCell] = list(cells(racks=3, nodes=3).chains["rack"].cells[3])
    view = NodeOrder(nodes, keeps_apart=keeps_apart, sorts=Sorts.WHEN_ASKED)
    naive = list(nodes)
    for _ in range(30):
        for _ in range(chance.randrange(4)):
            leaf = chance.choice(list(chance.choice(nodes).leaves()))
            set_use(leaf, chance.choice((FREE, OPPORTUNISTIC, 0, 1)))
        offered = None if chance.random() < 0.7 else frozenset(chance.sample([f"n{at}" for at in range(9)], 4))
        view.sort(offered)
        naive.sort(key=view.key)
        assert list(view) == naive
        check_order(view)


def test_bad_nodes_come_last_and_are_the_last_of_their_kind_when_they_heal() -> None:
    seen = GangScheduler(layout(racks=1, nodes=3, a="3 node"), Sorts.WHEN_ASKED)
    view = seen.physical_order["rack"]
    for is_bad in (True, False):
        seen.set_node("n0", is_bad=is_bad)
        view.sort(None)
        assert [getattr(node, "node", "") for node in view] == ["n1", "n2", "n0"]


def test_questions_leave_no_trace_in_the_order() -> None:
    """Else a VC on shared cells would be placed otherwise than alone, after a question that was refused."""
    seen, quiet = cells(racks=2, a="2 rack"), cells(racks=2, a="2 rack")
    for of in (seen, quiet):
        gang = start(of, request("g", "a", 0, 4, 4))
        if of is seen:
            seen.ask(request("refused", "a", 0, *[4] * 9))
            seen.ask(msgspec.structs.replace(request("offered", "a"), only_suggested=True), ["n3"])
        of.release(gang)
        start(of, request("h", "a", 0, 1))
    views = [[str(node) for node in of.virtual_order["a"]["rack"]] for of in (seen, quiet)]
    assert views[0] == views[1]


def test_the_last_free_cell_takes_the_place_of_one_that_is_taken() -> None:
    first, second, third = list(cells(racks=3).chains["rack"].cells[4])
    listed = CellList()
    for cell in (first, second, third):
        listed.add(cell)
    listed.remove(first)
    assert list(listed) == [third, second]
    listed.remove(second)
    listed.add(first)
    assert list(listed) == [third, first]
    assert second not in listed


def test_cells_that_a_vc_owns_are_tried_in_the_order_of_the_file() -> None:
    """Two pods of a node each: the single node comes first, so that only one of the rack is used."""
    seen = cells(racks=2, a="1 node, 1 rack")
    gang = start(seen, request("g", "a", 0, 4, 4))
    assert gang.virtual is not None
    assert [pod[0].address for pod in gang.virtual if pod[0] is not None] == ["a/0/0/0", "a/1/0/0/0"]
