"""The lock of the state, which the writer lends to readers during long operations.

A thread that waits for a plain lock wakes up too late if it is released and acquired again at once. This lock is fair:
no thread overtakes the one that waited first, so each time the lock is lent at least one reader gets it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

PIECE = 250
"""The number of jobs that are processed before the lock is lent: a few milliseconds."""

T = TypeVar("T")


class Lendable:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line = threading.Lock()
        """Held by the first waiting thread."""

    def __enter__(self) -> None:
        with self._line:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the lock. The caller holds it, and does not need it meanwhile."""
        self._lock.release()
        try:
            yield
        finally:
            self.__enter__()

    def in_pieces(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over these, for a caller that holds the lock and can lend it between any two of them."""
        for number, item in enumerate(items, 1):
            yield item
            if number % PIECE == 0:
                with self.lent():
                    pass
