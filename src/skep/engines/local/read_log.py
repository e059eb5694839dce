"""The log of a task: a sequence of rotated files that reads as one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from skep.files.untrusted import open_file, read_small

CHUNK = 64 * 1024
PART_MAX = 64 << 20
"""The most bytes of one file: the shim writes no larger ones, but a task may have put an endless one there."""
BLOCK = 1 << 20
BYTES_DROPPED, LINES_DROPPED = "log.dropped", "log.dropped-lines"
MISSED = b"skep: %s bytes of this log were dropped before they were read\n"


class Reader:
    """Continues reading through rotations and into the log of the next launch."""

    def __init__(self, list_files: Callable[[], list[Path]], tail: int | None) -> None:
        self._list_files = list_files
        self._file: BinaryIO | None = None
        self._folder: Path | None = None
        self._begin = 0
        """Where our file begins in the whole output of the task."""
        self._is_in_line = False
        """True if the last piece did not end a line."""
        self._lines: int | None = None
        """Lines before the next piece; None: not counted, as most readers do not ask."""
        if tail is not None:
            files = list_files()
            self._file = open_tail(files, tail)
            self._note_begin(files)

    def read(self) -> bytes:
        """The next piece; empty if there is none yet."""
        if chunk := self._read():
            self._is_in_line = not chunk.endswith(b"\n")
            if self._lines is not None:
                self._lines += chunk.count(b"\n")
        return chunk

    def line(self) -> int:
        if self._lines is None:
            self._lines = self._count_lines()
        return self._lines + 1

    def _count_lines(self) -> int:
        files = self._list_files()
        at = self._place(files)
        found = dropped(files[0].parent, LINES_DROPPED) if files else 0
        if at is not None and self._file is not None:
            found += sum(count_lines(path) for path in files[:at]) + count_lines(files[at], self._file.tell())
        return found

    def size(self) -> int:
        return sum(min(size_of(path), PART_MAX) for path in self._list_files())

    def _read(self) -> bytes:
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
            note = b""
            if end is not None and before == self._folder and self._begin > end:
                note = b"\n" * self._is_in_line + MISSED % f"{self._begin - end:,}".encode()
            if self._lines is not None and (note or before != self._folder):
                self._lines = self._count_lines() - note.count(b"\n")
            if note:
                return note

    def _note_begin(self, files: list[Path]) -> None:
        at = self._place(files)
        if at is not None:
            self._folder = files[0].parent
            self._begin = dropped(self._folder) + sum(size_of(path) for path in files[:at])

    def _place(self, files: list[Path]) -> int | None:
        """Which of the files is ours."""
        ours = os.fstat(self._file.fileno()).st_ino if self._file is not None else None
        return next((at for at, path in enumerate(files) if inode(path) == ours), None)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_file(self, files: list[Path]) -> Path | None:
        """The next file after ours; the first if ours is no longer listed."""
        at = self._place(files)
        return next(iter(files if at is None else files[at + 1 :]), None)


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
    """At its beginning, or where the part that is read begins."""
    try:
        file = open_file(path)
    except OSError:
        return None
    if file is not None:
        file.seek(max(os.fstat(file.fileno()).st_size - PART_MAX, 0))
    return file


def dropped(folder: Path, what: str = BYTES_DROPPED) -> int:
    """Deleted bytes or lines of the log, as counted by the shim; an invalid count, which a task may have written, is
    0."""
    text = read_small(folder / what, 20) or b""
    return int(text) if text.isdigit() else 0


def count_lines(path: Path, end: int | None = None) -> int:
    """Lines that end in the part of a file that is read, or before `end`."""
    file = open_or_none(path)
    if file is None:
        return 0
    found = 0
    with file:
        while chunk := file.read(BLOCK if end is None else max(min(BLOCK, end - file.tell()), 0)):
            found += chunk.count(b"\n")
    return found


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
