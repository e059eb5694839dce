"""Cells of VCs: trees, the hardware they stand for, what is bound to what, and bad cells that VCs are shown."""

from __future__ import annotations

import pytest
from tests.support.cells_invariants import check_cell_books
from tests.unit.scenarios.small_cells import layout

from skep.core.cells.books import runs_of
from skep.core.cells.cells import Cells
from skep.core.cells.hardware import Hardware, cluster_of
from skep.core.cells.layout import CellSpec, CellType, Layout, Sku
from skep.core.cells.tree import FREE, OPPORTUNISTIC, PhysicalCell, set_uses
from skep.core.cluster import UNLIMITED, Slice


def physical(cells: Cells, kind: str) -> list[PhysicalCell]:
    chain = cells.chains["rack"]
    return chain.cells[chain.types.index(kind) + 1]


def test_cells_above_the_nodes_know_their_nodes() -> None:
    cells = Cells(layout(racks=2, nodes=2))
    assert [cell.nodes for cell in physical(cells, "rack")] == [("n0", "n1"), ("n2", "n3")]
    assert [cell.nodes for cell in physical(cells, "node")] == [("n0",), ("n1",), ("n2",), ("n3",)]
    assert [cell.leaf_count for cell in physical(cells, "rack")] == [8, 8]
    assert [leaf.index for leaf in physical(cells, "gpu")[:5]] == [0, 1, 2, 3, 0]


def test_a_node_has_the_cpus_and_memory_of_all_its_gpus() -> None:
    made = layout(nodes=1)
    made.skus["gpu"] = Sku(1, cpu_milli=4000, memory_mib=1000)
    (node,) = cluster_of(made).nodes
    assert (node.spec.gpus, node.spec.cpu_milli, node.spec.memory_mib) == (4, 16000, 4000)
    assert node.spec.inner == (("switch", 2),)
    (bare,) = cluster_of(layout(nodes=1)).nodes
    assert (bare.spec.cpu_milli, bare.spec.memory_mib) == (UNLIMITED, UNLIMITED)
    assert node.spec.within == (("rack", "0"),)


def test_every_gpu_cell_has_its_place_on_the_cluster() -> None:
    cells = Cells(layout(nodes=2))
    Hardware(cells)
    assert [leaf.place for leaf in physical(cells, "gpu")] == [(node, bit) for node in (0, 1) for bit in range(4)]


def test_gpus_of_several_nodes_are_slices_with_their_parts_of_cpus_memory_and_tasks() -> None:
    cells = Cells(layout(nodes=2))
    hardware = Hardware(cells)
    leaves = physical(cells, "gpu")
    like = Slice(9, 0b1111, cpu_milli=4000, memory_mib=800, tasks=4)
    assert hardware.slices([leaves[5], leaves[6], leaves[7], leaves[2]], like) == [
        Slice(0, 0b0100, cpu_milli=1000, memory_mib=200, tasks=1),
        Slice(1, 0b1110, cpu_milli=3000, memory_mib=600, tasks=3),
    ]
    assert hardware.slices(leaves[:4], like) == [Slice(0, 0b1111, cpu_milli=4000, memory_mib=800, tasks=4)]


def test_cells_with_little_opportunistic_work_come_first() -> None:
    cells = Cells(layout(nodes=2))
    first, second = physical(cells, "node")
    assert [cell.turn for cell in (first, second)] == [0, 1]
    set_uses(list(first.children[0].children), OPPORTUNISTIC)  # type: ignore[arg-type]
    assert sorted((first, second), key=lambda cell: cell.turn) == [second, first]
    set_uses([second.children[0].children[0]], OPPORTUNISTIC)
    assert sorted((first, second), key=lambda cell: cell.turn) == [second, first], "one GPU against two"
    set_uses(list(first.children[0].children), FREE)  # type: ignore[arg-type]
    assert (first.turn, sorted((first, second), key=lambda cell: cell.turn)) == (0, [first, second])


def test_gpus_side_by_side_in_both_trees_are_one_run() -> None:
    cells = Cells(layout(nodes=2, a="1 node"))
    leaves = physical(cells, "gpu")
    virtuals = list(cells.tenancies["a"].roots["rack"][3][0].leaves())
    runs = runs_of([leaves[0], leaves[1], leaves[4], leaves[2]], virtuals)  # type: ignore[arg-type]
    assert [len(run) for run, _ in runs] == [2, 1, 1]
    assert [leaf for run, _ in runs for leaf in run] == [leaves[0], leaves[1], leaves[4], leaves[2]]
    assert [each for _, run in runs for each in run] == virtuals
    assert len(runs_of(leaves[:4], virtuals)) == 2  # type: ignore[arg-type]


