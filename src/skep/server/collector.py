"""Short pauses for garbage collection.

A full collection visits every live object while all threads wait: with 10,000 jobs that takes 100 ms and more, and it
finds nearly nothing, because few objects refer to each other in cycles. So objects that survived one full collection
are left out of the next ones, until an hour later one collection visits everything again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERYTHING_EVERY_S = 3600.0
OLDEST = 2


class Collector:
    """A callback for `gc.callbacks`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._everything_at_s = clock()

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST:
            return
        if phase == "stop":
            gc.freeze()
        elif self._clock() - self._everything_at_s >= EVERYTHING_EVERY_S:
            self._everything_at_s = self._clock()
            gc.unfreeze()


@contextmanager
def short_pauses() -> Iterator[None]:
    collector = Collector()
    gc.callbacks.append(collector)
    try:
        yield
    finally:
        gc.callbacks.remove(collector)
        gc.unfreeze()
