"""Choosing physical cells for the virtual cells of a placement, by buddy allocation that keeps all VCs safe.

Nothing is modified here: the result is a physical GPU for each virtual one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from skep.core.cells.chain import Chain
from skep.core.cells.tree import OPPORTUNISTIC, PhysicalCell, VirtualCell

MAP_STEPS = 50_000
"""The most attempts to map cells around bad ones."""

Bindings = dict[int, PhysicalCell]
"""Virtual GPU (by identity) → physical GPU."""


def bind_sparing(
    chain: Chain,
    is_usable: Callable[[PhysicalCell], bool],
    order: Callable[[PhysicalCell], int],
    leaves: list[VirtualCell],
) -> list[PhysicalCell] | None:
    """The physical GPU of each virtual GPU; opportunistic work is evicted only if there is no other way."""
    near = bind_within(is_usable, order, leaves)
    if near is not None:
        return near
    found = Binder(chain, is_usable, order).bind(leaves)
    if found is None:
        return None
    if OPPORTUNISTIC in [gpu.priority for gpu in found.values()]:
        spared = Binder(chain, lambda cell: is_usable(cell) and not is_lent(cell), order).bind(leaves)
        found = found if spared is None else spared
    return [found[id(leaf)] for leaf in leaves]


def bind_within(
    is_usable: Callable[[PhysicalCell], bool], order: Callable[[PhysicalCell], int], leaves: list[VirtualCell]
) -> list[PhysicalCell] | None:
    """Shortcut if all lie in one cell that is already bound: the result that the search would find. GPUs with
    opportunistic work come last. None: the search is needed."""
    parent = leaves[0].parent if leaves else None
    if parent is None or parent.physical is None:
        return None
    found = []
    left = iter(children_of(parent.physical, order))
    for leaf in leaves:
        if leaf.parent is not parent:
            return None
        gpu = leaf.physical
        if gpu is None:
            for candidate in left:
                if candidate.virtual is None and is_usable(candidate):
                    gpu = candidate
                    break
            else:
                return None
        found.append(gpu)
    return found


def children_of(cell: PhysicalCell, order: Callable[[PhysicalCell], int]) -> list[PhysicalCell]:
    """In the order of the layout if none of them has opportunistic work."""
    return sorted(cell.children, key=order) if OPPORTUNISTIC in cell.used else cell.children


def is_lent(cell: PhysicalCell) -> bool:
    """True for a GPU with opportunistic work."""
    return cell.level == 1 and cell.priority == OPPORTUNISTIC


class Binder:
    """Maps the virtual GPUs of one placement."""

    def __init__(
        self, chain: Chain, is_usable: Callable[[PhysicalCell], bool], order: Callable[[PhysicalCell], int]
    ) -> None:
        self.chain = chain
        self.is_usable = is_usable
        self.order = order
        """The preferred of several cells: the smallest, and among these the first in the list."""
        self.bindings: Bindings = {}
        self.below: dict[int, list[VirtualCell]] = {}
        """The unbound children of an unbound virtual cell that are needed."""
        self.steps = MAP_STEPS

    def bind(self, leaves: list[VirtualCell]) -> Bindings | None:
        roots, nested = self._paths(leaves)
        for parent, cells in nested:
            assert parent.physical is not None
            if not self._map_all(cells, self._below(parent.physical)):
                return None
        if roots and not self._allocate(roots):
            return None
        return self.bindings

    def _paths(
        self, leaves: list[VirtualCell]
    ) -> tuple[list[VirtualCell], list[tuple[VirtualCell, list[VirtualCell]]]]:
        """The topmost unbound cells: granted ones, and those whose parent is already bound (by parent)."""
        roots: list[VirtualCell] = []
        nested: dict[int, tuple[VirtualCell, list[VirtualCell]]] = {}
        for leaf in leaves:
            if leaf.physical is not None:
                self.bindings[id(leaf)] = leaf.physical
                continue
            cell = leaf
            while True:
                parent = cell.parent
                if parent is None:
                    roots.append(cell)
                elif parent.physical is not None:
                    nested.setdefault(id(parent), (parent, []))[1].append(cell)
                else:
                    siblings = self.below.get(id(parent))
                    if siblings is not None:
                        siblings.append(cell)
                        break
                    self.below[id(parent)] = [cell]
                    cell = parent
                    continue
                break
        return roots, list(nested.values())

    # Granted cells: buddy allocation ---------------------------------------------------------------------------

    def _allocate(self, roots: list[VirtualCell]) -> bool:
        """On copies of the books: what is split here is forgotten."""
        free = [list(cells) for cells in self.chain.free]
        unused = list(self.chain.unused)
        for root in roots:
            if not self._buddy(root, free) and not self._relaxed(root, free, unused):
                return False
            unused[root.level] -= 1
        return True

    def _buddy(self, root: VirtualCell, free: list[list[PhysicalCell]]) -> bool:
        """From the lowest level that has a free cell, which is split as often as needed."""
        for level in range(root.level, self.chain.top + 1):
            if free[level]:
                return self._descend(root, free, level)
        return False

    def _descend(self, root: VirtualCell, free: list[list[PhysicalCell]], level: int) -> bool:
        if level == root.level:
            return self._map_onto_free(root, free[level])
        for cell in sorted(free[level], key=self.order):
            if self.is_usable(cell):
                below = free[level - 1]
                free[level - 1] = below + cell.children
                if self._descend(root, free, level - 1):
                    take_out(free[level], cell)
                    return True
                free[level - 1] = below
        return False

    def _map_onto_free(self, root: VirtualCell, cells: list[PhysicalCell]) -> bool:
        ordered = [min(cells, key=self.order)]  # nearly always the only one
        found = self._next_fit(root, ordered, 0, set())
        if found is None:
            ordered = sorted(cells, key=self.order)
            found = self._next_fit(root, ordered, 1, set())
        if found is not None:
            take_out(cells, ordered[found])
        return found is not None

    def _relaxed(self, root: VirtualCell, free: list[list[PhysicalCell]], unused: list[int]) -> bool:
        """Split a larger cell than buddy allocation would, if no VC could ever need it or any of its pieces.

        One cell of every level in between is split too, so each of these levels must have one to spare.
        """
        spare = self._spare(free, unused)
        for level in range(root.level + 1, self.chain.top + 1):
            if spare[level] < 1:
                return False
            if self._descend(root, free, level):
                return True
        return False

    def _spare(self, free: list[list[PhysicalCell]], unused: list[int]) -> list[int]:
        """From the top: free cells beyond what all VCs may still request, and the pieces of those from above."""
        counts = [len(cells) - count for cells, count in zip(free, unused, strict=True)]
        for level in range(self.chain.top, 1, -1):
            counts[level - 1] += max(counts[level], 0) * self.chain.fan_out[level]
        return counts

    # Mapping ---------------------------------------------------------------------------------------------------

    def _below(self, cell: PhysicalCell) -> list[PhysicalCell]:
        return children_of(cell, self.order)

    def _map_all(self, cells: list[VirtualCell], ordered: list[PhysicalCell]) -> bool:
        """Map each cell onto a usable candidate of its own, with backtracking.

        A loop and not a recursion, since a gang may have more cells side by side than calls can be nested.
        """
        if cells[0].level == 1:
            return self._map_gpus(cells, ordered)
        used: set[int] = set()
        chosen: list[int] = []
        start = 0
        while len(chosen) < len(cells):
            found = self._next_fit(cells[len(chosen)], ordered, start, used)
            if found is not None:
                used.add(id(ordered[found]))
                chosen.append(found)
                start = 0
            elif chosen:
                start = chosen.pop()
                used.discard(id(ordered[start]))
                start += 1
            else:
                return False
        return True

    def _map_gpus(self, cells: list[VirtualCell], ordered: list[PhysicalCell]) -> bool:
        """GPUs are interchangeable: each takes the next usable one."""
        usable = filter(self.is_usable, ordered)
        for cell in cells:
            gpu = next(usable, None)
            if gpu is None:
                return False
            self.bindings[id(cell)] = gpu
        return True

    def _next_fit(self, cell: VirtualCell, candidates: list[PhysicalCell], start: int, used: set[int]) -> int | None:
        for number in range(start, len(candidates)):
            candidate = candidates[number]
            if id(candidate) in used or not self.is_usable(candidate):
                continue
            self.steps -= 1
            if self.steps < 0:
                return None
            if self._map(cell, candidate):
                return number
        return None

    def _map(self, cell: VirtualCell, onto: PhysicalCell) -> bool:
        if cell.level == 1:
            self.bindings[id(cell)] = onto
            return True
        return self._map_all(self.below[id(cell)], self._below(onto))


def take_out(cells: list[PhysicalCell], cell: PhysicalCell) -> None:
    """Remove an entry by putting the last one in its place, as in the list that this is a copy of."""
    last = cells.pop()
    if last is not cell:
        cells[cells.index(cell)] = last


def by_history(cell: PhysicalCell) -> int:
    """Cells with the least opportunistic work first, so that little is evicted; then in the order of the list."""
    return cell.used.get(OPPORTUNISTIC, 0)


by_layout: Callable[[PhysicalCell], int] = operator.attrgetter("turn")
"""Like `by_history`, but then in the order of the layout: a fork, or a restarted server, does not know the history and
must choose the same cells."""
