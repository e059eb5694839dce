"""Physical and virtual cells at run time.

Every cell counts the GPUs below it that are in use at each priority, so whether a request fits can be answered at the
cell without looking below. A virtual cell in use is *bound* to a physical one, and its ancestors are bound to that
one's ancestors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from skep.core.cells.layout import CellSpec, CellType

FREE = -2
OPPORTUNISTIC = -1
GUARANTEED_MIN, GUARANTEED_MAX = 0, 1000

LENT = 1 << 24
"""More than any rank of a cell."""


class Watcher(Protocol):
    """Keeps nodes in an order that depends on use, health or binding."""

    def touch(self, cell: BaseCell) -> None: ...


class BaseCell:
    """The common part of physical and virtual cells."""

    __slots__ = ("children", "leaf_count", "level", "parent", "priority", "type", "used", "used_total", "watcher")

    def __init__(self, kind: CellType, level: int, parent: BaseCell | None) -> None:
        self.type = kind.name
        self.level = level
        self.parent = parent
        self.children: list[BaseCell] = []
        self.leaf_count = 1
        self.priority = FREE
        """The highest priority in use below."""
        self.used: dict[int, int] = {}
        """The number of GPUs in use below, by priority."""
        self.used_total = 0
        self.watcher: Watcher | None = None
        """Called when the use, the health or the binding of this cell changes."""

    def free_at(self, priority: int) -> int:
        """GPUs that a request of this priority could get here: free ones, and those of lower priorities."""
        if priority == OPPORTUNISTIC:
            return self.leaf_count - self.used_total
        return self.leaf_count - sum(count for other, count in self.used.items() if other >= priority)

    def leaves(self) -> Iterator[BaseCell]:
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


class PhysicalCell(BaseCell):
    __slots__ = (
        "address",
        "bad_count",
        "chain",
        "index",
        "is_free_listed",
        "is_pinned",
        "is_split",
        "node",
        "nodes",
        "place",
        "rank",
        "turn",
        "virtual",
    )
    parent: PhysicalCell | None
    children: list[PhysicalCell]  # type: ignore[assignment]  # narrower than in `BaseCell`: a tree has cells of one kind

    def __init__(
        self, spec: CellSpec, kind: CellType, level: int, parent: PhysicalCell | None, chain: str, rank: int
    ) -> None:
        super().__init__(kind, level, parent)
        self.chain = chain
        self.address = spec.address
        self.node = spec.node
        self.nodes: tuple[str, ...] = (spec.node,) if spec.node else ()
        self.rank = rank
        """Its position among the cells of its level, in the order of the layout."""
        self.turn = rank
        """Its position among these when cells with little opportunistic work come first."""
        self.index = int(spec.address.rpartition("/")[2]) if level == 1 else -1
        """For a GPU: its number on the node."""
        self.place = (-1, -1)
        """For a GPU of a cluster: the node and its bit there."""
        self.virtual: VirtualCell | None = None
        self.is_split = False
        self.is_pinned = False
        self.is_free_listed = False
        self.bad_count = 0
        """The number of bad GPUs below."""

    @property
    def is_healthy(self) -> bool:
        return not self.bad_count

    def __repr__(self) -> str:
        return f"PhysicalCell({self.address}, {self.type})"


class VirtualCell(BaseCell):
    __slots__ = ("address", "chain", "physical", "pinned", "root", "vc", "watched_in")
    parent: VirtualCell | None
    children: list[VirtualCell]  # type: ignore[assignment]  # narrower than in `BaseCell`: a tree has cells of one kind

    def __init__(
        self, kind: CellType, level: int, parent: VirtualCell | None, *, vc: str, chain: str, address: str
    ) -> None:
        super().__init__(kind, level, parent)
        self.vc = vc
        self.chain = chain
        self.address = address
        self.pinned = ""
        self.root: VirtualCell = self if parent is None else parent.root
        """The granted cell of the VC that contains it."""
        self.physical: PhysicalCell | None = None
        self.watched_in: dict[int, VirtualCell] | None = None
        """Where to note, by identity, that the health of the cell it is bound to may have changed."""

    def tree(self) -> Iterator[VirtualCell]:
        yield self
        for child in self.children:
            yield from child.tree()

    def __repr__(self) -> str:
        return f"VirtualCell({self.address}, {self.type})"


def set_use(leaf: BaseCell, priority: int) -> None:
    """Set a GPU cell to be in use at this priority (or free), and update all cells above it."""
    if leaf.priority != priority:
        _use((leaf,), leaf.priority, priority)


def set_uses(leaves: Sequence[BaseCell], priority: int) -> None:
    """`set_use` for GPU cells with one parent: the cells above are updated once if all had the same priority before."""
    before = leaves[0].priority
    for leaf in leaves:
        if leaf.priority != before:
            for each in leaves:
                set_use(each, priority)
            return
    if before != priority:
        _use(leaves, before, priority)


def _use(leaves: Sequence[BaseCell], before: int, priority: int) -> None:
    """Change these GPU cells of one parent, which all had the same priority, to another priority."""
    is_used = priority != FREE
    is_lending = before == OPPORTUNISTIC or priority == OPPORTUNISTIC
    for cell in leaves:
        cell.priority = priority
        cell.used = {priority: 1} if is_used else {}
        cell.used_total = int(is_used)
        if cell.watcher is not None:
            cell.watcher.touch(cell)
        if is_lending and isinstance(cell, PhysicalCell):
            cell.turn = LENT * (priority == OPPORTUNISTIC) + cell.rank
    count = len(leaves)
    was_used = before != FREE
    change = count * (is_used - was_used)
    above = leaves[0].parent
    while above is not None:
        used = above.used
        if was_used:
            left = used[before] - count
            if left:
                used[before] = left
            else:
                del used[before]
        if is_used:
            used[priority] = used.get(priority, 0) + count
        above.used_total += change
        above.priority = max(used, default=FREE)
        if above.watcher is not None:
            above.watcher.touch(above)
        if is_lending and isinstance(above, PhysicalCell):
            above.turn = LENT * used.get(OPPORTUNISTIC, 0) + above.rank
        above = above.parent
