"""Sentences of the pages on architecture that list what the code has: all of it, and in its order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import skep
from skep.core.actions import Action
from skep.core.events import ORDER_OF_AN_INSTANT
from skep.core.plan import Plan

ROOT = Path(__file__).parents[3]
INSTANT = (
    "reports about tasks",
    "node changes",
    "changes by admins",
    "groups",
    "submissions",
    "requests of owners",
    "answers of solvers",
    "timers",
)
"""The rows of the table, as pages name them."""
NO_STEPS = (
    *("mark", "rollback", "bundle"),  # of steps
    *("reserve", "release", "allows", "vacate", "occupy"),  # trials
    *("set", "end", "keep"),  # what other steps, and replays, are made of
    *("part", "anew", "translate", "see_as", "undo_by"),  # of planners that are made of planners
)


def text_of(page: str) -> str:
    """Without what stands in brackets, and on one line."""
    return " ".join(re.sub(r"\([^()]*\)", "", (ROOT / page).read_text("utf-8")).split()).replace(" ,", ",")


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/architecture/kernel.md", "docs/reference/words.md"])
def test_the_order_of_an_instant_is_that_of_the_table(page: str) -> None:
    assert len(INSTANT) == len(ORDER_OF_AN_INSTANT)
    assert ", ".join(INSTANT) in text_of(page)


def test_the_steps_of_a_plan_are_all_named() -> None:
    methods = {name for name, _ in inspect.getmembers(Plan, inspect.isfunction) if not name.startswith("_")}
    [sentence] = re.findall(
        r"The steps of a plan are (.*?) change several jobs", text_of("docs/architecture/kernel.md")
    )
    assert set(re.findall(r"`(\w+)`", sentence)) == methods - set(NO_STEPS)


def test_the_actions_are_all_named() -> None:
    [line] = re.findall(r"\| \*\*action\*\* \|.*", (ROOT / "docs/reference/words.md").read_text("utf-8"))
    kinds = {kind.__name__ for kind in Action.__args__}
    assert set(re.findall(r"`(\w+)`", line)) == kinds


def test_every_package_is_in_the_picture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    picture = text.partition("## The packages")[2].split("```")[1]
    found = set(
        re.findall(r"[a-z]+", " ".join(re.findall(r"(?:^| {2,})([a-z]+(?:/[a-z]+)?)(?: |$)", picture, re.MULTILINE)))
    )
    packages = {each.parent.name for each in Path(skep.__file__).parent.glob("*/__init__.py")}
    assert packages <= found, packages - found
