"""Which physical cells virtual ones get: buddy allocation, around bad cells and opportunistic work."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tests.unit.scenarios.small_cells import layout

from skep.core.cells.binding import Binder, bind_sparing, by_history, by_layout
from skep.core.cells.cells import Cells
from skep.core.cells.tree import OPPORTUNISTIC, PhysicalCell, VirtualCell, set_uses

LEVELS = {"gpu": 1, "switch": 2, "node": 3, "rack": 4}


def granted(cells: Cells, vc: str, kind: str, at: int = 0) -> list[VirtualCell]:
    """The virtual GPUs of a cell that the VC owns."""
    return list(cells.tenancies[vc].roots["rack"][LEVELS[kind]][at].leaves())  # type: ignore[arg-type]


def gpu(cells: Cells, address: str) -> PhysicalCell:
    return next(leaf for leaf in cells.chains["rack"].cells[1] if leaf.address == address)


def bound(
    cells: Cells, leaves: list[VirtualCell], is_usable: Callable[[PhysicalCell], bool] = lambda _: True
) -> list[str] | None:
    found = bind_sparing(cells.chains["rack"], is_usable, by_layout, leaves)
    return None if found is None else [leaf.address for leaf in found]


def but_for(*addresses: str) -> Callable[[PhysicalCell], bool]:
    """Nothing at these addresses or below them is usable."""
    return lambda cell: not any(f"{cell.address}/".startswith(f"{address}/") for address in addresses)


def lend(cells: Cells, addresses: Iterable[str]) -> None:
    for address in addresses:
        set_uses([gpu(cells, address)], OPPORTUNISTIC)


def use(cells: Cells, vc: str, kind: str, *addresses: str) -> None:
    """The VC uses these GPUs for one of its cells."""
    for address, virtual in zip(addresses, granted(cells, vc, kind), strict=True):
        assert cells.books.take_gpu(gpu(cells, address), virtual, 0)


def test_opportunistic_work_is_spared_if_another_cell_is_free() -> None:
    """Both nodes lend two GPUs; only the second has a free switch left."""
    cells = Cells(layout(nodes=2, a="1 node"))
    lend(cells, ["0/n0/0/0", "0/n0/1/2", "0/n1/0/0", "0/n1/0/1"])
    assert bound(cells, granted(cells, "a", "node")[:2]) == ["0/n1/1/2", "0/n1/1/3"]


def test_opportunistic_work_is_evicted_if_there_is_no_other_way() -> None:
    cells = Cells(layout(nodes=2, a="1 node"))
    lend(cells, ["0/n0/0/0", "0/n1/0/0", "0/n1/0/1"])
    assert bound(cells, granted(cells, "a", "node")) == ["0/n0/1/2", "0/n0/1/3", "0/n0/0/1", "0/n0/0/0"]


def test_a_node_that_is_to_spare_is_split_where_the_free_switch_is_bad() -> None:
    """The gang itself uses the node that its VC may ask for, so the last node is to spare."""
    cells = Cells(layout(nodes=3, a="1 node, 1 switch", b="1 switch"))
    use(cells, "b", "switch", "0/n0/0/0", "0/n0/0/1")
    leaves = [*granted(cells, "a", "node"), *granted(cells, "a", "switch")]
    found = bound(cells, leaves, but_for("0/n0/1"))
    assert found is not None
    assert [address[:4] for address in found] == ["0/n1"] * 4 + ["0/n2"] * 2


def test_a_node_that_a_vc_may_still_ask_for_is_not_split() -> None:
    cells = Cells(layout(nodes=2, a="1 switch", b="1 switch", c="1 node"))
    use(cells, "b", "switch", "0/n0/0/0", "0/n0/0/1")
    assert bound(cells, granted(cells, "a", "switch")) == ["0/n0/1/2", "0/n0/1/3"]
    assert bound(cells, granted(cells, "a", "switch"), but_for("0/n0/1")) is None


def test_a_node_that_was_split_in_vain_stays_whole() -> None:
    """No switch of the first node has two usable GPUs; the single GPU comes from what is left of the second."""
    cells = Cells(layout(nodes=3, a="1 switch, 1 gpu"))
    leaves = [*granted(cells, "a", "switch"), *granted(cells, "a", "gpu")]
    found = bound(cells, leaves, but_for("0/n0/0/0", "0/n0/1/2"))
    assert found == ["0/n1/0/0", "0/n1/0/1", "0/n1/1/2"]


def test_gpus_beside_opportunistic_work_are_taken_before_work_is_evicted() -> None:
    """The gang needs a GPU below each switch: only the second node has one free below both."""
    cells = Cells(layout(nodes=2, a="1 node"))
    lend(cells, ["0/n0/0/0", "0/n0/0/1", "0/n1/0/0", "0/n1/1/2"])
    first, _, third, _ = granted(cells, "a", "node")
    assert sorted(bound(cells, [first, third]) or ()) == ["0/n1/0/1", "0/n1/1/3"]


def test_small_needs_make_room_for_large_ones() -> None:
    """The first switch that is asked for needs one GPU, the second two; only the first one there has two."""
    cells = Cells(layout(nodes=1, a="1 node"))
    first, _, third, fourth = granted(cells, "a", "node")
    found = bound(cells, [first, third, fourth], but_for("0/n0/1/3"))
    assert found == ["0/n0/1/2", "0/n0/0/0", "0/n0/0/1"]


def test_within_a_bound_switch_gpus_that_are_taken_or_bad_are_passed_over() -> None:
    cells = Cells(layout(nodes=1, gpus=4, a="1 node"))
    leaves = granted(cells, "a", "node")
    assert cells.books.take_gpu(gpu(cells, "0/n0/0/0"), leaves[0], 0)
    assert bound(cells, leaves[1:3], but_for("0/n0/0/1")) == ["0/n0/0/2", "0/n0/0/3"]


def test_where_nothing_is_free_there_is_no_cell() -> None:
    cells = Cells(layout(nodes=1, a="1 node", b="1 node"))
    for address, virtual in zip(("0/n0/0/0", "0/n0/0/1"), granted(cells, "b", "node")[:2], strict=True):
        cells.books.take_gpu(gpu(cells, address), virtual, 0)
    assert bound(cells, granted(cells, "a", "node")) is None


def test_a_search_that_would_never_end_is_given_up() -> None:
    """Two of sixteen nodes lack a GPU: which fourteen take which part makes no difference, and is not tried out."""
    cells = Cells(layout(nodes=16, a="1 rack"))
    assert bound(cells, granted(cells, "a", "rack"), but_for("0/n14/0/0", "0/n15/0/0")) is None


def test_a_node_that_another_vc_may_ask_for_is_not_split_though_the_gang_uses_one_of_its_own() -> None:
    cells = Cells(layout(nodes=3, a="1 node, 1 switch", b="1 switch", c="1 node"))
    use(cells, "b", "switch", "0/n0/0/0", "0/n0/0/1")
    leaves = [*granted(cells, "a", "node"), *granted(cells, "a", "switch")]
    assert bound(cells, leaves, but_for("0/n0/1")) is None


def test_a_free_switch_that_was_passed_over_is_there_for_a_smaller_cell() -> None:
    """The switch with a bad GPU cannot be the VC's switch, for which the spare node is split, but has its GPU."""
    cells = Cells(layout(nodes=2, a="1 switch, 1 gpu", b="1 switch"))
    use(cells, "b", "switch", "0/n0/0/0", "0/n0/0/1")
    leaves = [*granted(cells, "a", "switch"), *granted(cells, "a", "gpu")]
    assert bound(cells, leaves, but_for("0/n0/1/2")) == ["0/n1/0/0", "0/n1/0/1", "0/n0/1/3"]


