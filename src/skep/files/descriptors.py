"""File descriptors: raises the limit, and keeps some in reserve for work that must not wait."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading

RESERVED = 16
WANTED = 1 << 16
"""The number of open files that suffices for any number of connections and jobs of one server."""


STARTED_WITH = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The soft limit that this process began with; its jobs get it too, because some programs close every possible file."""


def raise_limit() -> int:
    """Raise the soft limit of open files of this process. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Reserve:
    """Open descriptors that are released when the process has no other left. Empty until it is filled."""

    def __init__(self, count: int = RESERVED) -> None:
        self.count = count
        self._held: list[int] = []
        self._lock = threading.Lock()

    def fill(self) -> None:
        """Fill the reserve again, as far as there are descriptors now."""
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < self.count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def open(self, path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
        """As `os.open`; if no descriptor is left, with one of the reserve."""
        try:
            return os.open(path, flags, mode)
        except OSError as error:
            if error.errno != errno.EMFILE or not self._give():
                raise
        try:
            return os.open(path, flags, mode)
        finally:
            self.fill()

    def _give(self) -> bool:
        with self._lock:
            held, self._held = self._held, []
        for fd in held:
            os.close(fd)
        return bool(held)
