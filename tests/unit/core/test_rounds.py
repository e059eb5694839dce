"""Boundaries of rounds, and what is collected between them."""

from __future__ import annotations

import pytest

from skep.core.rounds import everything, gather, is_boundary, next_boundary
from skep.core.view import Trigger


@pytest.mark.parametrize(
    ("now_s", "round_s", "is_one", "next_s"),
    [
        (0.0, 60.0, True, 60.0),
        (59.9, 60.0, False, 60.0),
        (60.0, 60.0, True, 120.0),
        (0.3, 0.1, True, 0.4),
        (1e9, 0.1, True, 1e9 + 0.1),
    ],
)
def test_boundaries(now_s: float, round_s: float, is_one: bool, next_s: float) -> None:
    assert is_boundary(now_s, round_s) is is_one
    assert next_boundary(now_s, round_s) == pytest.approx(next_s, abs=1e-6)


def test_a_planner_that_begins_within_a_round_looks_at_everything() -> None:
    assert everything().wakes()


def test_what_happens_in_a_round_is_collected() -> None:
    collected, first, second = Trigger(), Trigger(), Trigger()
    first.is_timer = second.nodes_changed = True
    gather(collected, first)
    assert not collected.nodes_changed
    gather(collected, second)
    assert collected.nodes_changed
