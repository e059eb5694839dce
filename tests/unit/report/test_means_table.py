"""Means over seeds, with their confidence intervals."""

from __future__ import annotations

import pytest

from skep.metrics.student import half_width
from skep.report.table import with_interval
from skep.report.units import format_duration


@pytest.mark.parametrize(
    ("values", "half"),
    [
        ([5.0], 0.0),
        ([1.0, 3.0], 12.706),  # t(1) · √2 ÷ √2
        ([2.0, 4.0, 6.0], 4.303 * 2 / 3**0.5),
        ([1.0, 1.0, 1.0, 1.0], 0.0),
        ([0.0, 2.0] * 50, 1.96 * (100 / 99) ** 0.5 / 10),
    ],
)
def test_the_interval_is_students(values: list[float], half: float) -> None:
    assert half_width(values) == pytest.approx(half, rel=1e-3)


def test_a_cell_has_the_mean_and_half_of_the_interval_as_a_part_of_it() -> None:
    assert with_interval([90.0, 100.0, 110.0], format_duration) == "1.7 min ±24.8%"
    assert with_interval([100.0, None], format_duration) == "1.7 min"
    assert with_interval([None], format_duration) == "\N{EN DASH}"
