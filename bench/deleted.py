"""How many lines has a change deleted for good? `python -m bench.deleted COMMIT [FOLDER]` compares with today's files.

Lines that were removed are of three kinds, reported apart. *Moved*: the same line, whatever its indentation, was added
somewhere else in the repository. *Rewritten*: other lines stand in its place. The rest is *deleted*. Short lines that
many files have (`)`, `return None`) count as moved as often as they were added. Blank lines do not count.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Hunk(NamedTuple):
    """Lines without their indentation."""

    removed: list[str]
    added: list[str]


class Removed(NamedTuple):
    moved: int
    rewritten: int
    deleted: int


def hunks_in(diff: str) -> list[Hunk]:
    """Of a diff without context."""
    found: list[Hunk] = []
    is_inside = False
    for line in diff.splitlines():
        if line.startswith("@@"):
            found.append(Hunk([], []))
        is_inside = line.startswith("@@") or (is_inside and not line.startswith("diff --git "))
        if is_inside and line[:1] in ("+", "-") and line[1:].strip():
            (found[-1].added if line[0] == "+" else found[-1].removed).append(line[1:].strip())
    return found


def count(hunks: list[Hunk], anywhere: list[Hunk]) -> Removed:
    """`anywhere`: all hunks of the repository, for lines that have moved."""
    free = Counter(line for hunk in anywhere for line in hunk.added)
    moved = rewritten = deleted = 0
    for hunk in hunks:
        lost = 0
        for line in hunk.removed:
            if free[line] > 0:
                free[line] -= 1
                moved += 1
            else:
                lost += 1
        rewritten += min(lost, len(hunk.added))
        deleted += max(lost - len(hunk.added), 0)
    return Removed(moved, rewritten, deleted)


def main() -> None:
    def diff(folder: str) -> list[Hunk]:
        words = ["git", "diff", "--no-renames", "--no-ext-diff", "--unified=0", since, "--", folder]
        ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, errors="replace", check=True)
        return hunks_in(ran.stdout)

    since, folder = (*sys.argv[1:], "src")[:2]
    hunks = diff(folder)
    found = count(hunks, diff("."))
    print(
        f"{folder} since {since}: {found.deleted:,} lines deleted, {found.rewritten:,} rewritten, {found.moved:,} moved"
    )
    print(f"{sum(len(hunk.added) for hunk in hunks):,} lines were added")


if __name__ == "__main__":
    main()
