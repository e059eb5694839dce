"""The Gittins index: its properties on distributions one knows, and the formula written out naively."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.policies.estimate.gittins import Gittins


def naive(samples: list[float], age: float, quantum: float) -> float:
    """P(X-a <= d | X > a) / E[min(X-a, d) | X > a]."""
    left = [sample - age for sample in samples if sample > age]
    ending = [rest for rest in left if rest <= quantum]
    if not ending:
        return 0.0
    return len(ending) / sum(min(rest, quantum) for rest in left)


@given(
    samples=st.lists(st.integers(1, 1000), min_size=1, max_size=30),
    age=st.integers(0, 1100),
    quantum=st.one_of(st.integers(1, 1000), st.just(math.inf)),
)
def test_it_is_the_textbook_formula(samples: list[int], age: int, quantum: float) -> None:
    # Whole numbers, so that both sums are exact.
    expected = naive([float(sample) for sample in samples], age, quantum)
    assert Gittins(tuple(map(float, samples))).index(age, quantum) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_exponential_is_nearly_constant(seed: int) -> None:
    draw = random.Random(seed)
    index = Gittins(tuple(draw.expovariate(1 / 1000) for _ in range(20_000))).index
    assert [index(age, 500.0) for age in (0, 250, 500, 1000, 2000)] == pytest.approx([0.001] * 5, rel=0.06)


@pytest.mark.parametrize("seed", range(3))
def test_heavy_tail_falls(seed: int) -> None:
    draw = random.Random(seed)
    index = Gittins(tuple(100 * draw.paretovariate(1.2) for _ in range(20_000))).index
    found = [index(age, 500.0) for age in (100, 200, 400, 800, 1600, 3200)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 5 * found[-1] > 0


@pytest.mark.parametrize("count", [1, 7])
def test_one_point_rises_as_one_over_what_is_left(count: int) -> None:
    index = Gittins((1000.0,) * count).index
    assert [index(age, math.inf) for age in (0, 500, 900, 999)] == pytest.approx([1 / 1000, 1 / 500, 1 / 100, 1.0])


def test_beyond_all_samples_nothing_is_known() -> None:
    index = Gittins((100.0, 1000.0)).index
    assert index(1000.0, math.inf) == 0.0
    assert Gittins(()).index(0.0, math.inf) == 0.0
