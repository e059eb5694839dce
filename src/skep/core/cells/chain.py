"""The books of one chain: free cells by level, what each VC has not used yet, and what is bad.

    left[l]       cells of level l that are free or could be had by splitting free ones
    unused[l]     cells of level l that all VCs together are granted and do not use
    VC safety     left[l] >= unused[l] at every level, always

Free cells are kept as in a buddy allocator: a cell is listed when it is free as a whole and its parent is split.
"""

from __future__ import annotations

from skep.core.cells.tree import PhysicalCell, View, VirtualCell
from skep.core.errors import InvariantBroken


class Chain:
    def __init__(self, name: str, types: list[str], node_level: int) -> None:
        self.name = name
        self.types = types
        """Names from the gpu upwards; level n is at n - 1."""
        self.top = len(types)
        self.node_level = node_level
        self.cells: list[list[PhysicalCell]] = [[] for _ in range(self.top + 1)]
        """By level."""
        self.free: list[dict[int, PhysicalCell]] = [{} for _ in range(self.top + 1)]
        self.fan_out = [0] * (self.top + 1)
        """By level: how many of its cells make one of the next level; 0 at the top."""
        self.left = [0] * (self.top + 1)
        self.unused = [0] * (self.top + 1)
        self.unused_by: dict[str, list[int]] = {}
        self.bad_free: list[dict[int, PhysicalCell]] = [{} for _ in range(self.top + 1)]
        """Bad cells among those in `left`."""
        self.doomed: dict[str, list[list[PhysicalCell]]] = {}
        """By VC and level: bad cells shown to the VC because no healthy one is left for it."""
        self.view: View

    def list_free(self, cell: PhysicalCell) -> None:
        self.free[cell.level][id(cell)] = cell
        cell.is_free_listed = True

    def unlist_free(self, cell: PhysicalCell) -> None:
        del self.free[cell.level][id(cell)]
        cell.is_free_listed = False

    def take(self, cell: PhysicalCell) -> int:
        """Remove a cell from what is free, splitting the cells above it; the level of the one that was listed."""
        while not cell.is_free_listed:
            parent = cell.parent
            if parent is None or parent.is_split:
                raise InvariantBroken(f"{cell!r} is not free")
            parent.is_split = True
            for child in parent.children:
                if child is not cell:
                    self.list_free(child)
            cell = parent
        self.unlist_free(cell)
        return cell.level

    def give(self, cell: PhysicalCell) -> int:
        """Give a cell back, merging buddies; the level up to which they merged."""
        while True:
            parent = cell.parent
            if parent is None or not all(child is cell or child.is_free_listed for child in parent.children):
                self.list_free(cell)
                return cell.level
            for child in parent.children:
                if child is not cell:
                    self.unlist_free(child)
            parent.is_split = False
            cell = parent

    def is_within_free(self, cell: PhysicalCell) -> bool:
        """Whether the cell, or one it is part of, is free as a whole."""
        found: PhysicalCell | None = cell
        while found is not None:
            if found.is_free_listed:
                return True
            found = found.parent
        return False


class Tenancy:
    """The virtual cells of one VC: by chain and level, and by the name of a pinned cell."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.roots: dict[str, list[list[VirtualCell]]] = {}
        """By chain and level: the cells it was granted."""
        self.pinned: dict[str, VirtualCell] = {}
        self.views: dict[str, View] = {}
        """By chain; a pinned cell has its own, named after it with `pinned/` before."""
