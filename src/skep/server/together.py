"""One answer for simultaneous requests: many dashboards request the same numbers when something happens."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Together(Generic[T]):
    """By key, for readers that may see the same. Requests that arrive while an answer is computed share the next one:
    it was begun after they arrived, so no answer is older than a separate one would be."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._answers: dict[Hashable, tuple[int, T]] = {}
        """When the last answer was begun, and what it is."""
        self._locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        asked = next(self._count)
        with self._locks.setdefault(key, threading.Lock()):
            last = self._answers.get(key)
            if last is None or last[0] < asked:
                last = self._answers[key] = (next(self._count), make())
            return last[1]
