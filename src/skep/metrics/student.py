"""Student's t: intervals of means, and how likely a difference is by chance alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for a two-sided interval of 95 %, by degrees of freedom from 1 on; beyond them the normal one."""


def t95(freedom: int) -> float:
    return T95[freedom - 1] if freedom <= len(T95) else 1.96


def half_width(values: Sequence[float]) -> float:
    """Of the 95 % confidence interval of their mean; 0 for a single value."""
    count = len(values)
    return t95(count - 1) * stdev(values) / math.sqrt(count) if count > 1 else 0.0


def chance_of(t: float, freedom: int) -> float:
    """The probability that chance alone gives a t at least this far from 0, on either side."""
    if math.isinf(t):
        return 0.0
    return _beta_part(freedom / (freedom + t * t), freedom / 2, 0.5)


def _beta_part(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, its mirror image converges fast
        return 1.0 - _beta_part(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    fraction = 1.0
    for m in range(200, 0, -1):  # from the innermost term outwards
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1.0 + even / (1.0 + odd / fraction)
    first = -(a + b) * x / (a + 1)
    return math.exp(log_front) / a / (1.0 + first / fraction)


def holm(chances: Sequence[float]) -> list[float]:
    """Several tests at once make an error likelier: Holm's correction keeps the whole at the level of one."""
    adjusted = [1.0] * len(chances)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        highest = max(highest, min(1.0, chances[index] * (len(chances) - rank)))
        adjusted[index] = highest
    return adjusted


def step_up(chances: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's correction for very many tests: of the differences called real at 5 %, about one in
    twenty is not."""
    adjusted = [1.0] * len(chances)
    lowest = 1.0
    for rank, index in reversed(list(enumerate(sorted(range(len(chances)), key=chances.__getitem__), start=1))):
        lowest = min(lowest, chances[index] * len(chances) / rank)
        adjusted[index] = lowest
    return adjusted
