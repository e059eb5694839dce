"""A class name is used once in `src`, so that a search finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3] / "src/skep"


def test_class_names_are_used_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(file.relative_to(ROOT)))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert not twice, f"find another name: {twice}"
