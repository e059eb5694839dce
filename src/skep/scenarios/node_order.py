"""The nodes a placement chooses from, in the order in which it tries them."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence

from skep.core.cells.tree import OPPORTUNISTIC, BaseCell, PhysicalCell, VirtualCell

Key = tuple[bool, bool, int, int]


class Sorts(enum.Enum):
    """When nodes get the places that follow from what is in use on them."""

    AT_ONCE = "at once"
    """The order follows from the changes alone, those that a question tries out (lazy preemptions) among them."""
    WHEN_ASKED = "when asked"
    """As HiveD does: several changes are then one, and every question leaves a trace in the order."""


class NodeOrder:
    """Healthy nodes come before bad ones, and then by what is in use on them.

    Nodes that are alike stay behind one another as they were: what is released comes before what was never used. So
    neighbours that were used together are used together again.

    Cells smaller than a node that stand alone are little nodes of their own.
    """

    def __init__(self, nodes: Sequence[BaseCell], *, keeps_apart: bool = False, sorts: Sorts = Sorts.AT_ONCE) -> None:
        self.nodes = nodes
        """In the order of the layout."""
        self.keeps_apart = keeps_apart
        """Opportunistic work goes together and away from guaranteed work; else any use counts."""
        self.sorts = sorts
        self.gpu_count = sum(node.leaf_count for node in nodes)
        self.offered: Collection[str] | None = None
        self.by_key: dict[Key, OrderedDict[int, BaseCell]] = {}
        self.place: dict[int, tuple[Key, int]] = {}
        """Of each node (by identity): its key, and a number that puts those of one key in order."""
        self.changed: dict[int, BaseCell] = {}
        """Nodes that may belong elsewhere, if these wait for the next question."""
        self.first, self.last = 0, -1
        for node in nodes:
            node.watcher = self
            self._put(node, self.key(node), at_end=True)

    def touch(self, node: BaseCell) -> None:
        """Its use, its health or what it is bound to has changed."""
        if self.sorts is Sorts.WHEN_ASKED:
            self.changed[id(node)] = node
            return
        key, before = self.key(node), self.place[id(node)][0]
        if key != before:
            self._put(node, key, at_end=key < before)

    def key(self, node: BaseCell) -> Key:
        """The smallest comes first."""
        held = node.physical if isinstance(node, VirtualCell) else node
        assert held is None or isinstance(held, PhysicalCell)  # what is not bound yet can still become anything
        is_bad = held is not None and bool(held.bad_count)
        is_other = held is not None and self.offered is not None and held.node not in self.offered
        if self.keeps_apart:
            opportunistic = node.used.get(OPPORTUNISTIC, 0)
            return is_bad, is_other, -opportunistic, node.used_total - opportunistic
        return is_bad, is_other, -node.used_total, 0

    def __iter__(self) -> Iterator[BaseCell]:
        for key in sorted(self.by_key):
            yield from self.by_key[key].values()

    def sort(self, offered: Collection[str] | None) -> None:
        """As a stable sort of all nodes would leave them, at the cost of those that changed.

        `offered` are the only nodes wanted, if not all: they come before the others.
        """
        if self.sorts is Sorts.AT_ONCE:
            return
        if offered != self.offered:
            self.offered = offered
            self.changed = {id(node): node for node in self.nodes}
        forward, backward = [], []
        for node in sorted(self.changed.values(), key=lambda node: self.place[id(node)]):
            key, before = self.key(node), self.place[id(node)][0]
            if key < before:
                forward.append((node, key))
            elif key > before:
                backward.append((node, key))
        self.changed = {}
        for node, key in forward:  # behind those that were before it
            self._put(node, key, at_end=True)
        for node, key in reversed(backward):
            self._put(node, key, at_end=False)

    def _put(self, node: BaseCell, key: Key, *, at_end: bool) -> None:
        before = self.place.get(id(node))
        if before is not None:
            alike = self.by_key[before[0]]
            del alike[id(node)]
            if not alike:
                del self.by_key[before[0]]
        alike = self.by_key.setdefault(key, OrderedDict())
        alike[id(node)] = node
        if at_end:
            self.last += 1
            self.place[id(node)] = (key, self.last)
        else:
            self.first -= 1
            self.place[id(node)] = (key, self.first)
            alike.move_to_end(id(node), last=False)