def test_taking_a_gpu_grants_its_vc_the_cell_and_giving_it_back_merges_it() -> None:
    cells = Cells(layout(nodes=2, a="1 node", b="1 node"))
    chain = cells.chains["rack"]
    books = cells.books
    leaf = physical(cells, "gpu")[0]
    virtual = next(iter(cells.tenancies["a"].roots["rack"][3][0].leaves()))
    books.take_gpu(leaf, virtual, 0)  # type: ignore[arg-type]
    node = physical(cells, "node")[0]
    assert (node.virtual, physical(cells, "rack")[0].is_split) == (cells.tenancies["a"].roots["rack"][3][0], True)
    assert [each.is_free_listed for each in physical(cells, "node")] == [False, True]
    check_cell_books(cells)
    chain.forget_freed()
    books.give_gpu(leaf)
    assert (node.virtual, physical(cells, "rack")[0].is_split) == (None, False)
    assert [each.is_free_listed for each in physical(cells, "rack")] == [True]
    assert (chain.is_eased, [cell.address for cell in chain.freed.values()]) == (True, ["0"]), "buddies have merged"
    check_cell_books(cells)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_vcs_are_shown_as_many_bad_cells_as_they_lack_healthy_ones(order: tuple[int, int]) -> None:
    """Three nodes, of which the VC owns two: one bad node is a spare, a second one is shown, and no more."""
    cells = Cells(layout(nodes=3, a="2 node"))
    nodes = physical(cells, "node")

    def shown() -> int:
        return sum(node.virtual is not None for node in nodes)

    cells.set_node(f"n{order[0]}", is_bad=True)
    assert shown() == 0
    cells.set_node(f"n{order[1]}", is_bad=True)
    assert shown() == 1
    check_cell_books(cells)
    cells.set_node("n2", is_bad=True)
    assert shown() == 2
    check_cell_books(cells)
    cells.set_node("n2", is_bad=False)
    assert shown() == 1
    cells.set_node(f"n{order[0]}", is_bad=False)
    assert shown() == 0
    check_cell_books(cells)


def test_a_bad_cell_that_is_used_after_all_may_leave_more_to_spare() -> None:
    """It was shown to its VC as bad; what runs there counts as a use of it, and planners look again."""
    cells = Cells(layout(nodes=1, a="1 node"))
    cells.set_node("n0", is_bad=True)
    chain = cells.chains["rack"]
    assert chain.doomed["a"][3] == physical(cells, "node")
    chain.forget_freed()
    virtual = next(iter(cells.tenancies["a"].roots["rack"][3][0].leaves()))
    cells.books.take_gpu(physical(cells, "gpu")[0], virtual, 0)  # type: ignore[arg-type]
    assert (chain.doomed["a"][3], chain.doomed_count, chain.is_eased) == ([], 0, True)


def test_what_is_bad_in_a_cell_is_shown_as_soon_as_its_vc_uses_the_cell() -> None:
    cells = Cells(layout(racks=2, nodes=2, a="1 rack"))
    chain = cells.chains["rack"]
    chain.forget_freed()
    cells.set_node("n1", is_bad=True)
    assert chain.is_eased, "planners look again where the health of a node has changed"
    assert physical(cells, "node")[1].virtual is None
    virtual = next(iter(cells.tenancies["a"].roots["rack"][4][0].leaves()))
    cells.books.take_gpu(physical(cells, "gpu")[0], virtual, 0)  # type: ignore[arg-type]
    assert physical(cells, "node")[1].virtual is not None
    check_cell_books(cells)


def test_settling_again_shows_the_same_cells() -> None:
    cells = Cells(layout(nodes=3, a="2 node"))
    for name in ("n0", "n1"):
        cells.set_node(name, is_bad=True)
    before = [node.virtual for node in physical(cells, "node")]
    cells.books.settle_doomed(cells.chains["rack"])
    assert [node.virtual for node in physical(cells, "node")] == before


def test_virtual_cells_are_numbered_within_the_cell_that_was_granted() -> None:
    cells = Cells(layout(nodes=3, pins={"0/n2": "mine"}, a="1 node, 1 switch, 1 @mine"))
    tenancy = cells.tenancies["a"]
    addresses = {cell.type: [leaf.address for leaf in cell.leaves()] for cell in tenancy.nodes["rack"]}
    assert addresses == {
        "node": ["a/0/0/0", "a/0/0/1", "a/0/1/2", "a/0/1/3"],
        "switch": ["a/1/0", "a/1/1"],
    }
    assert [leaf.address for leaf in tenancy.pinned["mine"].leaves()] == ["a/2/0/0", "a/2/0/1", "a/2/1/2", "a/2/1/3"]


