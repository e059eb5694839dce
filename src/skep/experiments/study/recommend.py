"""The recommendation of a study: which policy fits a cluster, what it needs there, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.core.needs import Need
from skep.experiments.study.analyse import PairedTest, Side, compare_pairs
from skep.experiments.study.choose import IN_WORDS
from skep.experiments.study.outcome import MEASURES
from skep.metrics.student import holm
from skep.report.columns import Column

LEVEL = 0.05
"""A difference is real if chance alone would give it in fewer studies than this part."""
LEAST = 0.01
"""A smaller difference is none in practice, however sure it is."""


class Rival(msgspec.Struct, frozen=True):
    """A policy that could be used, against the best one."""

    side: Side
    test: PairedTest
    chance: float
    """After the correction for several tests at once."""

    @property
    def is_worse(self) -> bool:
        return self.chance < LEVEL and abs(self.test.effect) >= LEAST


class Recommendation(msgspec.Struct, frozen=True):
    cluster: str
    measure: Column
    best: Side | None
    rivals: tuple[Rival, ...] = ()
    """The others, the best first."""
    bound: Side | None = None
    """The best of the policies that know durations."""
    excluded: tuple[Side, ...] = ()
    """Policies under which fewer jobs finished: their averages are of other jobs."""

    @property
    def equals(self) -> list[Rival]:
        """Policies that may be as good as the best one."""
        return [rival for rival in self.rivals if not rival.is_worse]

    @property
    def is_sure(self) -> bool:
        return self.best is not None and bool(self.rivals) and not self.equals

    @property
    def choice(self) -> Side | None:
        """The policy to use: of those that are equally good, the one that needs the least."""
        if self.best is None:
            return None
        return min([self.best, *(rival.side for rival in self.equals)], key=lambda side: (len(side.needs), side.policy))

    @property
    def needs(self) -> list[str]:
        choice = self.choice
        return [] if choice is None else [IN_WORDS[need] for need in Need if need in choice.needs]


def recommend(sides: Sequence[Side], measure: str = "jct_avg_s") -> Recommendation:
    """Of the policies on one cluster. One that knows durations is a bound and never wins."""
    column = MEASURES[measure]
    cluster = sides[0].cluster if sides else ""
    rated = sorted([side for side in sides if side.value(measure) is not None], key=lambda side: rank_of(side, column))
    most = max([side.value("finished") or 0.0 for side in rated], default=0.0)
    usable = [side for side in rated if not side.oracle]
    whole = [side for side in usable if (side.value("finished") or 0.0) >= most]
    bound = next((side for side in rated if side.oracle), None)
    if not whole:
        return Recommendation(cluster, column, None, bound=bound, excluded=tuple(usable))
    best, others = whole[0], whole[1:]
    tests = [compare_pairs(other, best, measure) for other in others]
    chances = holm([test.chance for test in tests])
    rivals = [Rival(*each) for each in zip(others, tests, chances, strict=True)]
    return Recommendation(
        cluster, column, best, tuple(rivals), bound, tuple(side for side in usable if side not in whole)
    )


def rank_of(side: Side, column: Column) -> float:
    value = side.value(column.key) or 0.0
    return value if column.better == "low" else -value
