"""Holes in the types of the rooms that decide and answer: `type: ignore` and `Any`. Each has its reason beside it, and
their numbers may only fall."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

import pytest

import skep

ROOMS = ("core", "policies", "service", "server")
MOST = {
    "type: ignore": {"core": 6, "policies": 1, "service": 4, "server": 2},
    "Any": {"core": 6, "policies": 6, "service": 12, "server": 8},
}
"""Lines with one, imports aside. Lower a number when there are fewer; never raise one."""

ROOT = Path(skep.__file__).parent


def holes(text: str) -> dict[str, set[int]]:
    """The numbers of the lines that have one."""
    found: dict[str, set[int]] = {hole: set() for hole in MOST}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        number = token.start[0]
        if token.type == tokenize.COMMENT and "type: ignore" in token.string:
            found["type: ignore"].add(number)
        elif token.type == tokenize.NAME and token.string == "Any" and "import " not in token.line:
            found["Any"].add(number)
    return found


def unexplained(text: str) -> list[int]:
    """Those of them without a reason: a comment on the line, behind that of `type: ignore`, or on the line above."""
    comments = {
        token.start[0]: token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }

    def says_why(number: int) -> bool:
        here, above = comments.get(number), comments.get(number - 1)
        if above is not None and above.line.lstrip().startswith("#"):
            return True
        return here is not None and bool(
            here.string.partition("type: ignore[")[2].partition("]  # ")[2] or is_plain(here)
        )

    return sorted(number for numbers in holes(text).values() for number in numbers if not says_why(number))


def is_plain(comment: tokenize.TokenInfo) -> bool:
    return not comment.string.removeprefix("#").strip().startswith(("type:", "noqa"))


def texts(room: str) -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted((ROOT / room).rglob("*.py"))}


@pytest.mark.parametrize("hole", MOST)
def test_there_are_not_more_of_them(hole: str) -> None:
    seen = {room: sum(len(holes(text)[hole]) for text in texts(room).values()) for room in ROOMS}
    assert {room: count for room, count in seen.items() if count > MOST[hole][room]} == {}, "find a type instead"


@pytest.mark.parametrize("room", ROOMS)
def test_each_has_its_reason_beside_it(room: str) -> None:
    assert [f"{path}:{number}" for path, text in texts(room).items() for number in unexplained(text)] == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x: Any", [1]),
        ("x: Any  # from a file", []),
        ("# From a file.\nx: Any", []),
        ("y = 1  # one\nx: Any", [2]),
        ("x: Any  # noqa: F821", [1]),
        ("from typing import Any", []),
        ("x = y()  # type: ignore[arg-type]", [1]),
        ("x = y()  # type: ignore[arg-type]  # it is one", []),
        ('"""Any of these."""', []),
    ],
)
def test_what_counts_as_a_reason(text: str, lines: list[int]) -> None:
    assert unexplained(text) == lines