def test_a_pinned_cell_stays_bound_when_it_heals() -> None:
    cells = Cells(layout(nodes=2, pins={"0/n1": "mine"}, a="1 @mine"))
    pinned = physical(cells, "node")[1]
    assert (pinned.is_pinned, pinned.virtual is not None) == (True, True)
    for is_bad in (True, False):
        cells.set_node("n1", is_bad=is_bad)
        assert pinned.virtual is not None
        check_cell_books(cells)


def test_bindings_of_bad_cells_are_restored_whatever_the_order_of_the_failures_was() -> None:
    """A rack is in use, with two bad nodes in it; of the other rack one bad node is shown, since one is missing."""

    def used() -> Cells:
        cells = Cells(layout(racks=2, nodes=3, a="1 rack, 2 node"))
        virtual = next(iter(cells.tenancies["a"].roots["rack"][4][0].leaves()))
        cells.books.take_gpu(physical(cells, "gpu")[0], virtual, 0)  # type: ignore[arg-type]
        return cells

    cells, again = used(), used()
    for name in ("n2", "n1", "n5", "n4"):
        cells.set_node(name, is_bad=True)
    doomed, inner = cells.shown()
    assert doomed == (("rack", 3, 5, "a/1"),)
    assert inner[:2] == (("rack", 3, 1, "a/0/2"), ("rack", 3, 2, "a/0/1"))
    assert [(level, rank) for _, level, rank, _ in inner[2:]] == [
        *((2, rank) for rank in (2, 3, 4, 5, 10, 11)),
        *((1, rank) for rank in (4, 5, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23)),
    ]
    with again.books:
        again.show(doomed, inner)
        for name in ("n1", "n2", "n4", "n5"):
            again.set_node(name, is_bad=True)
    assert again.shown() == (doomed, inner)
    check_cell_books(again)


@pytest.mark.parametrize("kind", ["doomed", "inner"])
def test_bindings_of_one_kind_are_restored_too(kind: str) -> None:
    cells = Cells(layout(nodes=2, a="1 node" if kind == "inner" else "2 node"))
    virtuals = list(cells.tenancies["a"].roots["rack"][3][0].leaves())
    pair = ("rack", 3, 1, "a/0") if kind == "doomed" else ("rack", 1, 3, "a/0/0/0")
    if kind == "inner":
        cells.books.take_gpu(physical(cells, "gpu")[0], virtuals[1], 0)  # type: ignore[arg-type]
    cells.show(*(((pair,), ()) if kind == "doomed" else ((), (pair,))))
    bound = physical(cells, "node")[1] if kind == "doomed" else physical(cells, "gpu")[3]
    assert bound.virtual is not None
    assert bound.virtual.address == pair[-1]


def with_boxes(name: str) -> Layout:
    """A rack with node n0, and a box of two GPUs of its own kind."""
    made = layout(nodes=1)
    made.types["box"] = CellType("box", "small", 2, is_node=True)
    made.cells.append(CellSpec("box", name, name, "", [CellSpec("small", f"{name}/{at}", name) for at in range(2)]))
    return made


def test_nodes_are_listed_chain_by_chain_the_last_name_first() -> None:
    assert list(Cells(with_boxes("b0")).nodes) == ["n0", "b0"]


def test_the_node_of_a_second_chain_with_the_same_name_has_the_chain_in_its_name() -> None:
    assert [spec.name for spec in cluster_of(with_boxes("n0")).specs] == ["n0", "n0@box"]


def test_a_node_with_one_switch_has_it_as_inner_cell() -> None:
    (node,) = cluster_of(layout(nodes=1, switches=1, gpus=4)).nodes
    assert node.spec.inner == (("switch", 4),)


def test_only_a_gpu_has_a_number_on_its_node() -> None:
    cells = Cells(layout(nodes=1))
    Hardware(cells)
    assert {(cell.index, cell.place) for kind in ("switch", "node", "rack") for cell in physical(cells, kind)} == {
        (-1, (-1, -1))
    }


def test_pinned_cells_are_numbered_after_granted_ones() -> None:
    cells = Cells(layout(nodes=3, pins={"0/n1": "x", "0/n2/0": "y"}, a="1 node, 1 @x, 1 @y"))
    tenancy = cells.tenancies["a"]
    assert {name: root.address for name, root in tenancy.pinned.items()} == {"x": "a/1", "y": "a/2"}
    assert tenancy.nodes["pinned/y"] == [tenancy.pinned["y"]], "smaller than a node"
