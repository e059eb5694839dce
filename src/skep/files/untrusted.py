"""Files that a job may have written, replaced or removed, and the descriptors to open them.

Every open here is non-blocking and follows no link; every read takes regular files only and is limited in size.
Anything else counts as absent, content that cannot be decoded as damaged (None). An OSError is raised only for
conditions that may change: no descriptors, no memory, a disk error, permissions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import stat
import struct
import threading
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from skep.core.errors import SkepError

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


SMALL = 1 << 16
KEYS_MAX = 100
TEXT_MAX = 1000
NUMBER_MAX = 1 << 53
"""Beyond it not every reader of JSON keeps a number exact."""
NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.ENAMETOOLONG}
CAREFULLY = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_FLOCK = "hhqqi"
T = TypeVar("T")

reserve = Reserve()


def open_as(path: str | Path, flags: int, is_kind: Any) -> int | None:
    """A descriptor; None if there is nothing of this kind."""
    try:
        fd = reserve.open(path, flags | CAREFULLY)
    except OSError as error:
        if error.errno in NOT_THERE or (error.errno == errno.EISDIR):
            return None
        raise
    if is_kind(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def open_file(path: str | Path) -> BinaryIO | None:
    fd = open_as(path, os.O_RDONLY, stat.S_ISREG)
    return None if fd is None else open(fd, "rb")


def is_file(path: str | Path) -> bool:
    """True if there is a regular file. Raises if that cannot be determined."""
    return (found := status_of(path)) is not None and stat.S_ISREG(found.st_mode)


def status_of(path: str | Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno in NOT_THERE:
            return None
        raise


def read_small(path: str | Path, size_max: int = SMALL) -> bytes | None:
    """The content; None if there is no regular file or it is larger than `size_max`."""
    fd = open_as(path, os.O_RDONLY, stat.S_ISREG)
    if fd is None:
        return None
    try:
        size = os.fstat(fd).st_size
        return os.read(fd, size) if size <= size_max else None
    finally:
        os.close(fd)


def decode_as(content: bytes | None, kind: type[T]) -> T | None:
    """JSON of this type; None if it is anything else."""
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def read_values(path: str | Path) -> dict[str, str | int | float | bool | None]:
    """The plain values of a JSON object that can be shown and passed on."""
    found: dict[str, Any] = decode_as(read_small(path), dict[str, Any]) or {}
    kept = [(key, value) for key, value in found.items() if is_plain(key) and is_plain(value)]
    return dict(kept[:KEYS_MAX])


def is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= TEXT_MAX
    if isinstance(value, int | float):
        return -NUMBER_MAX <= value <= NUMBER_MAX
    return value is None


def write_line(fifo: str | Path, line: str) -> bool:
    """True if there is a fifo whose reader takes the line now."""
    fd = open_as(fifo, os.O_WRONLY, stat.S_ISFIFO)
    if fd is None:
        return False
    try:
        return os.write(fd, line.encode() + b"\n") > 0
    except (BlockingIOError, BrokenPipeError):
        return False
    finally:
        os.close(fd)


def lock_holder(path: str | Path) -> int:
    """The process that holds the lock, 0 if none does. It only queries the lock; taking it would interfere."""
    fd = open_as(path, os.O_RDWR, stat.S_ISREG)
    if fd is None:
        return 0
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        return 0 if kind == fcntl.F_UNLCK else int(pid)
    finally:
        os.close(fd)


class Gone(SkepError):
    """The open files are not those that the next start will find."""


class Anchor:
    """Detects that open files were deleted or replaced.

    Writes into a file that was deleted, or whose folder was replaced or unmounted, are lost without an error: the file
    exists without a name until it is closed.
    """

    def __init__(self, paths: list[Path]) -> None:
        self._known = {path: identity(path) for path in paths}

    def check(self) -> None:
        for path, known in self._known.items():
            if identity(path) != known:
                raise Gone(f"{path} was deleted, replaced or unmounted while it was in use")


def identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