def test_no_switch_is_to_spare_where_no_node_is() -> None:
    cells = Cells(layout(nodes=2, a="1 gpu", b="1 gpu", c="1 node", d="1 switch"))
    use(cells, "b", "gpu", "0/n0/0/0")
    assert bound(cells, granted(cells, "a", "gpu")) == ["0/n0/0/1"]
    assert bound(cells, granted(cells, "a", "gpu"), but_for("0/n0/0/1")) is None


def test_the_switches_of_a_node_to_spare_are_to_spare() -> None:
    """The free GPU is bad and no switch is free, but one of the second node may be split."""
    cells = Cells(layout(nodes=2, a="1 gpu", b="1 gpu", c="1 switch"))
    use(cells, "b", "gpu", "0/n0/0/0")
    use(cells, "c", "switch", "0/n0/1/2", "0/n0/1/3")
    assert bound(cells, granted(cells, "a", "gpu")) == ["0/n0/0/1"]
    assert bound(cells, granted(cells, "a", "gpu"), but_for("0/n0/0/1")) == ["0/n1/0/0"]


@pytest.mark.parametrize(("steps", "is_found"), [(3, True), (2, False)])
def test_a_search_may_make_so_many_attempts(steps: int, is_found: bool) -> None:
    """One for the node and one for each of its two switches."""
    cells = Cells(layout(nodes=1, a="1 node"))
    binder = Binder(cells.chains["rack"], lambda _: True, by_layout)
    binder.steps = steps
    assert (binder.bind(granted(cells, "a", "node")) is not None) is is_found


def test_cells_without_opportunistic_work_come_first() -> None:
    cells = Cells(layout(nodes=1))
    lend(cells, ["0/n0/0/0"])
    switches = cells.chains["rack"].cells[2]
    assert [by_history(cell) for cell in switches] == [1, 0]
