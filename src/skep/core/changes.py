"""Which nodes have changed since a reader last looked, so that an index per node updates only those."""

from __future__ import annotations

from skep.core.allocation import Slice


class Changes:
    """Numbers all changes; each node has the number of its latest change, and nodes are kept in that order."""

    __slots__ = ("__weakref__", "count", "epoch", "latest")

    def __init__(self) -> None:
        self.count = 0
        self.epoch = 0
        """Increases when the set of nodes was replaced: all nodes must be read again."""
        self.latest: dict[int, int] = {}

    def note(self, slices: tuple[Slice, ...]) -> None:
        latest, count = self.latest, self.count
        for piece in slices:
            count += 1
            latest.pop(piece.node, None)
            latest[piece.node] = count
        self.count = count

    def renew(self) -> None:
        self.epoch += 1
        self.latest.clear()

    def since(self, count: int) -> list[int]:
        """The nodes that changed after the change with this number, latest first."""
        found = []
        for node, number in reversed(self.latest.items()):
            if number <= count:
                break
            found.append(node)
        return found
