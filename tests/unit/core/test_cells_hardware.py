"""The nodes of a layout on a cluster that numbers them otherwise."""

from __future__ import annotations

from tests.unit.scenarios.small_cells import layout

from skep.core.cells.cells import Cells
from skep.core.cells.hardware import Hardware
from skep.core.cluster import Cluster, NodeSpec, Slice


def test_nodes_have_the_numbers_of_the_cluster() -> None:
    cells = Cells(layout(nodes=2))
    cluster = Cluster([NodeSpec("other", 4, "gpu"), NodeSpec("n1", 4, "gpu"), NodeSpec("n0", 4, "gpu")])
    hardware = Hardware(cells, cluster.nodes)
    assert [len(leaves) for leaves in hardware.leaves] == [0, 4, 4]
    assert {leaf.node for leaf in hardware.leaves[2]} == {"n0"}
    assert not hardware.missing


def test_a_machine_that_is_gone_or_smaller_is_missing() -> None:
    cells = Cells(layout(nodes=3))
    cluster = Cluster([NodeSpec("n0", 4, "gpu"), NodeSpec("n1", 2, "gpu")])
    assert Hardware(cells, cluster.nodes).missing == {"n1", "n2"}


def test_gpus_on_one_node_are_one_slice() -> None:
    cells = Cells(layout(nodes=2))
    hardware = Hardware(cells)
    like = Slice(0, 0b11, cpu_milli=2000, memory_mib=10, tasks=2)
    (piece,) = hardware.slices(hardware.leaves[1][1:3], like)
    assert (piece.node, piece.gpus, piece.cpu_milli, piece.tasks) == (1, 0b110, 2000, 2)
