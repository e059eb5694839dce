"""Giving cells to VCs and taking them back: bindings, guarantees, and what VCs see of bad hardware."""

from __future__ import annotations

import pytest
from tests.support.cells_invariants import check_cell_books
from tests.unit.scenarios.small_cells import layout

from skep.core.cells.cells import Cells
from skep.core.cells.tree import FREE, OPPORTUNISTIC, VirtualCell

GPU, NODE, RACK = 1, 3, 4


@pytest.fixture
def cells() -> Cells:
    """A rack of two nodes of four GPUs; VCs `a` and `b` own a node each."""
    return Cells(layout(nodes=2, a="1 node", b="1 node"))


def gpu_of(cells: Cells, vc: str) -> VirtualCell:
    (root,) = cells.tenancies[vc].roots["rack"][NODE]
    return root.children[0].children[0]


def test_using_a_gpu_binds_the_granted_cell_around_it(cells: Cells) -> None:
    chain, virtual = cells.chains["rack"], gpu_of(cells, "a")
    leaf = chain.cells[GPU][0]
    with cells.books:
        assert cells.books.take_gpu(leaf, virtual, 1)
    assert (virtual.physical, virtual.root.physical) == (leaf, chain.cells[NODE][0])
    assert (chain.unused_by["a"][NODE], chain.unused_by["b"][NODE], chain.left[NODE]) == (0, 1, 1)
    with cells.books:
        cells.books.give_gpu(leaf)
    assert virtual.root.physical is None
    assert (chain.unused_by["a"][NODE], chain.left[NODE]) == (1, 2)
    check_cell_books(cells)


def test_opportunistic_work_takes_no_cell_from_the_vcs(cells: Cells) -> None:
    chain = cells.chains["rack"]
    leaf = chain.cells[GPU][0]
    with cells.books:
        assert cells.books.take_gpu(leaf, None, OPPORTUNISTIC)
    assert (chain.left[NODE], leaf.priority) == (2, OPPORTUNISTIC)
    assert cells.books.is_safe(chain)


def test_a_vc_is_shown_a_bad_cell_when_too_few_healthy_ones_are_left() -> None:
    cells = Cells(layout(nodes=2, a="2 node", b="1 switch"))
    chain = cells.chains["rack"]
    cells.set_node("n0", is_bad=True)
    assert [cell.node for cell in chain.doomed["a"][NODE]] == ["n0"]
    assert not chain.doomed["b"][NODE]
    cells.set_node("n0", is_bad=False)
    assert not chain.doomed_count


def leaves_of(cells: Cells, vc: str, level: int = NODE) -> list[VirtualCell]:
    return [leaf for root in cells.tenancies[vc].roots["rack"][level] for leaf in root.leaves()]  # type: ignore[misc]


def wide(**vcs: str) -> Cells:
    """Nodes of one switch with four GPUs."""
    return Cells(layout(nodes=2, switches=1, gpus=4, **vcs))


def test_gpus_side_by_side_are_taken_and_given_at_once() -> None:
    cells = wide(a="1 node")
    chain, virtuals = cells.chains["rack"], leaves_of(cells, "a")
    leaves = chain.cells[GPU]
    assert cells.books.take_run(leaves[:2], virtuals[:2], 0)
    assert cells.books.take_run(leaves[2:4], virtuals[2:], 0), "the granted cell is theirs already"
    cells.books.give_run(leaves[:3], virtuals[:3])
    assert [leaf.virtual for leaf in leaves[:4]] == [None, None, None, virtuals[3]]
    assert (chain.cells[NODE][0].used, virtuals[0].root.used) == ({0: 1}, {0: 1})
    check_cell_books(cells)
    cells.books.give_run(leaves[3:4], virtuals[3:])
    assert (virtuals[0].root.physical, chain.unused_by["a"][NODE], chain.left[NODE]) == (None, 1, 2)
    check_cell_books(cells)


