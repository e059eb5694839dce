"""One answer for all who ask at once: many dashboards ask for the same numbers when something happens."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Together(Generic[T]):
    """By key, for those who may see the same. Those who ask while an answer is worked out share the next one: it was
    begun after they asked, so no answer is older than if it had been asked alone."""

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
