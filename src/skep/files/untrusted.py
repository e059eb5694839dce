"""Files that a job may have written, replaced or removed.

Every open here is non-blocking and follows no link; every read takes regular files only and is limited in size.
Anything else counts as absent, content that cannot be decoded as damaged (None). An OSError is raised only for
conditions that may change: no descriptors, no memory, a disk error, permissions.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from skep.files.descriptors import Reserve

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
