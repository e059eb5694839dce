"""A class name is used once in `src`, so that a search finds one class. What the API shows may be named like what it
shows (`server/schemas.py`, `server/shapes.py`)."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3] / "src/skep"
API = {"server/schemas.py", "server/shapes.py"}
TWICE_MOST = 21
"""Names that several classes have. Lower it when there are fewer; never raise it."""


def test_class_names_are_used_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(ROOT.rglob("*.py")):
        path = str(file.relative_to(ROOT))
        for node in ast.parse(file.read_text("utf-8")).body if path not in API else ():
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert len(twice) <= TWICE_MOST, f"find another name: {twice}"
