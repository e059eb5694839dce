"""All cells of a cluster, physical and virtual, and the books that bind them.

Guaranteed work uses the virtual cells of its VC, and these are bound to physical ones so that no VC can ever be refused
what it owns. Opportunistic work uses idle physical cells.
"""

from __future__ import annotations

from collections.abc import Iterator

from skep.core.allocation import bits
from skep.core.cells.books import ChainBooks, bind_pair
from skep.core.cells.build import build_chains, build_tenancies, pinned_cells
from skep.core.cells.layout import Layout
from skep.core.cells.tree import PhysicalCell, VirtualCell

Pair = tuple[str, int, int, str]
"""A physical cell (chain, level, rank) and the address of the virtual one that is bound to it."""


class Cells:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.chains = build_chains(layout)
        pins = pinned_cells(layout, self.chains)
        self.tenancies = build_tenancies(layout, self.chains, pins)
        self.books = ChainBooks(self.chains, self.tenancies)
        self.bad_nodes: dict[str, int] = {}
        """The bad GPUs of nodes that have any: bits by their position in `nodes`."""
        self.nodes: dict[str, list[PhysicalCell]] = {}
        """The GPUs of each node, in all chains."""
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
        self.set_bad(node, self.mask_of(node) if is_bad else 0)

    def mask_of(self, node: str) -> int:
        return (1 << len(self.nodes.get(node, ()))) - 1

    def set_bad(self, node: str, mask: int) -> None:
        """These GPUs of the node are bad. Running work stays; nothing new is started on cells with a bad GPU."""
        if node not in self.nodes:
            return
        if mask:
            self.bad_nodes[node] = mask
        else:
            self.bad_nodes.pop(node, None)
        for position, leaf in enumerate(self.nodes[node]):
            self.books.set_health(leaf, is_bad=bool(mask >> position & 1))
        for chain in {leaf.chain for leaf in self.nodes[node]}:
            self.books.settle_doomed(self.chains[chain])

    # Bad cells shown to VCs ------------------------------------------------------------------------------------

    def shown(self) -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
        """Bad cells that are bound: unused granted ones in the order of their lists, and parts of granted ones, larger
        first."""
        doomed = [
            pair_of(cell)
            for chain in self.chains.values()
            for levels in chain.doomed.values()
            for cells in levels
            for cell in cells
        ]
        leaves = (self.nodes[name][position] for name, mask in self.bad_nodes.items() for position in bits(mask))
        bad = {id(cell): cell for leaf in leaves for cell in with_above(leaf)}
        inner = [cell for cell in bad.values() if cell.virtual is not None and cell.virtual.root is not cell.virtual]
        inner.sort(key=lambda cell: (-cell.level, cell.chain, cell.rank))
        return tuple(doomed), tuple(map(pair_of, inner))

    def show(self, doomed: tuple[Pair, ...], inner: tuple[Pair, ...]) -> None:
        """Restore these bindings when all running work is in place and no cell is marked bad yet. Doomed cells must be
        settled after that."""
        if not doomed and not inner:
            return
        virtual = {cell.address: cell for tenancy in self.tenancies.values() for cell in tenancy.cells()}
        for chain, level, rank, address in doomed:
            cell, root = self.chains[chain].cells[level][rank], virtual[address]
            bind_pair(cell, root)
            self.chains[chain].doom(root.vc, cell)
            self.books.grant_quietly(self.chains[chain], cell, root.vc)
        for chain, level, rank, address in inner:
            cell = self.chains[chain].cells[level][rank]
            if cell.virtual is None:  # otherwise something runs there
                bind_pair(cell, virtual[address])


def with_above(leaf: PhysicalCell) -> Iterator[PhysicalCell]:
    cell: PhysicalCell | None = leaf
    while cell is not None:
        yield cell
        cell = cell.parent


def pair_of(cell: PhysicalCell) -> Pair:
    assert cell.virtual is not None
    return (cell.chain, cell.level, cell.rank, cell.virtual.address)
