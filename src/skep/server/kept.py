"""Answers that are worked out once for all who ask within a second: many dashboards ask for the same numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT_S = 1.0


class Kept(Generic[T]):
    """By key, for those who may see the same. Two who ask at once wait for one answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._answers: dict[Hashable, tuple[float, T]] = {}
        self._locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._locks.setdefault(key, threading.Lock()):
            made_s, answer = self._answers.get(key, (-KEPT_S, None))
            if answer is None or self.clock() - made_s >= KEPT_S:
                answer = make()
                self._answers[key] = (self.clock(), answer)
            return answer
