"""A thread for policies, so that one which never comes back is left behind and the writer goes on.

What runs there works on a copy of the state, so leaving it behind costs nothing but its thread. It is asked to end by
an exception in its next line of Python; what sits in a call outside of Python stays until that returns.
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
"""For one answer of a policy. Whatever is asked of the server meanwhile waits, so no policy should ever come near."""

Work = Callable[[], Any]  # what a policy is asked: its answer goes to who asked

Job = tuple[Work, "Future[Any]"]  # of what the work returns


class TooSlow(SkepError):
    """It was left behind."""


class Bounded:
    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[Job | None] | None = None
        self._thread: threading.Thread | None = None
        self._asked_s = 0.0
        """When the present question was asked; 0 while there is none."""

    @property
    def waits_s(self) -> float:
        """Since when the present question waits for its answer."""
        asked_s = self._asked_s
        return time.monotonic() - asked_s if asked_s else 0.0

    def __call__(self, work: Work) -> Any:  # what the work returns
        """What `work` returns or raises; `TooSlow` where that takes longer than the limit. One after the other."""
        with self._lock:
            if self._inbox is None:
                self._begin()
            assert self._inbox is not None
            future: Future[Any] = Future()  # of what the work returns
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
        del item, work, future  # else the last copy of the state stays here until the next question
