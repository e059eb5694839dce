"""Which virtual GPU a physical one could be bound to where it is."""

from __future__ import annotations

from tests.unit.scenarios.small_cells import layout

from skep.core.cells.cells import Cells
from skep.core.cells.in_place import least_used, map_up
from skep.core.cells.tree import set_use

GPU, NODE = 1, 3


def test_it_is_part_of_a_granted_cell_that_is_free() -> None:
    cells = Cells(layout(nodes=2, a="1 node"))
    (root,) = roots = cells.tenancies["a"].roots["rack"][NODE]
    leaf = cells.chains["rack"].cells[GPU][5]
    found = map_up(leaf, roots, NODE, 1, "a", lambda cell, virtual: cell.node == "n1")
    assert found is not None
    assert (found.root, found.level) == (root, GPU)
    assert map_up(leaf, roots, NODE, 1, "a", lambda cell, virtual: False) is None


def test_a_bound_cell_is_that_of_its_vc_and_of_no_other() -> None:
    cells = Cells(layout(nodes=2, a="1 node", b="1 node"))
    leaf = cells.chains["rack"].cells[GPU][0]
    roots = cells.tenancies["a"].roots["rack"][NODE]
    virtual = roots[0].children[0].children[0]
    with cells.books:
        cells.books.take_gpu(leaf, virtual, 1)
    assert map_up(leaf, roots, NODE, 2, "a", lambda cell, root: False) is virtual
    assert map_up(leaf, cells.tenancies["b"].roots["rack"][NODE], NODE, 2, "b", lambda cell, root: True) is None


def test_a_free_cell_goes_before_one_of_lower_priority() -> None:
    roots = Cells(layout(nodes=3, a="3 node")).tenancies["a"].roots["rack"][NODE]
    set_use(next(iter(roots[0].leaves())), 2)
    set_use(next(iter(roots[1].leaves())), 1)
    assert least_used(roots, 5) is roots[2]
    assert least_used(roots[:2], 5) is roots[1]
    assert least_used(roots[:2], 1) is None


def test_of_equal_cells_the_first_is_replaced() -> None:
    roots = Cells(layout(nodes=2, a="2 node")).tenancies["a"].roots["rack"][NODE]
    for root in roots:
        set_use(next(iter(root.leaves())), 1)
    assert least_used(roots, 5) is roots[0]
