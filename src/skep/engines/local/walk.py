"""How much of the disk a folder takes, measured a piece at a time. A job may do anything to the folder meanwhile."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
BLOCK = 512
ENTRY_BYTES = 1024
"""What an entry counts for besides its blocks: a file system has a limited number of entries too."""
LINKS_MAX = 100_000


class _Above(NamedTuple):
    """A folder on the way to the present one."""

    identity: tuple[int, int]
    names: list[str]
    """Folders in it that are still to be entered."""


class Walk:
    """Measures the trees below some folders. It has one descriptor open at any depth, follows no link, enters no other
    file system, and ends if a folder on its way was moved; the next walk measures again."""

    def __init__(self, roots: list[Path]) -> None:
        self.bytes = 0
        self._steps: Generator[None, None, None] = self._all(roots)
        self._linked: set[tuple[int, int]] = set()

    def go(self, entries: int) -> int:
        """Go on for this many entries. Returns how many of them are left when the end was reached; 0: it was not."""
        used = 0
        for _ in self._steps:
            used += 1
            if used >= entries:
                return 0
        return entries - used

    def close(self) -> None:
        self._steps.close()

    def _all(self, roots: list[Path]) -> Generator[None, None, None]:
        for root in roots:
            with contextlib.suppress(OSError):  # it is gone, or closed to us
                yield from self._tree(os.open(root, FOLDER))

    def _tree(self, fd: int) -> Iterator[None]:
        device = os.fstat(fd).st_dev
        above: list[_Above] = []
        try:
            names: list[str] = []
            yield from self._read(fd, device, names)
            while names or above:
                if names:
                    inner = open_below(fd, names.pop(), device)
                    if inner < 0:
                        continue
                    above.append(_Above(identity(fd), names))
                    os.close(fd)
                    fd, names = inner, []
                    yield from self._read(fd, device, names)
                else:
                    outer = os.open("..", FOLDER, dir_fd=fd)
                    os.close(fd)
                    fd = outer
                    expected, names = above.pop()
                    if identity(fd) != expected:
                        return
        finally:
            os.close(fd)

    def _read(self, fd: int, device: int, names: list[str]) -> Iterator[None]:
        """Count what is in a folder, and note the folders among it."""
        with os.scandir(fd) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # deleted meanwhile
                    found = entry.stat(follow_symlinks=False)
                    if found.st_dev == device and self._is_new(found):
                        self.bytes += found.st_blocks * BLOCK + ENTRY_BYTES
                    if stat.S_ISDIR(found.st_mode):
                        names.append(entry.name)
                yield

    def _is_new(self, found: os.stat_result) -> bool:
        """A file with several names counts once."""
        if found.st_nlink < 2 or stat.S_ISDIR(found.st_mode) or len(self._linked) >= LINKS_MAX:
            return True
        key = (found.st_dev, found.st_ino)
        is_new = key not in self._linked
        self._linked.add(key)
        return is_new


def open_below(fd: int, name: str, device: int) -> int:
    """A folder in a folder; -1 if it is gone, closed to us, or on another file system."""
    try:
        inner = os.open(name, FOLDER, dir_fd=fd)
    except OSError:
        return -1
    if os.fstat(inner).st_dev == device:
        return inner
    os.close(inner)
    return -1


def identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def measured(*roots: Path) -> int:
    """All at once."""
    walk = Walk(list(roots))
    while not walk.go(1 << 20):
        pass
    return walk.bytes
