"""The tutorial notebook runs from its first cell to its last."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[3] / "examples" / "notebooks" / "compare.ipynb"


def test_the_notebook_runs() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [run_cell("".join(cell["source"]), f"cell-{number}", names) for number, cell in enumerate(cells)]
    assert shown[0] == 400
    assert len(names["compared"]) == 5
    assert not names["compared"].failed
    assert "<iframe" in names["compared"].plot()._repr_html_()
    assert set(shown[-3]) == {"fifo:walk=skip", "notebook.py:SmallFirst"}
    assert shown[-2]["srsf on 6x8"] > shown[-2]["srsf on 12x8"]
    assert shown[-1] in ("las", "tiresias-l")  # both are far better than fifo


def run_cell(text: str, name: str, names: dict[str, Any]) -> Any:
    """What a notebook shows: the value of the last expression, if the cell ends with one."""
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), names)