def test_a_bad_gpu_that_is_given_stays_bound_and_the_healthy_one_beside_it_does_not() -> None:
    cells = wide(a="1 node")
    virtuals, leaves = leaves_of(cells, "a"), cells.chains["rack"].cells[GPU]
    cells.books.take_run(leaves[:3], virtuals[:3], 1)
    cells.books.set_health(leaves[0], is_bad=True)
    cells.books.give_run(leaves[:2], virtuals[:2])
    assert [leaf.virtual for leaf in leaves[:3]] == [virtuals[0], None, virtuals[2]]
    assert [leaf.priority for leaf in leaves[:3]] == [FREE, FREE, 1]


def test_what_is_bad_in_a_cell_is_shown_at_the_end_of_the_change_that_uses_it() -> None:
    cells = Cells(layout(racks=2, nodes=2, a="1 rack"))
    chain = cells.chains["rack"]
    cells.set_node("n1", is_bad=True)
    with cells.books:
        cells.books.take_gpu(chain.cells[GPU][0], leaves_of(cells, "a", RACK)[0], 0)
        assert chain.cells[NODE][1].virtual is None
    assert chain.cells[NODE][1].virtual is not None
    check_cell_books(cells)


@pytest.mark.parametrize(("single", "is_safe"), [("", True), ("1 gpu", False)])
def test_grants_are_safe_down_to_single_gpus(single: str, is_safe: bool) -> None:
    """The switches of the only node are granted: nothing is left for a single GPU."""
    cells = Cells(layout(nodes=1, a="2 switch", b=single))
    assert cells.books.is_safe(cells.chains["rack"]) is is_safe


def test_a_vc_of_single_gpus_is_shown_the_bad_one() -> None:
    cells = Cells(layout(nodes=1, a="4 gpu"))
    chain = cells.chains["rack"]
    cells.books.set_health(chain.cells[GPU][2], is_bad=True)
    cells.books.settle_doomed(chain)
    assert chain.doomed["a"][GPU] == [chain.cells[GPU][2]]


def test_a_vc_with_more_grants_than_there_are_cells_is_shown_all_bad_ones() -> None:
    cells = Cells(layout(nodes=2, a="3 node"))
    cells.set_node("n0", is_bad=True)
    assert [cell.node for cell in cells.chains["rack"].doomed["a"][NODE]] == ["n0"]


def test_watched_cells_are_noted_when_their_health_may_have_changed_and_not_otherwise() -> None:
    cells = Cells(layout(nodes=3, a="2 node"))
    chain, roots = cells.chains["rack"], cells.tenancies["a"].roots["rack"][NODE]
    noted: dict[int, VirtualCell] = {}
    for root in roots:
        root.watched_in = noted

    def seen() -> list[VirtualCell]:
        found = list(noted.values())
        noted.clear()
        return found

    virtual = next(iter(roots[0].leaves()))
    cells.books.take_gpu(chain.cells[GPU][0], virtual, 0)  # type: ignore[arg-type]
    assert seen() == [], "bound to a healthy cell"
    cells.set_node("n0", is_bad=True)
    assert seen() == [roots[0]], "its cell is bad now"
    cells.set_node("n1", is_bad=True)
    assert seen() == [], "n2 is left for the other"
    cells.set_node("n2", is_bad=True)
    assert seen() == [roots[1]], "one of the bad cells is shown to the VC"
    assert [cell.node for cell in chain.doomed["a"][NODE]] == ["n1"]
    cells.set_node("n2", is_bad=False)
    assert seen() == [roots[1]], "it is bound no more"
    cells.set_node("n2", is_bad=True)
    noted.clear()
    shown = chain.doomed["a"][NODE][0]
    leaf, virtual = next(iter(shown.leaves())), next(iter(roots[1].leaves()))
    cells.books.take_gpu(leaf, virtual, 0)  # type: ignore[arg-type]
    assert seen() == [roots[1]], "the bad cell is used after all"
    cells.books.give_gpu(leaf)  # type: ignore[arg-type]
    cells.set_node("n2", is_bad=False)
    noted.clear()
    cells.set_node("n0", is_bad=False)
    assert seen() == [roots[0]], "its cell is healthy again"
    cells.books.give_gpu(chain.cells[GPU][0])
    assert seen() == [], "unbound from a healthy cell"
