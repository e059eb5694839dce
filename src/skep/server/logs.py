"""The log of a task: a row of rotated files that reads as one; and those of several tasks, line by line."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool

from skep.files.untrusted import open_file, read_small
from skep.server.hub import Hub
from skep.server.identity import Refused

CHUNK = 64 * 1024
POLL_S = 0.2
PART_MAX = 64 << 20
"""Of one file: the shim writes no larger ones, but a task may have put one there that has no end."""


MISSED = b"skep: %s bytes of this log were dropped before they were read\n"


class Reader:
    """Reads on where it was, through rotations and on into the log of a next attempt."""

    def __init__(self, list_files: Callable[[], list[Path]], tail: int | None) -> None:
        self._list_files = list_files
        self._file: BinaryIO | None = None
        self._folder: Path | None = None
        self._begin = 0
        """Where our file begins in all that the task wrote."""
        if tail is not None:
            files = list_files()
            self._file = open_tail(files, tail)
            self._note_begin(files)

    def read(self) -> bytes:
        """The next piece; empty when there is none yet."""
        while True:
            chunk = self._file.read(CHUNK) if self._file else b""
            if chunk:
                return chunk
            files = self._list_files()
            following = self._next_file(files)
            # Between the last read and the rotation more may have been written to the old file.
            chunk = self._file.read(CHUNK) if self._file and following else b""
            if chunk:
                return chunk
            opened = open_or_none(following) if following else None
            if opened is None:
                return b""
            end = self._begin + os.fstat(self._file.fileno()).st_size if self._file else None
            before = self._folder
            self.close()
            self._file = opened
            self._note_begin(files)
            if end is not None and before == self._folder and self._begin > end:
                return self._missed(self._begin - end)

    def _missed(self, count: int) -> bytes:
        return b"\n" + MISSED % f"{count:,}".encode()

    def _note_begin(self, files: list[Path]) -> None:
        at = self._place(files)
        if at is not None:
            self._folder = files[0].parent
            self._begin = dropped(self._folder) + sum(size_of(path) for path in files[:at])

    def _place(self, files: list[Path]) -> int | None:
        """Which of the files is ours."""
        ours = os.fstat(self._file.fileno()).st_ino if self._file is not None else None
        return next((at for at, path in enumerate(files) if inode(path) == ours), None)

    def last(self) -> bytes:
        """What is left to say when nothing more will be written."""
        return b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_file(self, files: list[Path]) -> Path | None:
        """The one behind ours; the first where ours is no longer listed."""
        at = self._place(files)
        return next(iter(files if at is None else files[at + 1 :]), None)


class Labelled(Reader):
    """Whole lines, each behind the name of its task.

    Where they are cut depends on what was written alone, so that whoever comes back can count what it had.
    """

    def __init__(self, list_files: Callable[[], list[Path]], tail: int | None, label: str) -> None:
        super().__init__(list_files, tail)
        self._label = label.encode()
        self._rest = b""

    def read(self) -> bytes:
        while chunk := super().read():
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            while len(self._rest) > CHUNK:
                lines, self._rest = [*lines, self._rest[:CHUNK]], self._rest[CHUNK:]
            if lines:
                return b"".join(self._line(piece) for line in lines for piece in pieces_of(line))
        return b""

    def last(self) -> bytes:
        rest, self._rest = self._rest, b""
        return self._line(rest) if rest else b""

    def _missed(self, count: int) -> bytes:
        return b"\n" * bool(self._rest) + super()._missed(count)[1:]

    def _line(self, text: bytes) -> bytes:
        return self._label + text + b"\n"


def pieces_of(line: bytes) -> list[bytes]:
    return [line[at : at + CHUNK] for at in range(0, len(line), CHUNK)] or [line]


def open_tail(files: list[Path], lines: int) -> BinaryIO | None:
    """Open where the last `lines` lines begin."""
    wanted = lines
    for path in reversed(files):
        file = open_or_none(path)
        if file is None:
            continue
        at, found = tail_offset(file, wanted)
        if found >= wanted or path == files[0]:
            file.seek(at)
            return file
        wanted -= found
        file.close()
    return None


def tail_offset(file: BinaryIO, lines: int) -> tuple[int, int]:
    """Where the last `lines` lines begin, and how many there were."""
    first = file.tell()
    end = at = file.seek(0, os.SEEK_END)
    found = 0
    while at > first and lines:
        size = min(CHUNK, at - first)
        at -= size
        file.seek(at)
        block = file.read(size)
        while (cut := block.rfind(b"\n")) >= 0:
            # The newline that ends the file begins no line.
            if at + cut + 1 < end:
                found += 1
                if found == lines:
                    return at + cut + 1, lines
            block = block[:cut]
    return (first, found + 1) if end and lines else (end, 0)


def open_or_none(path: Path) -> BinaryIO | None:
    """At its beginning, or where the last part of it begins that is read."""
    try:
        file = open_file(path)
    except OSError:
        return None
    if file is not None:
        file.seek(max(os.fstat(file.fileno()).st_size - PART_MAX, 0))
    return file


def dropped(folder: Path) -> int:
    """Bytes of the log that are gone, as the shim counts them; what a task put in the place of its count is 0."""
    text = read_small(folder / "log.dropped", 20) or b""
    return int(text) if text.isdigit() else 0


def size_of(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return -1


class FileBudget:
    """How many logs may be open at once, for all who read them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    def take(self, count: int) -> None:
        if self.used + count > self.most:
            raise Refused(503, "too many logs are being read", "try again later, or read one task of the job")
        self.used += count

    def give(self, count: int) -> None:
        self.used -= count


async def log_text(readers: Iterable[Reader]) -> AsyncIterator[bytes]:
    """What is there now. Each is made in its turn: a job has thousands of tasks, a process hundreds of files."""
    them = iter(readers)
    while (reader := await run_in_threadpool(next, them, None)) is not None:
        try:
            while chunk := await run_in_threadpool(reader.read):
                yield chunk
            if rest := reader.last():
                yield rest
        finally:
            reader.close()


async def log_stream(readers: list[Reader], is_over: Callable[[], bool], hub: Hub) -> AsyncIterator[bytes]:
    """As it grows. `is_over`: nothing more will be written. It is asked before the last look, not after."""
    try:
        while True:
            over = await run_in_threadpool(is_over)
            for reader in readers:
                while chunk := await run_in_threadpool(reader.read):
                    yield chunk
                if over and (rest := reader.last()):
                    yield rest
            if over or hub.is_closing:
                return
            await hub.pause(POLL_S)
    finally:
        for reader in readers:
            reader.close()
