"""Running jobs in the tournament: what they have in comparison with their due, and which of them give something
back."""

from __future__ import annotations

import bisect
import operator
from fractions import Fraction

from skep.core.view import JobView
from skep.policies.allocate.elastic import Ladder
from skep.policies.allocate.tournament import Entrant, Home


class Runner(Entrant):
    """A running job, which already has GPUs."""

    __slots__ = ("held",)

    def __init__(self, job: JobView, ladder: Ladder, left_s: float, home: Home, held: int) -> None:
        super().__init__(job, ladder, left_s, (home,))
        self.held = held
        """Thousandths of GPUs."""

    @property
    def surplus(self) -> int:
        """What it has beyond its due. A job without a range is due everything it has."""
        if self.rung < 0:
            return self.held
        return 0 if self.job.spec.gpu_range is None else self.held - self.ladder.milli[self.rung]

    @property
    def speed(self) -> Fraction:
        """The highest step for which it has the GPUs."""
        return self.ladder.speeds[max(bisect.bisect_right(self.ladder.milli, self.held) - 1, 0)]


def gain(runner: Runner, rung: int) -> float:
    """The part of the speed on that step that it does not have now."""
    speed = runner.ladder.speeds[rung]
    return float((speed - runner.speed) / speed) if speed else 0.0


class Givers:
    """Running jobs of one home with more than their due: some can shrink to it, some must stop."""

    def __init__(self) -> None:
        self.shrinking: list[Runner] = []
        self.stopping: list[Runner] = []

    def take(self, missing: int, *, may_stop: bool) -> Runner | None:
        """Disturb as few as possible: the smallest that has enough alone, or else the largest."""
        for runners in (self.shrinking, self.stopping if may_stop else []):
            if runners:
                enough = [runner for runner in reversed(runners) if runner.surplus >= missing]
                by_surplus = operator.attrgetter("surplus")
                found = min(enough, key=by_surplus) if enough else max(reversed(runners), key=by_surplus)
                runners.remove(found)
                return found
        return None
