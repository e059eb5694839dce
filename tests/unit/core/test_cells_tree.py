"""Cells count the use below them at each priority."""

from __future__ import annotations

from tests.unit.scenarios.small_cells import layout

from skep.core.cells.cells import Cells
from skep.core.cells.tree import FREE, OPPORTUNISTIC, BaseCell, set_use, set_uses

GPU, SWITCH, NODE = 1, 2, 3


class Watched:
    def __init__(self) -> None:
        self.touched: list[BaseCell] = []

    def touch(self, cell: BaseCell) -> None:
        self.touched.append(cell)


def test_the_cells_above_follow_a_gpu() -> None:
    chain = Cells(layout(nodes=1)).chains["rack"]
    leaves, node = chain.cells[GPU], chain.cells[NODE][0]
    set_use(leaves[0], 5)
    set_uses(leaves[2:4], OPPORTUNISTIC)
    assert (node.priority, node.used, node.used_total) == (5, {5: 1, OPPORTUNISTIC: 2}, 3)
    set_use(leaves[0], FREE)
    assert (node.priority, node.used, node.used_total) == (OPPORTUNISTIC, {OPPORTUNISTIC: 2}, 2)
    set_uses(leaves[2:4], FREE)
    assert (node.priority, node.used) == (FREE, {})


def test_lower_priorities_count_as_free_for_a_guaranteed_request() -> None:
    chain = Cells(layout(nodes=1)).chains["rack"]
    leaves, node = chain.cells[GPU], chain.cells[NODE][0]
    set_use(leaves[0], 5)
    set_use(leaves[1], OPPORTUNISTIC)
    assert (node.free_at(5), node.free_at(6), node.free_at(OPPORTUNISTIC)) == (3, 4, 2)


def test_gpus_of_different_use_are_set_one_by_one() -> None:
    chain = Cells(layout(nodes=1)).chains["rack"]
    leaves, switch = chain.cells[GPU], chain.cells[SWITCH][0]
    set_use(leaves[0], 1)
    set_uses(leaves[:2], 3)
    assert (switch.used, switch.priority) == ({3: 2}, 3)


def test_a_watcher_is_called_for_its_cell_only() -> None:
    chain = Cells(layout(nodes=2)).chains["rack"]
    watcher, node = Watched(), chain.cells[NODE][0]
    node.watcher = chain.cells[GPU][1].watcher = watcher
    set_use(chain.cells[GPU][0], 1)
    set_use(chain.cells[GPU][-1], 1)
    assert watcher.touched == [node]
    set_use(chain.cells[GPU][1], 1)
    assert watcher.touched == [node, chain.cells[GPU][1], node]


def test_a_cell_has_the_highest_priority_below_it() -> None:
    chain = Cells(layout(nodes=1)).chains["rack"]
    leaves, node = chain.cells[GPU], chain.cells[NODE][0]
    for leaf, priority in zip(leaves, (2, 7, 4, 7), strict=True):
        set_use(leaf, priority)
    seen = [node.priority]
    for at in (1, 3):
        set_use(leaves[at], FREE)
        seen.append(node.priority)
    assert seen == [7, 7, 4]


def test_the_cells_above_gpus_of_one_use_are_updated_once() -> None:
    chain = Cells(layout(nodes=1)).chains["rack"]
    switch, watcher = chain.cells[SWITCH][0], Watched()
    switch.watcher = watcher
    set_uses(chain.cells[GPU][:2], 1)
    assert watcher.touched == [switch]


def test_lent_gpus_come_last_and_in_the_order_of_the_layout() -> None:
    leaves = Cells(layout(nodes=1)).chains["rack"].cells[GPU]
    for at in (0, 2, 1):
        set_use(leaves[at], OPPORTUNISTIC)
    assert [leaf.rank for leaf in sorted(leaves, key=lambda leaf: leaf.turn)] == [3, 0, 1, 2]


def test_cells_that_lend_as_much_come_in_the_order_of_the_layout() -> None:
    chain = Cells(layout(nodes=2)).chains["rack"]
    for at in (4, 2, 0):
        set_use(chain.cells[GPU][at], OPPORTUNISTIC)
    assert [cell.rank for cell in sorted(chain.cells[SWITCH], key=lambda cell: cell.turn)] == [3, 0, 1, 2]


def test_virtual_cells_can_be_used_at_any_priority() -> None:
    (root,) = Cells(layout(nodes=1, a="1 node")).tenancies["a"].roots["rack"][NODE]
    set_use(next(iter(root.leaves())), OPPORTUNISTIC)
    assert (root.priority, root.used) == (OPPORTUNISTIC, {OPPORTUNISTIC: 1})
