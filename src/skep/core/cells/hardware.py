"""The nodes of a layout as a cluster, and the position of each GPU cell on them.

A node that lies in several chains (GPUs of two types) is a separate node of the cluster in each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.core.allocation import part_of_extras
from skep.core.cells.cells import Cells
from skep.core.cells.chain import Chain
from skep.core.cells.layout import Layout
from skep.core.cells.tree import BaseCell, PhysicalCell, VirtualCell
from skep.core.cluster import UNLIMITED, Cluster, NodeSpec, Slice
from skep.core.view import NodeView


def cluster_of(layout: Layout) -> Cluster:
    """The nodes of a layout, whether granted to VCs or not."""
    return Cluster(Hardware(Cells(layout)).specs, layout.name)


class Hardware:
    """`cells` seen as nodes: converts between physical GPU cells and slices of a cluster.

    If the nodes of a cluster are given, their numbers are used, by name; otherwise nodes are numbered in order.
    """

    def __init__(self, cells: Cells, nodes: Sequence[NodeView] | None = None) -> None:
        self.specs: list[NodeSpec] = []
        self.leaves: list[list[PhysicalCell]] = [[] for _ in nodes or ()]
        """By node and bit; empty for a node that the layout does not have."""
        self.missing: set[str] = set()
        """Machines of the layout that the cluster does not have, or has with fewer GPUs."""
        self.by_name = {node.name: node for node in nodes} if nodes is not None else None
        taken: set[str] = set()
        for chain in cells.chains.values():
            for node in chain.cells[chain.node_level]:
                name = node.node if node.node not in taken else f"{node.node}@{chain.name}"
                taken.add(name)
                self._add(node, node_spec(cells.layout, chain, node, name, within(node)))

    def _add(self, node: PhysicalCell, spec: NodeSpec) -> None:
        leaves = [leaf for leaf in node.leaves() if isinstance(leaf, PhysicalCell)]
        number = self._number(node, spec)
        self.specs.append(spec)
        if number is None:
            return
        for bit, leaf in enumerate(leaves):
            leaf.place = (number, bit)
        self.leaves[number] = leaves

    def _number(self, cell: PhysicalCell, spec: NodeSpec) -> int | None:
        """None: there is no such node. A node that was replaced by another may still have earlier jobs on it."""
        if self.by_name is None:
            self.leaves.append([])
            return len(self.specs)
        node = self.by_name.get(spec.name)
        if node is None or node.gpu_count < spec.gpus or node.spec.gpu_type != spec.gpu_type:
            self.missing.add(cell.node)
        return node.index if node is not None else None

    def slices(self, leaves: list[PhysicalCell], like: Slice) -> list[Slice]:
        """These GPUs as slices, with CPUs and memory in proportion to one slice of the same role."""
        masks: dict[int, int] = {}
        for leaf in leaves:
            node, bit = leaf.place
            masks[node] = masks.get(node, 0) | 1 << bit
        if len(masks) == 1:
            return [msgspec.structs.replace(like, node=node, gpus=masks[node])]
        return [part_of(like, node, mask) for node, mask in sorted(masks.items())]


def part_of(like: Slice, node: int, mask: int) -> Slice:
    count, total = mask.bit_count(), like.gpus.bit_count()
    return msgspec.structs.replace(
        like,
        node=node,
        gpus=mask,
        cpu_milli=like.cpu_milli * count // total,
        memory_mib=like.memory_mib * count // total,
        extras=part_of_extras(like, count, total),
        tasks=like.tasks * count // total,
    )


def node_spec(
    layout: Layout, chain: Chain, cell: BaseCell, name: str, around: tuple[tuple[str, str], ...] = ()
) -> NodeSpec:
    """A cell, physical or virtual, as a node."""
    sku = layout.skus.get(chain.types[0])
    gpus, size = cell.leaf_count, chain.cells[chain.node_level][0].leaf_count
    inner = []
    below = cell.children
    while below and below[0].children:
        inner.append((below[0].type, below[0].leaf_count))
        below = below[0].children
    return NodeSpec(
        name=name,
        gpus=gpus,
        gpu_type=chain.types[0].lower(),
        cpu_milli=min(sku.cpu_milli * gpus, UNLIMITED) if sku is not None and sku.cpu_milli else UNLIMITED,
        memory_mib=min(sku.memory_mib * gpus, UNLIMITED) if sku is not None and sku.memory_mib else UNLIMITED,
        within=around,
        inner=tuple(inner),
        speeds=sku.speeds if sku is not None else (),
        tags=layout.tags.get(chain.name, ()),
        extras=tuple((name, count * gpus // size) for name, count in layout.extras.get(chain.name, ())),
    )


def within(cell: PhysicalCell | VirtualCell) -> tuple[tuple[str, str], ...]:
    """The cells around a node, outermost first."""
    path: list[tuple[str, str]] = []
    above = cell.parent
    while above is not None:
        path.append((above.type, above.address))
        above = above.parent
    return tuple(reversed(path))
