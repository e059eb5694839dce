"""How a borrower becomes an owner in place: its GPUs become cells of its VC."""

from __future__ import annotations

import msgspec

from skep.core.allocation import Allocation, Slice, gpus_in, part_of_extras
from skep.core.cells.in_place import map_up
from skep.core.cells.tree import FREE, GUARANTEED_MIN, OPPORTUNISTIC, PhysicalCell, VirtualCell, set_use
from skep.core.view import JobView
from skep.policies.shared.cell_books import CellBooks

Pair = tuple[PhysicalCell, VirtualCell]


class InPlace:
    """Virtual GPUs of a VC that could be bound to the physical ones of a borrower."""

    def __init__(self, books: CellBooks) -> None:
        self.books = books
        self.cells = books.cells
        self.where = {
            id(leaf): (number, bit) for number, leaves in enumerate(books.virtual) for bit, leaf in enumerate(leaves)
        }

    def upgrade(self, job: JobView) -> Allocation | None:
        """Make the borrower's GPUs cells of its VC; returns its allocation there. None: not possible, nothing
        changed."""
        held = job.bound
        if held is None or any(piece.milli < 1000 for piece in held.slices):
            return None
        hardware = self.books.hardware
        if any(piece.gpus >> len(hardware.leaves[piece.node]) for piece in held.slices):
            return None  # on a node that has joined since the layout was written, which no VC owns
        leaves = [hardware.leaves[piece.node][bit] for piece in held.slices for bit in gpus_in(piece.gpus)]
        with self.cells.books:
            pairs = self._bind(leaves)
        return None if pairs is None else self._allocation(held, pairs)

    def _bind(self, leaves: list[PhysicalCell]) -> list[Pair] | None:
        """Bind one GPU after the other; each sees the bindings of those before. Returns None if one has no place."""
        bound: list[Pair] = []
        for leaf in leaves:
            pair = self._bind_one(leaf)
            if pair is None:
                break
            bound.append(pair)
        for leaf, _ in reversed(bound):  # only a trial: `adopt` takes them permanently
            self._give_back(leaf)
        return bound if len(bound) == len(leaves) else None

    def _bind_one(self, leaf: PhysicalCell) -> Pair | None:
        """As part of the smallest cell that the VC has left and that no other VC could need."""
        chain = self.cells.chains[leaf.chain]
        pinned, vc = self.books.pinned, self.books.cluster.name
        roots = [] if pinned else self.cells.tenancies[vc].roots.get(chain.name, [])
        tried = [(level, list(granted)) for level, granted in enumerate(roots) if granted]
        for level, granted in tried or [(0, [])]:  # a pinned cell is already bound
            virtual = map_up(leaf, granted, level, GUARANTEED_MIN, vc, lambda cell, _: chain.is_within_free(cell))
            if virtual is None or virtual.priority != FREE or virtual.level != 1 or leaf.bad_count:
                continue
            if virtual.root.pinned != pinned:
                continue
            set_use(leaf, FREE)
            if self.cells.books.take_gpu(leaf, virtual, GUARANTEED_MIN):
                return leaf, virtual
            self._give_back(leaf)
        return None

    def _give_back(self, leaf: PhysicalCell) -> None:
        self.cells.books.give_gpu(leaf)
        set_use(leaf, OPPORTUNISTIC)

    def _allocation(self, held: Allocation, pairs: list[Pair]) -> Allocation:
        """In terms of the VC, in the order of the held GPUs."""
        slices: list[Slice] = []
        virtual = iter(pair[1] for pair in pairs)
        for piece in held.slices:
            taken = [next(virtual) for _ in range(piece.gpus.bit_count())]
            slices += self._slices(piece, taken)
        return Allocation(tuple(slices), held.gpus)

    def _slices(self, piece: Slice, taken: list[VirtualCell]) -> list[Slice]:
        masks: dict[int, int] = {}
        for leaf in taken:
            node, bit = self.where[id(leaf)]
            masks[node] = masks.get(node, 0) | 1 << bit
        count = piece.gpus.bit_count()
        return [
            msgspec.structs.replace(
                piece,
                node=node,
                gpus=mask,
                cpu_milli=piece.cpu_milli * mask.bit_count() // count,
                memory_mib=piece.memory_mib * mask.bit_count() // count,
                extras=part_of_extras(piece, mask.bit_count(), count),
                tasks=piece.tasks * mask.bit_count() // count,
            )
            for node, mask in masks.items()
        ]
