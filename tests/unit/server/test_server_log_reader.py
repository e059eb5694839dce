"""Readers of logs that are rotated while they read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from skep.engines.local.disk import Log
from skep.engines.local.logs import log_files
from skep.server.logs import Labelled, Reader


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.chdir(tmp_path)
    return Log(100, 3)


Follow = Callable[..., Reader]


@pytest.fixture
def follow(log: Log, tmp_path: Path) -> Iterator[Follow]:
    """Makes readers of the log, and closes them."""
    with ExitStack() as stack:

        def made(tail: int | None = None, label: str = "") -> Reader:
            files = partial(log_files, tmp_path)
            return stack.enter_context(closing(Labelled(files, tail, label) if label else Reader(files, tail)))

        yield made
        os.close(log.fd)


def read_all(reader: Reader) -> bytes:
    return b"".join(iter(reader.read, b""))


def lines(first: int, count: int) -> bytes:
    return b"".join(b"line %04d\n" % number for number in range(first, first + count))


def write(log: Log, first: int, count: int) -> None:
    for number in range(first, first + count):
        log.write(lines(number, 1))


def test_a_reader_in_time_misses_nothing(log: Log, follow: Follow) -> None:
    reader = follow()
    found = b""
    for number in range(0, 200, 5):
        write(log, number, 5)
        found += read_all(reader)
    assert found == lines(0, 200)


def test_a_reader_that_fell_behind_is_told_how_much_it_missed(log: Log, follow: Follow) -> None:
    reader = follow()
    write(log, 0, 5)
    first = read_all(reader)
    write(log, 5, 200)
    rest = read_all(reader)
    told = re.search(rb"\nskep: ([0-9,]+) bytes of this log were dropped before they were read\n", rest)
    assert told is not None
    missed = int(told[1].replace(b",", b""))
    shown = len(first) + len(rest) - len(told[0])
    assert shown + missed == len(lines(0, 205))
    assert rest.endswith(lines(204, 1))
    write(log, 205, 3)
    assert read_all(reader) == lines(205, 3)


def test_one_that_begins_late_missed_nothing(log: Log, follow: Follow) -> None:
    write(log, 0, 200)
    for tail in (None, 3):
        assert b"skep:" not in read_all(follow(tail))


def test_several_tasks_are_told_in_lines_of_their_own(log: Log, follow: Follow) -> None:
    reader = follow(label="w-0 | ")
    write(log, 0, 5)
    read_all(reader)
    write(log, 5, 200)
    told = [line for line in read_all(reader).splitlines() if b"dropped" in line]
    assert len(told) == 1
    assert re.fullmatch(rb"w-0 \| skep: [0-9,]+ bytes of this log were dropped before they were read", told[0])


@pytest.mark.parametrize("forged", [b"-5", b"\xff", b"1e9", b"9" * 100, b""])
def test_a_forged_count_hurts_nobody(log: Log, follow: Follow, tmp_path: Path, forged: bytes) -> None:
    reader = follow()
    write(log, 0, 5)
    read_all(reader)
    write(log, 5, 200)
    (tmp_path / "log.dropped").write_bytes(forged)
    assert read_all(reader).endswith(lines(204, 1))
