"""A thread for policies, so that a policy that does not return can be abandoned and the writer continues.

The policy works on a copy of the state, so abandoning it costs only its thread. It is ended by an exception in its next
line of Python; a call outside of Python stays until it returns.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from skep.core.errors import SkepError

LIMIT_S = 30.0
"""The time limit of one call of a policy. Everything else waits meanwhile, so policies should stay far below it."""

Work = Callable[[], Any]  # the call of a policy; its result goes to the caller

Job = tuple[Work, "Future[Any]"]  # the result of the call


class TooSlow(SkepError):
    """The call was abandoned."""


class Bounded:
    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[Job | None] | None = None
        self._thread: threading.Thread | None = None
        self._asked_s = 0.0
        """When the present call began; 0: there is none."""

    @property
    def waits_s(self) -> float:
        """Since when the present call runs."""
        asked_s = self._asked_s
        return time.monotonic() - asked_s if asked_s else 0.0

    def __call__(self, work: Work) -> Any:  # the result of the call
        """What `work` returns or raises; `TooSlow` if it exceeds the limit. One call at a time."""
        with self._lock:
            if self._inbox is None:
                self._begin()
            assert self._inbox is not None
            future: Future[Any] = Future()  # the result of the call
            self._asked_s = time.monotonic()
            self._inbox.put((work, future))
            try:
                return future.result(self.limit_s)
            except TimeoutError:
                if future.done():
                    raise  # its own
                self._leave_behind()
                raise TooSlow(f"no answer within {self.limit_s:g} s") from None
            finally:
                self._asked_s = 0.0

    def _begin(self) -> None:
        self._inbox = queue.SimpleQueue()
        self._thread = threading.Thread(target=serve, args=(self._inbox,), name="policy", daemon=True)
        self._thread.start()

    def _leave_behind(self) -> None:
        thread, self._inbox = self._thread, None
        if thread is not None and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))

    def close(self) -> None:
        if self._inbox is not None:
            self._inbox.put(None)


def serve(inbox: queue.SimpleQueue[Job | None]) -> None:
    while (item := inbox.get()) is not None:
        work, future = item
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        del item, work, future  # otherwise the last copy of the state stays in memory until the next call
