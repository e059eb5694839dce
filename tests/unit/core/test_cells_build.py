"""The cells that are built from a layout."""

from __future__ import annotations

from tests.unit.scenarios.small_cells import layout

from skep.core.cells.cells import Cells


def test_physical_and_virtual_trees_are_built_of_it() -> None:
    cells = Cells(layout(racks=2, nodes=2, pins={"0/n1": "fast"}, a="1 rack, 1 @fast", b="2 switch"))
    chain = cells.chains["rack"]
    assert (chain.types, chain.node_level, chain.top) == (["gpu", "switch", "node", "rack"], 3, 4)
    assert [len(level) for level in chain.cells[1:]] == [16, 8, 4, 2]
    a, b = cells.tenancies["a"], cells.tenancies["b"]
    assert [len(level) for level in a.roots["rack"][1:]] == [0, 0, 0, 1]
    assert [len(level) for level in b.roots["rack"][1:]] == [0, 2, 0, 0]
    assert a.pinned["fast"].physical is chain.cells[3][1]
    assert len(list(a.cells())) == 15 + 7
    assert (chain.unused_by["a"][4], chain.unused_by["b"][2]) == (1, 2)


def test_virtual_cells_know_the_granted_cell_around_them() -> None:
    (root,) = Cells(layout(nodes=1, a="1 node")).tenancies["a"].roots["rack"][3]
    assert {cell.root for cell in root.tree()} == {root}
    assert (root.vc, root.leaf_count, [child.level for child in root.children]) == ("a", 4, [2, 2])
