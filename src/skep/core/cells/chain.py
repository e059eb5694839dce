"""The books of one chain: free cells by level, what each VC has not used yet, and bad cells.

    left[l]       cells of level l that are free or can be obtained by splitting free ones
    unused[l]     cells of level l that all VCs together are granted and do not use
    VC safety     left[l] >= unused[l] at every level, always

Free cells are kept as in a buddy allocator: a cell is listed if it is free as a whole and its parent is split.
"""

from __future__ import annotations

from collections.abc import Iterator

from skep.core.cells.tree import PhysicalCell, VirtualCell
from skep.core.errors import InvariantBroken


class CellList:
    """Cells in an order that depends on the history: new ones are appended, and a removed one is replaced by the last.
    HiveD keeps its lists in this way; with the same order, the same cells are chosen among equal ones."""

    def __init__(self) -> None:
        self.cells: list[PhysicalCell] = []
        self.at: dict[int, int] = {}
        """The position of each cell, by identity."""

    def add(self, cell: PhysicalCell) -> None:
        self.at[id(cell)] = len(self.cells)
        self.cells.append(cell)

    def remove(self, cell: PhysicalCell) -> None:
        number, last = self.at.pop(id(cell)), self.cells.pop()
        if last is not cell:
            self.cells[number] = last
            self.at[id(last)] = number

    def __contains__(self, cell: PhysicalCell) -> bool:
        return id(cell) in self.at

    def __iter__(self) -> Iterator[PhysicalCell]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)


class Chain:
    def __init__(self, name: str, types: list[str], node_level: int) -> None:
        self.name = name
        self.types = types
        """Level names from the GPU upwards; level n is at n - 1."""
        self.top = len(types)
        self.node_level = node_level
        self.cells: list[list[PhysicalCell]] = [[] for _ in range(self.top + 1)]
        """By level. Level 0 is empty here and in all other lists by level."""
        self.free = [CellList() for _ in self.cells]
        self.fan_out: list[int] = []
        """By level: the number of children of a cell. This and `left` are counted when all cells are there."""
        self.left: list[int] = []
        self.unused = [0] * len(self.cells)
        self.unused_by: dict[str, list[int]] = {}
        self.bad_free = [CellList() for _ in self.cells]
        """Bad cells among those in `left`."""
        self.bad_free_count = 0
        """The number of all bad free cells."""
        self.doomed: dict[str, list[list[PhysicalCell]]] = {}
        """By VC and level: bad cells shown to the VC because no healthy one is left for it."""
        self.doomed_count = 0
        self.freed: dict[int, PhysicalCell] = {}
        """By identity: cells that became free as a whole since `forget_freed`."""
        self.is_eased = False
        """True if there may be more spare cells since then, anywhere: buddies were merged, or bad or doomed cells
        changed."""

    def list_free(self, cell: PhysicalCell) -> None:
        self.free[cell.level].add(cell)
        cell.is_free_listed = True

    def unlist_free(self, cell: PhysicalCell) -> None:
        self.free[cell.level].remove(cell)
        cell.is_free_listed = False

    def doom(self, vc: str, cell: PhysicalCell) -> None:
        self.doomed[vc][cell.level].append(cell)
        self.doomed_count += 1
        self.is_eased = True

    def undoom(self, vc: str, cell: PhysicalCell) -> None:
        self.doomed[vc][cell.level].remove(cell)
        self.doomed_count -= 1
        self.is_eased = True

    def take(self, cell: PhysicalCell) -> int:
        """Remove a cell from the free ones, splitting the cells above it; returns the level of the cell that was
        listed."""
        while not cell.is_free_listed:
            parent = cell.parent
            if parent is None or parent.is_split:
                raise InvariantBroken(f"{cell!r} is not free")
            parent.is_split = True
            for child in parent.children:
                self.list_free(child)
            self.unlist_free(cell)
            cell = parent
        self.unlist_free(cell)
        return cell.level

    def give(self, cell: PhysicalCell) -> int:
        """Return a cell, merging buddies; returns the level up to which they merged."""
        while True:
            parent = cell.parent
            if parent is None or not all(child is cell or child.is_free_listed for child in parent.children):
                self.list_free(cell)
                self.freed[id(cell)] = cell
                return cell.level
            self.is_eased = True
            for child in parent.children:
                if child is not cell:
                    self.unlist_free(child)
            parent.is_split = False
            cell = parent

    def forget_freed(self) -> None:
        self.freed.clear()
        self.is_eased = False

    def is_within_free(self, cell: PhysicalCell) -> bool:
        """True if the cell, or one that contains it, is free as a whole."""
        found: PhysicalCell | None = cell
        while found is not None:
            if found.is_free_listed:
                return True
            found = found.parent
        return False


class Tenancy:
    """The virtual cells of one VC: by chain and level, and by the name of a pinned cell."""

    def __init__(self) -> None:
        self.roots: dict[str, list[list[VirtualCell]]] = {}
        """By chain and level: the cells it was granted."""
        self.pinned: dict[str, VirtualCell] = {}
        self.nodes: dict[str, list[VirtualCell]] = {}
        """Its cells as nodes, by chain; those of a pinned cell are under its name with the prefix `pinned/`."""

    def cells(self) -> Iterator[VirtualCell]:
        granted = [root for levels in self.roots.values() for level in levels for root in level]
        for root in (*granted, *self.pinned.values()):
            yield from root.tree()
