"""What the latest jobs asked for, and when: by this planners know what is typical, and how much work comes.

It follows from submissions, so nothing of it is in the log by itself. It is part of the state and of its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skep.core.model import Shape

KEPT = 10_000
"""The number of jobs that count: the latest."""

SPARE = 1_000
"""So many more are kept, for readers that are a little behind (`Requests.shapes`)."""


class SavedRequests(msgspec.Struct, array_like=True):
    """What a snapshot has of it. Jobs of one shape are common, so a shape is written once."""

    count: int
    shapes: list[Shape]
    latest: list[tuple[float, int]]
    """When each was submitted, and the number of its shape."""


class Requests:
    """Of all jobs, or of those of a VC."""

    def __init__(self, saved: SavedRequests | None = None) -> None:
        self.count = 0
        """Jobs that were ever submitted."""
        self._latest: list[tuple[float, Shape]] = []
        if saved is not None:
            self.count = saved.count
            self._latest = [(at_s, saved.shapes[number]) for at_s, number in saved.latest]

    def note(self, at_s: float, shape: Shape) -> None:
        self.count += 1
        self._latest.append((at_s, shape))
        if len(self._latest) == 2 * KEPT:
            del self._latest[: KEPT - SPARE]

    def shapes(self, count: int | None = None) -> list[Shape]:
        """Of the latest jobs when so many had been submitted, now if nothing is said. For `count` more than `SPARE` ago
        they may be fewer than `KEPT`."""
        end = len(self._latest) - (0 if count is None else self.count - count)
        return [shape for _, shape in self._latest[max(end - KEPT, 0) : max(end, 0)]]

    def since(self, at_s: float) -> Iterator[Shape]:
        """Of the jobs that were submitted after this moment, the latest first."""
        for when_s, shape in reversed(self._latest):
            if when_s <= at_s:
                return
            yield shape

    def shift(self, by_s: float) -> None:
        """The clock was set."""
        self._latest = [(at_s + by_s, shape) for at_s, shape in self._latest]

    def saved(self) -> SavedRequests:
        numbers: dict[Shape, int] = {}
        latest = [(at_s, numbers.setdefault(shape, len(numbers))) for at_s, shape in self._latest]
        return SavedRequests(self.count, list(numbers), latest)
