"""Giving cells to VCs and taking them back: bindings, guarantees, and what VCs see of bad hardware."""

from __future__ import annotations

import pytest
from tests.unit.scenarios.small_cells import layout

from skep.core.cells.cells import Cells
from skep.core.cells.tree import OPPORTUNISTIC, VirtualCell
from skep.testing.cells_invariants import check_cell_books

GPU, NODE = 1, 3


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
