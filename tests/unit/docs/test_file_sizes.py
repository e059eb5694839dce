"""No file of the package is longer than a reader keeps in mind."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
LINES_MAX = 520


def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert lengths
    assert {path.relative_to(ROOT).as_posix(): n for path, n in lengths.items() if n > LINES_MAX} == {}
