"""Logs as they are sent: of one task or of several, line by line, complete or while they grow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

from starlette.concurrency import run_in_threadpool

from skep.core.ports import LogReader
from skep.server.hub import Hub
from skep.server.identity import Forbidden

CHUNK = 64 * 1024
POLL_S = 0.2


class Text(LogReader, Protocol):
    def last(self) -> bytes:
        """The rest to send when nothing more will be written."""


class PlainLog:
    """A log in its original form."""

    def __init__(self, log: LogReader) -> None:
        self.log = log
        self.read = log.read
        self.close = log.close

    def last(self) -> bytes:
        return b""


class LabelledLog:
    """Whole lines, each after the name of its task.

    Where they are cut depends only on what was written, so that a client that reconnects can count what it had.
    """

    def __init__(self, log: LogReader, label: str) -> None:
        self.log = log
        self.close = log.close
        self._label = label.encode()
        self._rest = b""

    def read(self) -> bytes:
        while chunk := self.log.read():
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            while len(self._rest) > CHUNK:
                lines, self._rest = [*lines, self._rest[:CHUNK]], self._rest[CHUNK:]
            if lines:
                return b"".join(self._line(piece) for line in lines for piece in pieces_of(line))
        return b""

    def last(self) -> bytes:
        rest, self._rest = self._rest, b""
        return self._line(rest) if rest else b""

    def _line(self, text: bytes) -> bytes:
        return self._label + text + b"\n"


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
