"""Finding the virtual GPU that a physical one could be bound to in its present place."""

from __future__ import annotations

from collections.abc import Callable

from skep.core.cells.tree import FREE, PhysicalCell, VirtualCell

IsFree = Callable[[PhysicalCell, VirtualCell], bool]


def map_up(
    cell: PhysicalCell, roots: list[VirtualCell], level: int, priority: int, vc: str, is_free: IsFree
) -> VirtualCell | None:
    """The virtual cell of a VC that this cell is bound to, or can be bound to as part of one of `roots`, which are of
    `level`.

    `is_free(cell)`: true if a physical cell could be granted as a whole for one of them.
    """
    if cell.virtual is not None:
        return cell.virtual if cell.virtual.vc == vc else None
    if cell.level == level:
        found = least_used(roots, priority)
        if found is not None and is_free(cell, found):
            return found
    if cell.parent is None:  # at most a larger cell of the VC around it could have contained it
        return None
    above = map_up(cell.parent, roots, level, priority, vc, is_free)
    return least_used(above.children, priority) if above is not None else None


def least_used(cells: list[VirtualCell], priority: int) -> VirtualCell | None:
    """The first free unbound one; otherwise the one with the lowest priority below this one."""
    best: VirtualCell | None = None
    for cell in cells:
        if cell.priority == FREE:
            if cell.physical is None:
                return cell
        elif cell.priority < priority and (best is None or cell.priority < best.priority):
            best = cell
    return best
