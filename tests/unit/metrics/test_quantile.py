from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.metrics.quantile import high_quantile, quantile


def test_a_quantile_lies_between_two_neighbours() -> None:
    assert quantile([0.0, 10.0, 20.0], 0.75) == 15.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.5, 1.0))
def test_without_sorting_all_values_it_is_the_same(values: list[float], part: float) -> None:
    assert high_quantile(values, part) == pytest.approx(quantile(sorted(values), part))
