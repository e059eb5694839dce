"""The books of a chain: a buddy allocator."""

from __future__ import annotations

import pytest
from tests.unit.scenarios.small_cells import layout

from skep.core.cells.cells import Cells
from skep.core.cells.chain import CellList, Chain
from skep.core.errors import InvariantBroken

GPU, SWITCH, NODE, RACK = 1, 2, 3, 4


@pytest.fixture
def chain() -> Chain:
    """A rack of two nodes of two switches of two GPUs."""
    return Cells(layout(nodes=2)).chains["rack"]


def free(chain: Chain) -> list[int]:
    return [len(chain.free[level]) for level in (GPU, SWITCH, NODE, RACK)]


def test_taking_a_gpu_splits_the_cells_above_it(chain: Chain) -> None:
    leaf = chain.cells[GPU][5]
    assert chain.take(leaf) == RACK
    assert free(chain) == [1, 1, 1, 0]
    assert not chain.is_within_free(leaf)
    assert chain.is_within_free(chain.cells[GPU][0])


def test_giving_it_back_merges_buddies(chain: Chain) -> None:
    first, second = chain.cells[GPU][0], chain.cells[GPU][1]
    chain.take(first)
    assert chain.take(second) == GPU
    chain.forget_freed()
    assert chain.give(first) == GPU
    assert not chain.is_eased
    assert chain.give(second) == RACK
    assert chain.is_eased
    assert free(chain) == [0, 0, 0, 1]
    assert [cell.level for cell in chain.freed.values()] == [GPU, RACK]


def test_what_is_in_use_cannot_be_taken(chain: Chain) -> None:
    chain.take(chain.cells[NODE][0])
    with pytest.raises(InvariantBroken, match="is not free"):
        chain.take(chain.cells[GPU][0])


def test_a_removed_cell_is_replaced_by_the_last(chain: Chain) -> None:
    cells, listed = chain.cells[GPU][:4], CellList()
    for cell in cells:
        listed.add(cell)
    listed.remove(cells[1])
    assert list(listed) == [cells[0], cells[3], cells[2]]
    listed.remove(cells[3])
    assert (cells[3] in listed, len(listed), list(listed)) == (False, 2, [cells[0], cells[2]])


def test_planners_look_again_after_a_cell_was_doomed_until_they_have_looked() -> None:
    chain = Cells(layout(nodes=2, a="2 node")).chains["rack"]
    assert not chain.is_eased
    chain.doom("a", chain.cells[NODE][0])
    assert chain.is_eased
    chain.take(chain.cells[NODE][0])
    chain.give(chain.cells[NODE][0])
    chain.forget_freed()
    assert (chain.is_eased, chain.freed) == (False, {})
