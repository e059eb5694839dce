"""Ended jobs in one small file each.

An ended job needs neither fifo nor lock, and its empty folders and small files take a block of the disk each. So
`jobs/<job>/` becomes `jobs/<job>.packed`: what the shims and the engine have written, compressed. It is durable before
the first of these files is removed, and nothing else is removed: what the job itself has left stays where it is.
Every reader of the job's files unpacks them first. A job that runs as the server may have put anything in their
places, so every step is taken from an open folder, follows no link, and uses known names only.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from skep.engines.local.walk import BLOCK, FOLDER
from skep.files.untrusted import CAREFULLY, status_of

ENDING = ".packed"
SIZE_MAX = 1 << 20
"""The most bytes of the files of one job that are packed. The blocks of a job with more hardly matter."""
READ_S = 600.0
"""A job that was read is not packed for this long."""
READS_KEPT = 10_000
LAUNCH = "launch.json"
EXIT = "exit.json"
KEPT = (
    "task.json",
    EXIT,
    "shim.err",
    "criu.log",
    "podman.log",
    "log.dropped",
    "log",
    *(f"log.{number}" for number in range(1, 10)),
)
USELESS = ("control", "lock", "pid", "main", "suspended", "env", "contained", "hooks/skep.json")
"""Files that matter only while a task runs."""
OWN = ("checkpoint", "work")

Files = dict[str, bytes]
"""By path below the job's folder."""


class TooLarge(Exception):
    """The files of a job are not worth packing."""


class Packed:
    def __init__(self, jobs: Path) -> None:
        self.jobs = jobs
        self._lock = threading.RLock()
        self._read_at_s: dict[str, float] = {}

    def path(self, name: str) -> Path:
        return self.jobs / f"{name}{ENDING}"

    def has(self, name: str) -> bool:
        return status_of(self.path(name)) is not None

    def size(self, name: str) -> int:
        """What its file takes of the disk."""
        found = status_of(self.path(name))
        return found.st_blocks * BLOCK if found is not None else 0

    def pack(self, name: str) -> bool:
        """Pack the folder of an ended job, by its name. False if it is being read or was not packed for another
        reason."""
        with self._lock:
            if time.monotonic() - self._read_at_s.pop(name, -READ_S) < READ_S:
                return False
            try:
                with folder_at(None, str(self.jobs)) as jobs, folder_at(jobs, name) as job:
                    files = read_job(job)
                    if files is None:
                        return False
                    self._keep(name, files)
                    remove(job, files)
                    os.rmdir(name, dir_fd=jobs)
            except TooLarge:
                return False
            except OSError:
                return self.has(name)  # The job has left something of its own, or the folder was replaced.
            return True

    def note_read(self, name: str) -> None:
        with self._lock:
            if len(self._read_at_s) > READS_KEPT:
                self._read_at_s.clear()
            self._read_at_s[name] = time.monotonic()

    def unpack(self, name: str) -> None:
        """Before the job's files are read. They stay as they are for a while, and the pack too."""
        with self._lock:
            if not self.has(name):
                return
            self.note_read(name)
            with folder_at(None, str(self.jobs)) as jobs:
                make_folders(jobs, name)
                with folder_at(jobs, name) as job:
                    for path, content in self._read(name).items():
                        write_missing(job, path, content)

    def _keep(self, name: str, files: Files) -> None:
        """Together with what was packed before, if the job was started again after a restored backup."""
        known = self._read(name)
        if known | files != known:
            content = encode(known | files)
            if len(content) > SIZE_MAX:
                raise TooLarge
            write_durable(self.path(name), content)

    def _read(self, name: str) -> Files:
        try:
            fd = os.open(self.path(name), os.O_RDONLY | CAREFULLY)
        except FileNotFoundError:
            return {}
        with open(fd, "rb") as file:
            return decode(file.read(SIZE_MAX + 1))


