"""Atomic file writes, and logs in parts. Standard library only: the shim uses this too."""

from __future__ import annotations

import contextlib
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RATE_MAX = 32 << 20
"""The most bytes per second that are read of one task's output."""
WINDOW_S = 0.1
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""For files that the task may have replaced by a link or a fifo."""


def write_whole(path: str, text: str, *, is_durable: bool = False) -> None:
    """Write atomically: a reader sees all of it or nothing."""
    aside = f"{path}.new"
    make_way(aside)
    make_way(path)
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | SAFELY, 0o600)
    with open(fd, "wb") as file:
        file.write(text.encode())
        file.flush()
        if is_durable:
            os.fsync(fd)
    os.replace(aside, path)
    if is_durable:
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def make_way(path: str, is_kind: Callable[[int], bool] = stat.S_ISREG) -> None:
    """Rename what is in the place of a file but is not a file."""
    with contextlib.suppress(FileNotFoundError):
        if not is_kind(os.lstat(path).st_mode):
            os.rename(path, f"{path}.{time.monotonic_ns()}")


def remove_folder(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)


class LogFile:
    """The output of the task: `log`, and older parts in `log.1`, `log.2`, …"""

    def __init__(self, part_bytes: int, parts: int) -> None:
        self.part_bytes = part_bytes
        self.parts = parts
        self.size = 0
        self.window_bytes = 0
        self.window_at = time.monotonic()
        self.dropped = 0
        """Bytes of deleted parts; kept in `log.dropped`, so that a reader that fell behind knows its position."""
        self.lines = [0]
        """Lines of each part, the newest last; those of deleted parts are added up in `log.dropped-lines`."""
        self.lines_dropped = 0
        self.fd = -1
        self.open()

    def open(self) -> None:
        make_way("log")
        self.fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | SAFELY, 0o600)
        self.size = os.fstat(self.fd).st_size

    def pump(self, source: int) -> bool:
        """Read available output. True if there may be more."""
        try:
            data = os.read(source, 1 << 16)
        except BlockingIOError:
            return False
        self.write(data)
        self.brake(len(data))
        return bool(data)

    def brake(self, size: int) -> None:
        """A task that prints too fast is slowed down: disk and the shim's CPU time are shared."""
        self.window_bytes += size
        if self.window_bytes >= RATE_MAX * WINDOW_S:
            time.sleep(max(self.window_at + WINDOW_S - time.monotonic(), 0.0))
            self.window_bytes, self.window_at = 0, time.monotonic()

    def note(self, text: str) -> None:
        self.write(f"skep: {text}\n".encode())

    def write(self, data: bytes) -> None:
        try:
            if self.size and self.size + len(data) > self.part_bytes:
                self.rotate()
            while data:
                written = os.write(self.fd, data)
                self.size += written
                self.lines[-1] += data.count(b"\n", 0, written)
                data = data[written:]
        except OSError:
            pass  # A full disk loses output, but does not stop the task.

    def rotate(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.dropped += os.lstat(f"log.{self.parts - 1}" if self.parts > 1 else "log").st_size
            if len(self.lines) == self.parts:
                self.lines_dropped += self.lines.pop(0)
            write_whole("log.dropped", str(self.dropped))
            write_whole("log.dropped-lines", str(self.lines_dropped))
        for number in range(self.parts - 1, 0, -1):
            older = f"log.{number}"
            newer = f"log.{number - 1}" if number > 1 else "log"
            if os.path.exists(newer):
                os.replace(newer, older)
        os.close(self.fd)
        self.open()
        self.lines.append(0)
