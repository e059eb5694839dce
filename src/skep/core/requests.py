"""The latest requests of jobs, and when they were made: planners derive from this what is typical, and how much work
arrives.

It follows from submissions, so the log has no events of its own for it. It is part of the state and of its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from skep.core.model import Shape

T = TypeVar("T")

KEPT = 10_000
"""The number of latest jobs that count."""

SPARE = 1_000
"""The number of additional jobs that are kept, for readers that are a little behind (`Requests.shapes`)."""


def drop_oldest(latest: list[T], most: int, by: int) -> None:
    """Drop so many each time that the list reaches its most, as if its last values had been added one at a time: what
    is left does not depend on when they were."""
    if len(latest) >= most:
        del latest[: ((len(latest) - most) // by + 1) * by]


class SavedRequests(msgspec.Struct, array_like=True):
    """The part of it in a snapshot. Many jobs have equal shapes, so each shape is written once."""

    count: int
    shapes: list[Shape]
    latest: list[tuple[float, int]]
    """When each was submitted, and the number of its shape."""


class Requests:
    """The requests of all jobs, or of those of a VC."""

    def __init__(self, saved: SavedRequests | None = None) -> None:
        self.count = 0
        """The number of jobs that were ever submitted."""
        self._latest: list[tuple[float, Shape]] = []
        if saved is not None:
            self.count = saved.count
            self._latest = [(at_s, saved.shapes[number]) for at_s, number in saved.latest]

    def note(self, made: list[tuple[float, Shape]]) -> None:
        """Jobs were submitted, at these times."""
        self.count += len(made)
        self._latest += made
        drop_oldest(self._latest, 2 * KEPT, KEPT - SPARE)

    def shapes(self, count: int | None = None) -> list[Shape]:
        """The shapes of the latest jobs when `count` had been submitted; by default now. For a `count` more than
        `SPARE` ago they may be fewer than `KEPT`."""
        end = len(self._latest) - (0 if count is None else self.count - count)
        return [shape for _, shape in self._latest[max(end - KEPT, 0) : max(end, 0)]]

    def since(self, at_s: float) -> Iterator[Shape]:
        """The jobs that were submitted after this time, latest first."""
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
