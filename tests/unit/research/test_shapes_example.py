"""The shapes of examples/shapes: each takes at most twenty lines, and is there."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[3] / "examples" / "shapes" / "shapes.py"


@pytest.fixture(scope="module")
def shapes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shapes", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_takes_at_most_twenty_lines(shapes: ModuleType) -> None:
    assert len(shapes.SHAPES) == 5
    assert all(len(inspect.getsource(shape).splitlines()) <= 20 for shape in shapes.SHAPES)


def test_known_durations_bound_the_others(shapes: ModuleType) -> None:
    found = shapes.order_of_policies()
    assert found["fifo"] > 2 * found["fifo:walk=skip"]
    assert found["fifo:walk=skip"] > found["tiresias-l"] > found["srsf"]


def test_short_jobs_gain(shapes: ModuleType) -> None:
    found = shapes.short_jobs_gain()
    assert found["las"] < found["fifo:walk=skip"] / 2


def test_waiting_falls_with_nodes(shapes: ModuleType) -> None:
    small, usual, large, huge = shapes.more_nodes().values()
    assert small > usual > large >= huge
    assert usual / large > 9 / 6


def test_wrong_estimates_cost(shapes: ModuleType) -> None:
    true, good, bad = shapes.wrong_estimates().values()
    assert true < bad
    assert good < 1.5 * true


def test_restarts_cost_held_time(shapes: ModuleType) -> None:
    none, usual, dear = shapes.dear_restarts().values()
    assert none == pytest.approx(0.0, abs=1e-6)
    assert none < usual < dear
