"""Readers of logs that are rotated while they read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from skep.core.ports import LogReader
from skep.engines.local.disk import LogFile
from skep.engines.local.folder import log_files
from skep.engines.local.read_log import Reader, tail_offset
from skep.server.logs import LabelledLog


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogFile:
    monkeypatch.chdir(tmp_path)
    return LogFile(100, 3)


Follow = Callable[..., LogReader]


@pytest.fixture
def follow(log: LogFile, tmp_path: Path) -> Iterator[Follow]:
    """Makes readers of the log, and closes them."""
    with ExitStack() as stack:

        def made(tail: int | None = None, label: str = "") -> LogReader:
            files = partial(log_files, tmp_path)
            return stack.enter_context(
                closing(LabelledLog(Reader(files, tail), label) if label else Reader(files, tail))
            )

        yield made
        os.close(log.fd)


def read_all(reader: LogReader) -> bytes:
    return b"".join(iter(reader.read, b""))


def lines(first: int, count: int) -> bytes:
    return b"".join(b"line %04d\n" % number for number in range(first, first + count))


def write(log: LogFile, first: int, count: int) -> None:
    for number in range(first, first + count):
        log.write(lines(number, 1))


def test_a_reader_in_time_misses_nothing(log: LogFile, follow: Follow) -> None:
    reader = follow()
    found = b""
    for number in range(0, 200, 5):
        write(log, number, 5)
        found += read_all(reader)
    assert found == lines(0, 200)


def test_a_reader_that_fell_behind_is_told_how_much_it_missed(log: LogFile, follow: Follow) -> None:
    reader = follow()
    write(log, 0, 5)
    first = read_all(reader)
    write(log, 5, 200)
    rest = read_all(reader)
    told = re.search(rb"skep: ([0-9,]+) bytes of this log were dropped before they were read\n", rest)
    assert told is not None
    missed = int(told[1].replace(b",", b""))
    shown = len(first) + len(rest) - len(told[0])
    assert shown + missed == len(lines(0, 205))
    assert rest.endswith(lines(204, 1))
    write(log, 205, 3)
    assert read_all(reader) == lines(205, 3)


def test_one_that_begins_late_missed_nothing(log: LogFile, follow: Follow) -> None:
    write(log, 0, 200)
    for tail in (None, 3):
        assert b"skep:" not in read_all(follow(tail))


def test_several_tasks_are_told_in_lines_of_their_own(log: LogFile, follow: Follow) -> None:
    reader = follow(label="w-0 | ")
    write(log, 0, 5)
    read_all(reader)
    write(log, 5, 200)
    told = [line for line in read_all(reader).splitlines() if b"dropped" in line]
    assert len(told) == 1
    assert re.fullmatch(rb"w-0 \| skep: [0-9,]+ bytes of this log were dropped before they were read", told[0])


@pytest.mark.parametrize("tail", [None, 3, 12])
def test_lines_keep_their_numbers_when_old_parts_are_dropped(log: LogFile, follow: Follow, tail: int | None) -> None:
    write(log, 0, 200)
    reader = follow(tail)
    number = reader.line()
    text = read_all(reader)
    assert text.splitlines()[0] == b"line %04d" % (number - 1)  # they are numbered from 0
    assert reader.line() == 201
    write(log, 200, 200)  # it falls behind
    rest = read_all(reader)
    assert (rest.splitlines()[-1], reader.line()) == (b"line 0399", 401)


@pytest.mark.parametrize("forged", [b"-5", b"\xff", b"1e9", b"9" * 100, b""])
def test_a_forged_count_hurts_nobody(log: LogFile, follow: Follow, tmp_path: Path, forged: bytes) -> None:
    reader = follow()
    write(log, 0, 5)
    read_all(reader)
    write(log, 5, 200)
    (tmp_path / "log.dropped").write_bytes(forged)
    assert read_all(reader).endswith(lines(204, 1))


def test_a_rotated_log_reads_as_one(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("log.2", "log.1", "log")]
    for path, text in zip(files, ("1\n2\n", "3\n4\n", "5\n6"), strict=True):
        path.write_text(text)
    whole = "1\n2\n3\n4\n5\n6"
    for tail, text in ((None, whole), (0, ""), (1, "6"), (2, "5\n6"), (3, "4\n5\n6"), (5, whole[2:]), (99, whole)):
        with closing(Reader(lambda: files, tail)) as reader:
            assert read_all(reader).decode() == text


def test_a_reader_goes_on_into_the_next_attempt(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("a\n")
    files = [first]
    reader = Reader(lambda: files, None)
    assert (reader.read(), reader.read()) == (b"a\n", b"")
    second.write_text("b\n")
    files[:] = [second]
    assert (reader.read(), reader.read()) == (b"b\n", b"")
    reader.close()


def test_what_is_written_just_before_a_rotation_is_read(tmp_path: Path) -> None:
    log, old = tmp_path / "log", tmp_path / "log.1"
    log.write_text("a\n")

    def rotating() -> list[Path]:
        if log.read_text() == "a\n":
            with log.open("a") as file:
                file.write("late\n")
            log.rename(old)
            log.write_text("b\n")
        return [old, log]

    reader = Reader(lambda: [log], None)
    assert reader.read() == b"a\n"
    reader._list_files = rotating
    assert [reader.read() for _ in range(3)] == [b"late\n", b"b\n", b""]
    reader.close()


@pytest.mark.parametrize("ending", ["", "\n"])
def test_tail_of_long_files(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "log"
    lines = [f"line {number}" + "." * (number % 1000) for number in range(5000)]
    path.write_text("\n".join(lines) + ending)
    for count in (1, 2, 100, 4999, 5000):
        with path.open("rb") as file:
            at, found = tail_offset(file, count)
            file.seek(at)
            assert file.read().decode().splitlines() == lines[-count:]
            assert found == count
