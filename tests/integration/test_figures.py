"""Figures in pages are those that their commands produce today (`docs/figures.py`)."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_figures", ROOT / "docs" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


figures = load()
FOUND = [
    pytest.param(each, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, each in enumerate(figures.figures_on(page.read_text("utf-8")))
]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # some simulate Philly fifteen times
@pytest.mark.parametrize("found", FOUND)
def test_figures_are_those_of_today(found: Any) -> None:
    if found.takes_minutes and os.environ.get("SKEP_FIGURES") != "all":
        pytest.skip("takes minutes; SKEP_FIGURES=all compares it too")
    try:
        computed = found.computed()
    except figures.NoData as error:
        pytest.skip(str(error))
    assert computed == found.lines, f"python docs/figures.py PAGE; {found.command}"


def test_every_mark_is_above_a_table() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        assert text.count("<!-- figures") == len(figures.MARK.findall(text)), page


@pytest.mark.parametrize(
    ("cell", "is_true"), [("| 40 | 40 | 1.0 |", True), ("| 40 | 41 | 1.0 |", False), ("| 30 | 30 | 7.5 |", True)]
)
def test_a_figure_that_is_not_that_of_its_command_is_found(cell: str, is_true: bool) -> None:
    command = "skep trace synth --jobs {jobs} --load 0.5 --gpus 8 --seed 1 --out a.csv && skep trace info a.csv --json"
    text = f"<!-- figures: {command} | found = jobs -->\n| jobs | found | CPU s |\n|---|---|---|\n{cell}\n"
    (found,) = figures.figures_on(text)
    assert (found.computed() == found.lines) == is_true


@pytest.mark.parametrize(
    ("values", "source", "like", "shown"),
    [
        ([22409], "n", "1", "22,409"),
        ([7200.0], "n / 3600", "1.00", "2.00"),
        ([1.26, 1.0, 1.31], "n", "0.0 to 0.0", "1.0 to 1.3"),
    ],
)
def test_how_a_figure_is_shown(values: list[float], source: str, like: str, shown: str) -> None:
    assert figures.shown([{"n": value} for value in values], source, like=like) == shown


def test_a_mark_says_which_figures_take_minutes() -> None:
    table = "| a |\n|---|\n| 1 |\n"
    text = f"<!-- figures: skep x -->\n{table}\n<!-- figures (minutes): skep x -->\n{table}"
    assert [each.takes_minutes for each in figures.figures_on(text)] == [False, True]


def test_a_table_that_its_command_prints_is_compared_as_a_whole() -> None:
    text = "<!-- figures: python -c \"print('| a |\\n|---|\\n| 1 |')\" -->\n\n| a |\n|---|\n| 2 |\n"
    (found,) = figures.figures_on(text)
    assert found.computed() == "| a |\n|---|\n| 1 |\n"
    assert found.lines == "| a |\n|---|\n| 2 |\n"
