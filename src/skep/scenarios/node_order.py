"""The nodes a placement chooses from, in the order in which it tries them."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence

from skep.core.cells.tree import OPPORTUNISTIC, BaseCell, PhysicalCell, VirtualCell

Key = tuple[bool, bool, int, int]


class Sorts(enum.Enum):
    """When nodes are sorted again after their use has changed."""

    AT_ONCE = "at once"
    """The order follows from the changes alone, including those that a trial makes (lazy preemptions)."""
    WHEN_ASKED = "when asked"
    """As in HiveD: several changes are then one, and every request leaves a trace in the order."""


class NodeOrder:
    """Healthy nodes come before bad ones, and then by what is in use on them.

    Equal nodes keep their relative order: what is released comes before what was never used. So neighbours that were
    used together are used together again.

    Cells smaller than a node that stand alone count as small nodes.
    """

    def __init__(self, nodes: Sequence[BaseCell], *, keeps_apart: bool = False, sorts: Sorts = Sorts.AT_ONCE) -> None:
        self.nodes = nodes
        """In the order of the layout."""
        self.keeps_apart = keeps_apart
        """Opportunistic work is kept together and away from guaranteed work; otherwise any use counts."""
        self.sorts = sorts
        self.gpu_count = sum(node.leaf_count for node in nodes)
        self.offered: Collection[str] | None = None
        self.by_key: dict[Key, OrderedDict[int, BaseCell]] = {}
        self.place: dict[int, tuple[Key, int]] = {}
        """For each node (by identity): its key, and a number that orders those of one key."""
        self.changed: dict[int, BaseCell] = {}
        """Nodes that may have to move, if these wait for the next request."""
        self.first, self.last = 0, -1
        for node in nodes:
            node.watcher = self
            self._put(node, self.key(node), at_end=True)

    def touch(self, node: BaseCell) -> None:
        """The use, the health or the binding of the node has changed."""
        if self.sorts is Sorts.WHEN_ASKED:
            self.changed[id(node)] = node
            return
        key, before = self.key(node), self.place[id(node)][0]
        if key != before:
            self._put(node, key, at_end=key < before)

    def key(self, node: BaseCell) -> Key:
        """The smallest comes first."""
        held = node.physical if isinstance(node, VirtualCell) else node
        assert held is None or isinstance(held, PhysicalCell)  # an unbound cell can still become anything
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
