"""Which nodes have changed since a reader last looked, so that an index per node updates only those."""

from __future__ import annotations

from skep.core.allocation import Slice


class Changes:
    """Counts changes; each node has the number of its latest one, and they lie in the order of these."""

    __slots__ = ("__weakref__", "count", "epoch", "latest")

    def __init__(self) -> None:
        self.count = 0
        self.epoch = 0
        """Grows when the nodes are others than before: everything is to be looked at anew."""
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
        """The nodes that have changed after the change of this number, the latest first."""
        found = []
        for node, number in reversed(self.latest.items()):
            if number <= count:
                break
            found.append(node)
        return found