def read_job(job: int) -> Files | None:
    """What can be packed; None if a task has not ended."""
    files: Files = {}
    for launch, task in tasks_in(job):
        with folder_at(job, f"{launch}/{task}") as at:
            for name in KEPT if task else (LAUNCH,):
                content = read_file(at, name, SIZE_MAX - sum(map(len, files.values())))
                if content is not None:
                    files[f"{launch}/{task}/{name}" if task else f"{launch}/{name}"] = content
                elif name == EXIT:
                    return None
    return files


def tasks_in(job: int) -> list[tuple[str, str]]:
    """(launch, task) of every task, and (launch, "") of every launch after its tasks."""
    found = []
    for launch in sorted(name for name in os.listdir(job) if name.isascii() and name.isdigit()):
        with folder_at(job, launch) as inner:
            found += [(launch, name) for name in sorted(os.listdir(inner)) if is_folder(inner, name)]
        found.append((launch, ""))
    return found


def remove(job: int, files: Files) -> None:
    """Remove what is packed or of no use, and folders that are empty then."""
    for launch, task in tasks_in(job):
        with folder_at(job, launch) as inner:
            if not task:
                drop(inner, *([LAUNCH] if f"{launch}/{LAUNCH}" in files else []))
                continue
            with folder_at(inner, task) as at:
                drop(at, *USELESS, *(name for name in KEPT if f"{launch}/{task}/{name}" in files))
                drop_folder(at, "hooks")
                drop_folder(at, "own")
            drop_folder(inner, task)
    for name in (*os.listdir(job), *OWN):
        drop_folder(job, name)


@contextlib.contextmanager
def folder_at(at: int | None, name: str) -> Iterator[int]:
    """The folder of this name in an open folder, or of this absolute path. A link in place of one of its two last parts
    is not followed."""
    outer, _, inner = name.rpartition("/") if at is not None else ("", "", name)
    with contextlib.ExitStack() as stack:
        for part in filter(None, (outer, inner)):
            at = os.open(part, FOLDER, dir_fd=at)
            stack.callback(os.close, at)
        assert at is not None
        yield at


def is_folder(at: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)


def read_file(at: int, name: str, size_max: int) -> bytes | None:
    """None if there is no such file."""
    try:
        fd = os.open(name, os.O_RDONLY | CAREFULLY, dir_fd=at)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        content = file.read(size_max + 1)
        if len(content) > size_max:
            raise TooLarge
        return content


def drop(at: int, *names: str) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=at)


def drop_folder(at: int, name: str) -> None:
    """If it is empty."""
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=at)


def write_missing(job: int, path: str, content: bytes) -> None:
    """Appears whole or not at all; a file that is there stays."""
    folder, _, name = path.rpartition("/")
    make_folders(job, *folder.split("/"))
    with folder_at(job, folder) as at:
        if exists(at, name):
            return
        aside = f".{name}.unpacked"
        drop(at, aside)
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFULLY, 0o600, dir_fd=at)
        with open(fd, "wb") as file:
            file.write(content)
        os.rename(aside, name, src_dir_fd=at, dst_dir_fd=at)


def make_folders(at: int, first: str, *rest: str) -> None:
    """One in another."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(first, 0o700, dir_fd=at)
    if rest:
        with folder_at(at, first) as inner:
            make_folders(inner, *rest)


def exists(at: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def write_durable(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFULLY, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    with folder_at(None, str(path.parent)) as folder:
        os.fsync(folder)


def encode(files: Files) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(files), 6)


def decode(content: bytes) -> Files:
    """Nothing of a pack that is damaged or not ours."""
    try:
        plain = zlib.decompressobj().decompress(content, 4 * SIZE_MAX)
        files = msgspec.msgpack.decode(plain, type=Files)
    except (zlib.error, msgspec.MsgspecError):
        return {}
    return {path: each for path, each in files.items() if is_ours(path.split("/"))}


def is_ours(parts: list[str]) -> bool:
    launch, *rest = parts
    if not (launch.isascii() and launch.isdigit()) or any(part in ("", ".", "..") for part in rest):
        return False
    return rest == [LAUNCH] or (len(rest) == 2 and rest[1] in KEPT)
