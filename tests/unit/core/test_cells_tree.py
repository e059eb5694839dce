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
    node.watcher = watcher
    set_use(chain.cells[GPU][0], 1)
    set_use(chain.cells[GPU][-1], 1)
    assert watcher.touched == [node]
