"""Lines of logs that contain a text: bounded in what is read and in what is found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from skep.server.logs import open_or_none

READ_MAX = 64 << 20
"""Bytes of logs that one search reads."""
LINE_MAX = 64 * 1024
"""A longer line is searched in pieces."""
SHOWN_MAX = 1000
"""Characters of a line that are shown."""


def search(logs: Iterable[tuple[str, int, list[Path]]], text: str, limit: int) -> dict[str, Any]:
    """`logs` has the task, the attempt and the files of each, oldest first."""
    wanted = text.lower()
    found: list[dict[str, Any]] = []
    left = READ_MAX
    for task, attempt, files in logs:
        number = 0
        for line, is_start in lines_of(files):
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


def lines_of(files: list[Path]) -> Iterator[tuple[bytes, bool]]:
    """Lines, or pieces of long ones; whether a line begins here."""
    is_start = True
    for path in files:
        file = open_or_none(path)
        if file is None:
            continue
        with file:
            while line := file.readline(LINE_MAX):
                yield line, is_start
                is_start = line.endswith(b"\n")


def around(line: str, wanted: str) -> str:
    """A long line is cut, but not where the text is."""
    if len(line) <= SHOWN_MAX:
        return line
    at = max(line.lower().find(wanted) - SHOWN_MAX // 4, 0)
    return ("…" if at else "") + line[at : at + SHOWN_MAX] + ("…" if at + SHOWN_MAX < len(line) else "")
