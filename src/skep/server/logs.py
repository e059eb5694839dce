"""Logs as they are sent: of one task or of several, line by line, complete or while they grow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

import msgspec
from starlette.concurrency import run_in_threadpool

from skep.core.ports import LogReader
from skep.server.hub import Hub
from skep.server.identity import Forbidden

CHUNK = 64 * 1024
POLL_S = 0.2


class Text(Protocol):
    """A log in the form in which it is sent."""

    def read(self) -> bytes:
        """The next piece; empty if there is no more at present."""

    def last(self) -> bytes:
        """The rest to send when nothing more will be written."""

    def close(self) -> None: ...


class PlainLog:
    """A log in its original form."""

    def __init__(self, log: LogReader) -> None:
        self.log = log
        self.read = log.read
        self.close = log.close

    def last(self) -> bytes:
        return b""


class LineRange(msgspec.Struct, frozen=True):
    """Lines by number, from `first`; those that are not kept any more are left out."""

    first: int = 1
    count: int | None = None

    def has(self, number: int) -> bool:
        return number >= self.first and (self.count is None or number < self.first + self.count)


class LabelledLog:
    """Whole lines, each after a label, which is the name of its task, and with `lines` after its number.

    Where they are cut depends only on what was written, so that a client that reconnects can count what it had.
    """

    def __init__(self, log: LogReader, label: str, lines: LineRange | None = None) -> None:
        self.log = log
        self.close = log.close
        self._label = label.encode()
        self._lines = lines
        self._rest = b""
        self._number = 0
        """Of the line that the rest begins."""

    def read(self) -> bytes:
        while chunk := self._chunk():
            found = []
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                found += [self._line(piece) for piece in pieces_of(line)]
                self._number += 1
            while len(self._rest) > CHUNK:
                found.append(self._line(self._rest[:CHUNK]))
                self._rest = self._rest[CHUNK:]
            if text := b"".join(found):
                return text
        return b""

    def _chunk(self) -> bytes:
        """The next piece; pieces before the wanted lines are passed over quickly, those behind are not read."""
        if self._lines is None:
            return self.log.read()
        while True:
            line = self.log.line()
            if self._lines.count is not None and line >= self._lines.first + self._lines.count:
                self._rest = b""
                return b""
            chunk = self.log.read()
            if not chunk or line + chunk.count(b"\n") >= self._lines.first:
                self._number = self._number if self._rest else line
                return chunk
            self._rest = b""

    def last(self) -> bytes:
        rest, self._rest = self._rest, b""
        return self._line(rest) if rest else b""

    def _line(self, text: bytes) -> bytes:
        if self._lines is None:
            return self._label + text + b"\n"
        return b"%s%d %s\n" % (self._label, self._number, text) if self._lines.has(self._number) else b""


def pieces_of(line: bytes) -> list[bytes]:
    return [line[at : at + CHUNK] for at in range(0, len(line), CHUNK)] or [line]


class FileBudget:
    """How many logs may be open at once, for all readers."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    def take(self, count: int) -> None:
        if self.used + count > self.most:
            raise Forbidden(503, "too many logs are being read", "try again later, or read one task of the job")
        self.used += count

    def give(self, count: int) -> None:
        self.used -= count


async def log_text(readers: Iterable[Text]) -> AsyncIterator[bytes]:
    """The present content. Readers are opened one by one: a job may have thousands of tasks, a process hundreds of
    files."""
    them = iter(readers)
    while (reader := await run_in_threadpool(next, them, None)) is not None:
        try:
            while chunk := await run_in_threadpool(reader.read):
                yield chunk
            if rest := reader.last():
                yield rest
        finally:
            reader.close()


async def log_stream(readers: list[Text], is_over: Callable[[], bool], hub: Hub) -> AsyncIterator[bytes]:
    """The log as it grows. `is_over`: nothing more will be written. It is evaluated before the last read, not after."""
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
