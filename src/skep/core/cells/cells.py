"""All cells of a cluster, physical and virtual, and the books that bind one to the other.

Guaranteed work is on the virtual cells of its VC, and these are bound to physical ones so that no VC can ever be
refused what it owns. Opportunistic work is on idle physical cells.
"""

from __future__ import annotations

from skep.core.cells.books import Books, bind_pair
from skep.core.cells.build import build_chains, build_tenancies, pinned_cells
from skep.core.cells.layout import Layout
from skep.core.cells.tree import PhysicalCell, VirtualCell


class Cells:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.chains = build_chains(layout)
        pins = pinned_cells(layout, self.chains)
        self.tenancies = build_tenancies(layout, self.chains, pins)
        self.books = Books(self.chains, self.tenancies)
        self.bad_nodes: set[str] = set()
        self.nodes: dict[str, list[PhysicalCell]] = {}
        """The gpus of each node, in all chains."""
        for name in sorted(self.chains, reverse=True):
            for leaf in self.chains[name].cells[1]:
                self.nodes.setdefault(leaf.node, []).append(leaf)
        for tenancy in self.tenancies.values():
            for name, root in tenancy.pinned.items():
                self._pin(pins[name], root)

    def _pin(self, cell: PhysicalCell, root: VirtualCell) -> None:
        cell.is_pinned = True
        bind_pair(cell, root)
        chain = self.chains[cell.chain]
        chain.unused_by[root.vc][cell.level] += 1
        chain.unused[cell.level] += 1
        self.books.grant(cell, root.vc)

    def set_node(self, node: str, *, is_bad: bool) -> None:
        """Running work stays; nothing new goes to a bad node."""
        if node not in self.nodes:
            return
        (self.bad_nodes.add if is_bad else self.bad_nodes.discard)(node)
        for leaf in self.nodes[node]:
            self.books.set_health(leaf, is_bad=is_bad)
        for chain in {leaf.chain for leaf in self.nodes[node]}:
            self.books.settle_doomed(self.chains[chain])
