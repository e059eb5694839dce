"""Requests that take long or much: how many of a kind may work at once, and how many may wait for that.

They wait on the event loop, so that no thread of the pool that all requests share is occupied by waiting. Each user may
have a share of the places, so that one user alone cannot keep the others out.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

RETRY_S = 5
"""When a client that finds no place should come back."""

T = TypeVar("T")


class Crowded(Exception):
    """There is no place: the client should come back later."""

    def __init__(self, message: str, hint: str = "", retry_s: int = RETRY_S) -> None:
        super().__init__(message)
        self.hint = hint or f"try again in {retry_s} s"
        self.headers = {"retry-after": str(retry_s)}


class Gate:
    """`at_once` may work while `waiting` others wait; one user gets `share` of these places, at least one."""

    def __init__(self, what: str, at_once: int, waiting: int, share: float = 0.5) -> None:
        self.what = what
        self.most = at_once + waiting
        self.most_each = max(round(self.most * share), 1)
        self._working = asyncio.Semaphore(at_once)
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        if self._users.total() >= self.most or self._users[user] >= self.most_each:
            raise Crowded(f"too many {self.what} at once")
        self._users[user] += 1
        try:
            async with self._working:
                yield
        finally:
            self._users[user] -= 1
            self._users += Counter()  # those at zero go


class Threads:
    """Threads for one kind of work that may wait: for a disk, for a process."""

    def __init__(self, name: str, count: int) -> None:
        self._threads = ThreadPoolExecutor(count, name)

    # The arguments of the function.
    async def run(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(work, *args))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
