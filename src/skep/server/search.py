"""Lines of logs that contain a text, with limits on what is read and found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from skep.core.ports import LogReader
from skep.service.values import Json

READ_MAX = 64 << 20
"""The most bytes of logs that one search reads."""
LINE_MAX = 64 * 1024
"""A longer line is searched in pieces."""
SHOWN_MAX = 1000
"""The most characters of a line that are shown."""


def search(logs: Iterable[tuple[str, int, LogReader]], text: str, limit: int) -> Json:
    """`logs` has the task, the attempt and the reader of each."""
    wanted = text.lower()
    found: list[Json] = []
    left = READ_MAX
    for task, attempt, log in logs:
        number = 0
        for line, is_start in lines_of(log):
            left -= len(line)
            number += is_start
            shown = line.decode("utf-8", "replace")
            if wanted in shown.lower():
                if len(found) == limit:
                    return {"matches": found, "is_cut": True}
                found.append({"task": task, "attempt": attempt, "line": number, "text": around(shown.rstrip(), wanted)})
            if left < 0:
                return {"matches": found, "is_cut": True}
    return {"matches": found, "is_cut": False}


def lines_of(log: LogReader) -> Iterator[tuple[bytes, bool]]:
    """Lines, or pieces of long ones, and whether a line begins here. The log is closed at the end."""
    is_start, rest = True, b""
    with closing(log):
        while chunk := log.read():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line + b"\n", is_start
                is_start = True
            if len(rest) >= LINE_MAX:
                yield rest, is_start
                is_start, rest = False, b""
    if rest:
        yield rest, is_start


def around(line: str, wanted: str) -> str:
    """A long line is shortened, but not where the text is."""
    if len(line) <= SHOWN_MAX:
        return line
    at = max(line.lower().find(wanted) - SHOWN_MAX // 4, 0)
    return ("…" if at else "") + line[at : at + SHOWN_MAX] + ("…" if at + SHOWN_MAX < len(line) else "")
