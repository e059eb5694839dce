"""Lines of logs that contain a text, the newest first, with limits on what is searched and found."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing

from skep.core.ports import LogReader
from skep.service.values import Json

READ_MAX = 64 << 20
"""The most bytes that one search looks through: the latest, in equal parts of all logs."""
COUNT_MAX = 512 << 20
"""The most bytes of logs that are read to count their lines; logs beyond that are not searched."""
LINE_MAX = 64 * 1024
"""A longer line is searched in pieces."""
SHOWN_MAX = 1000
"""The most characters of a line that are shown."""


def search(logs: Iterable[tuple[str, int, LogReader]], count: int, text: str, limit: int) -> Json:
    """`logs` has the task, the attempt and the reader of each of `count` logs, which are opened one by one."""
    wanted, each_max = text.lower(), READ_MAX // max(count, 1)
    found: list[deque[Json]] = []
    searched = size = counted = 0
    is_cut = False
    for task, attempt, log in logs:
        kept = log.size()
        size += kept
        counted += kept
        if counted > COUNT_MAX:
            log.close()
            continue
        latest: deque[Json] = deque(maxlen=limit)
        for line, number in lines_of(log, kept - each_max):
            searched += len(line)
            shown = line.decode("utf-8", "replace")
            if wanted in shown.lower():
                is_cut |= len(latest) == limit
                latest.append(
                    {"task": task, "attempt": attempt, "line": number, "text": around(shown.rstrip(), wanted)}
                )
        found.append(latest)
    matches = in_turn(found)
    return {
        "matches": matches[:limit],
        "is_cut": is_cut or len(matches) > limit,
        "searched_bytes": min(searched, size),
        "bytes": size,
    }


def in_turn(found: list[deque[Json]]) -> list[Json]:
    """The newest of each log, then the one before it of each, …"""
    matches = []
    while left := [each for each in found if each]:
        matches += [each.pop() for each in left]
    return matches


def lines_of(log: LogReader, skipped: int) -> Iterator[tuple[bytes, int]]:
    """Lines, or pieces of long ones, and their numbers, without about as many bytes at the beginning. The log is closed
    at the end."""
    with closing(log):
        number, rest = log.line(), b""
        while chunk := log.read():
            if skipped >= len(chunk):
                skipped -= len(chunk)
                number += chunk.count(b"\n")
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line + b"\n", number
                number += 1
            if len(rest) >= LINE_MAX:
                yield rest, number
                rest = b""
    if rest:
        yield rest, number


def around(line: str, wanted: str) -> str:
    """A long line is shortened, but not where the text is."""
    if len(line) <= SHOWN_MAX:
        return line
    at = max(line.lower().find(wanted) - SHOWN_MAX // 4, 0)
    return ("…" if at else "") + line[at : at + SHOWN_MAX] + ("…" if at + SHOWN_MAX < len(line) else "")
