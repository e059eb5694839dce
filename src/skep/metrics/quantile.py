"""Quantiles of measured values."""

from __future__ import annotations

from collections.abc import Sequence


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value below which `part` of the ascending values lie, interpolated between two neighbours."""
    position = part * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
