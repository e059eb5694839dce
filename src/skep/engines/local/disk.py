"""Files that are written whole or not at all, and logs in parts. Standard library only: the shim uses this too."""

from __future__ import annotations

import contextlib
import os


def write_whole(path: str, text: str, *, is_durable: bool = False) -> None:
    """A reader sees all of it or nothing."""
    aside = f"{path}.new"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
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


def remove_folder(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)


class Log:
    """What the task prints: `log`, and older parts in `log.1`, `log.2`, …"""

    def __init__(self, part_bytes: int, parts: int) -> None:
        self.part_bytes = part_bytes
        self.parts = parts
        self.size = 0
        self.fd = -1
        self.open()

    def open(self) -> None:
        self.fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.fd).st_size

    def pump(self, source: int) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(source, 1 << 16)
        except BlockingIOError:
            return False
        self.write(data)
        return bool(data)

    def note(self, text: str) -> None:
        self.write(f"skep: {text}\n".encode())

    def write(self, data: bytes) -> None:
        try:
            if self.size and self.size + len(data) > self.part_bytes:
                self.rotate()
            while data:
                written = os.write(self.fd, data)
                self.size += written
                data = data[written:]
        except OSError:
            pass  # A full disk costs output, never the task.

    def rotate(self) -> None:
        for number in range(self.parts - 1, 0, -1):
            older = f"log.{number}"
            newer = f"log.{number - 1}" if number > 1 else "log"
            if os.path.exists(newer):
                os.replace(newer, older)
        os.close(self.fd)
        self.open()
