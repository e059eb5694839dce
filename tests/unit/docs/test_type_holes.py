"""Holes in the types of the rooms that decide and answer: `type: ignore` and `Any`. Their numbers may only fall."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

import pytest

import skep

ROOMS = ("core", "policies", "service", "server")
MOST = {
    "type: ignore": {"core": 6, "policies": 1, "service": 4, "server": 2},
    "Any": {"core": 14, "policies": 61, "service": 101, "server": 116},
}
"""Lower a number when there are fewer; never raise one."""

ROOT = Path(skep.__file__).parent


def tokens(room: str) -> list[tokenize.TokenInfo]:
    texts = [path.read_text() for path in sorted((ROOT / room).rglob("*.py"))]
    return [token for text in texts for token in tokenize.generate_tokens(io.StringIO(text).readline)]


def counts(room: str) -> dict[str, int]:
    found = tokens(room)
    return {
        "type: ignore": sum(token.type == tokenize.COMMENT and "type: ignore" in token.string for token in found),
        "Any": sum(token.type == tokenize.NAME and token.string == "Any" for token in found),
    }


@pytest.mark.parametrize("hole", MOST)
def test_there_are_not_more_of_them(hole: str) -> None:
    seen = {room: counts(room)[hole] for room in ROOMS}
    assert {room: count for room, count in seen.items() if count > MOST[hole][room]} == {}, "find a type instead"


def test_each_ignored_error_is_named_and_has_its_reason() -> None:
    """As `# type: ignore[code]  # why`, or in a comment on the line above."""
    without = []
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            is_said = "]  # " in line.partition("type: ignore[")[2] or lines[number - 1].strip().startswith("#")
            if "type: ignore" in line and not is_said:
                without.append(f"{path.relative_to(ROOT)}:{number + 1}")
    assert without == []
