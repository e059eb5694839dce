"""Student's t against scipy, and corrections for several tests against worked examples."""

from __future__ import annotations

import math

import pytest

from skep.metrics.student import chance_of, holm, step_up, t95


@pytest.mark.parametrize("freedom", [1, 2, 5, 9, 30, 200])
@pytest.mark.parametrize("t", [0.0, 0.1, -1.0, 2.0, 5.0, 40.0])
def test_the_chance_is_that_of_scipy(t: float, freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert chance_of(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-10)


def test_a_difference_without_spread_is_no_chance() -> None:
    assert chance_of(math.inf, 9) == 0.0


@pytest.mark.parametrize("freedom", [1, 4, 29])
def test_the_interval_leaves_a_twentieth_outside(freedom: int) -> None:
    assert chance_of(t95(freedom), freedom) == pytest.approx(0.05, abs=1e-4)


def test_holm_multiplies_the_smallest_by_all_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]


def test_step_up_divides_by_the_rank() -> None:
    assert step_up([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
