"""What the runs of a study say: intervals, and which differences are more than chance.

Repetitions are of two kinds. *Bootstraps* of the trace: the value is that of the trace as it is, and the spread of the
draws is its standard error, however many are drawn. *Seeds* alone (failures, estimates): independent runs, of which the
mean is the value, and more runs make it surer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec

from skep.core.needs import Need
from skep.experiments.study.outcome import RunOutcome
from skep.metrics.student import chance_of, t95


class Interval(msgspec.Struct, frozen=True):
    value: float
    low: float
    high: float


class Side(msgspec.Struct, frozen=True):
    """One policy on one cluster, in all its repetitions."""

    policy: str
    cluster: str
    needs: frozenset[Need]
    group: str
    oracle: bool
    outcomes: tuple[RunOutcome, ...]
    """By repetition."""
    is_drawn: bool
    """True if the repetitions are bootstraps."""

    def values(self, measure: str) -> dict[int, float]:
        """By repetition, where there is a value."""
        found = ((each.repetition, each.values.get(measure)) for each in self.outcomes)
        return {repetition: value for repetition, value in found if value is not None}

    def interval(self, measure: str) -> Interval | None:
        return interval_of(self.values(measure), is_drawn=self.is_drawn)

    def value(self, measure: str) -> float | None:
        found = self.interval(measure)
        return None if found is None else found.value


def interval_of(values: dict[int, float], *, is_drawn: bool) -> Interval | None:
    """By factors, where all values are above 0: an interval then never reaches 0 either."""
    if not values:
        return None
    is_ratio = all(value > 0 for value in values.values())
    known = {each: math.log(value) for each, value in values.items()} if is_ratio else values
    value, error, count = estimate_of(known, is_drawn=is_drawn)
    half = t95(count - 1) * error if count > 1 else 0.0
    back = math.exp if is_ratio else float
    return Interval(back(value), back(value - half), back(value + half))


def estimate_of(values: dict[int, float], *, is_drawn: bool) -> tuple[float, float, int]:
    """The value, its standard error, and the number of values that the error follows from."""
    drawn = [value for repetition, value in values.items() if repetition or not is_drawn]
    error = stdev(drawn) if len(drawn) > 1 else 0.0
    if is_drawn and 0 in values:
        return values[0], error, len(drawn)
    return fmean(values.values()), error if is_drawn else error / math.sqrt(max(len(drawn), 1)), len(drawn)


class PairedTest(msgspec.Struct, frozen=True):
    """One policy against another in the same repetitions."""

    effect: float
    """By how much the first is above the second, as a part of it."""
    low: float
    high: float
    chance: float
    """The probability of such a difference, or a larger one, if the two were equal."""
    wins: int
    """Repetitions in which the first has the higher value."""
    pairs: int


UNTESTED = PairedTest(0.0, 0.0, 0.0, 1.0, 0, 0)


def compare_pairs(one: Side, other: Side, measure: str) -> PairedTest:
    """By the logarithm of the ratio, so that twice as much and half as much are equally far; by differences where a
    value is 0."""
    ours, theirs = one.values(measure), other.values(measure)
    both = [repetition for repetition in ours if repetition in theirs]
    if not both:
        return UNTESTED
    scale = fmean(theirs[each] for each in both)
    is_ratio = all(ours[each] > 0 and theirs[each] > 0 for each in both)
    if is_ratio:
        gaps = {each: math.log(ours[each] / theirs[each]) for each in both}
    else:
        gaps = {each: (ours[each] - theirs[each]) / abs(scale or 1.0) for each in both}
    value, error, count = estimate_of(gaps, is_drawn=one.is_drawn)
    half = t95(count - 1) * error if count > 1 else math.inf
    back = math.expm1 if is_ratio else float
    return PairedTest(
        effect=back(value),
        low=back(value - half) if half < math.inf else -math.inf,
        high=back(value + half) if half < math.inf else math.inf,
        chance=chance(value, error, count),
        wins=sum(gap > 0 for gap in gaps.values()),
        pairs=len(gaps),
    )


def chance(value: float, error: float, count: int) -> float:
    if count < 2 or value == 0.0:
        return 1.0
    return chance_of(value / error, count - 1) if error else 0.0


def sides_of(
    outcomes: Sequence[RunOutcome], known: dict[str, tuple[frozenset[Need], str]], *, is_drawn: bool
) -> list[Side]:
    """In the order of the outcomes; `known`: needs and group of each policy."""
    found: dict[tuple[str, str], list[RunOutcome]] = {}
    for each in outcomes:
        if not each.error:
            found.setdefault((each.cluster, each.policy), []).append(each)
    return [
        Side(policy, cluster, *known[policy], any(each.oracle for each in runs), tuple(runs), is_drawn)
        for (cluster, policy), runs in found.items()
    ]
