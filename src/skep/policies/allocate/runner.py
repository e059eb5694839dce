"""Running jobs in the tournament: what they have beside what is due to them, and who gives up something."""

from __future__ import annotations

import bisect
import operator
from fractions import Fraction

from skep.core.view import JobView
from skep.policies.allocate.elastic import Ladder
from skep.policies.allocate.tournament import Entrant, Home


class Runner(Entrant):
    """A job that runs, and so has something already."""

    __slots__ = ("held",)

    def __init__(self, job: JobView, ladder: Ladder, left_s: float, home: Home, held: int) -> None:
        super().__init__(job, ladder, left_s, (home,))
        self.held = held
        """Thousandths of gpus."""

    @property
    def surplus(self) -> int:
        """What it has beyond what is due to it. Whatever a job without a range has is its due."""
        if self.rung < 0:
            return self.held
        return 0 if self.job.spec.gpu_range is None else self.held - self.ladder.milli[self.rung]

    @property
    def speed(self) -> Fraction:
        """On the highest rung it has the gpus for."""
        return self.ladder.speeds[max(bisect.bisect_right(self.ladder.milli, self.held) - 1, 0)]


def gain(runner: Runner, rung: int) -> float:
    """Of the speed on that rung, the part it does not have now."""
    speed = runner.ladder.speeds[rung]
    return float((speed - runner.speed) / speed) if speed else 0.0


class Givers:
    """Running jobs of one home that have more than their due: some can shrink to it, some have to stop."""

    def __init__(self) -> None:
        self.shrinking: list[Runner] = []
        self.stopping: list[Runner] = []

    def take(self, missing: int, *, may_stop: bool) -> Runner | None:
        """As few as possible are to be disturbed: the smallest that has enough alone, or else the largest."""
        for runners in (self.shrinking, self.stopping if may_stop else []):
            if runners:
                enough = [runner for runner in reversed(runners) if runner.surplus >= missing]
                by_surplus = operator.attrgetter("surplus")
                found = min(enough, key=by_surplus) if enough else max(reversed(runners), key=by_surplus)
                runners.remove(found)
                return found
        return None
