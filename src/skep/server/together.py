"""One answer for simultaneous requests: many dashboards request the same numbers when something happens."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

T = TypeVar("T")


class Together(Generic[T]):
    """By key, for readers that may see the same. Requests that arrive while an answer is computed share the next one:
    it was begun after they arrived, so no answer is older than a separate one would be. They wait on the event loop."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._answers: dict[Hashable, tuple[int, T]] = {}
        """When the last answer was begun, and what it is."""
        self._locks: dict[Hashable, asyncio.Lock] = {}

    async def get(self, key: Hashable, make: Callable[[], T]) -> T:
        asked = next(self._count)
        async with self._locks.setdefault(key, asyncio.Lock()):
            last = self._answers.get(key)
            if last is None or last[0] < asked:
                last = self._answers[key] = (next(self._count), await run_in_threadpool(make))
            return last[1]
