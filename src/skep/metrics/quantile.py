"""Quantiles of measured values."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value below which `part` of the ascending values lie, interpolated between two neighbours."""
    position = part * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def high_quantile(values: Sequence[float], part: float) -> float:
    """The same of values in any order, without sorting all of them; for a `part` near 1."""
    position = part * (len(values) - 1)
    below = int(position)
    top = heapq.nlargest(len(values) - below, values)
    return top[-1] + (top[-2:][0] - top[-1]) * (position - below)
