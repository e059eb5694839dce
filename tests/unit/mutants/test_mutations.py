"""The changes that `python -m tests.mutants` makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.mutations import mutants, mutated


def made(tmp_path: Path, body: str) -> dict[str, object]:
    """Each change of a function of `x`, with what the function answers for 3 then."""
    path = tmp_path / "module.py"
    path.write_text(f"def f(x):\n    {body}\n")
    found: dict[str, object] = {}
    for mutant in mutants(path, "module.py"):
        space: dict[str, object] = {}
        exec(path.read_text(), space)
        function = space["f"]
        function.__code__ = mutated(path, mutant)  # type: ignore[attr-defined]
        found[f"{mutant.before} → {mutant.after}"] = function(3)  # type: ignore[operator]
    return found


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        ("return x < 3", {"x < 3 → x <= 3": True, "3 → 4": True}),
        (
            "return 0 < x <= 3",
            {"0 < x <= 3 → 0 <= x <= 3": True, "0 < x <= 3 → 0 < x < 3": False, "0 → 1": True, "3 → 4": True},
        ),
        ("return x and not x", {"x and (not x) → x or not x": 3, "not x → x": 3}),
        ("return x + x", {"x + x → x - x": 0}),
        ("return min(x, 5)", {"min(x, 5) → max(x, 5)": 5, "5 → 6": 3}),
        ("x += 1; return x", {"x += 1 → x -= 1": 2, "x += 1 → pass": 3, "1 → 2": 5}),
        ("return 7 if x else 8", {"7 if x else 8 → 7 if not x else 8": 8, "7 → 8": 8, "8 → 9": 7}),
        ("assert x < 9; return x", {}),
        ("y: list[int] = []; return y", {}),
        ('return f"{x + 1}"', {}),
    ],
)
def test_changes(tmp_path: Path, body: str, answers: dict[str, object]) -> None:
    assert made(tmp_path, body) == answers


def test_a_call_of_super_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("class C:\n    def __init__(self):\n        super().__init__()\n        self.x = 1\n")
    space: dict[str, type] = {}
    exec(path.read_text(), space)
    found = {mutant.before: mutated(path, mutant) for mutant in mutants(path, "module.py")}
    assert len(found) == 3
    for code in found.values():
        space["C"].__init__.__code__ = code  # type: ignore[attr-defined]
    space["C"].__init__.__code__ = found["super().__init__()"]  # type: ignore[attr-defined]
    assert vars(space["C"]()) == {"x": 1}


def test_methods_are_found_by_their_class_and_line(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("class C:\n    @property\n    def f(self):\n        return 1\n")
    (mutant,) = mutants(path, "module.py")
    assert (mutant.function, mutant.line, mutant.function_line) == ("C.f", 4, 2)
    assert str(mutant) == "module.py:4 C.f: 1  →  2"
    assert mutated(path, mutant).co_consts[-1] == 2
