"""A search: one job with many sets of parameters, its *trials*, of which a rule lets the promising ones run on.

The trials are the members of a group. They are compared at *rungs*, numbers of training steps: the state notes what
each trial reports when it reaches one (`core/fold/searches.py`), a rule (`policies/search.py`) says who goes on. Its
verdicts are ordinary events about jobs (held, released, stop requested), so they are in the log with their reasons.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import msgspec

from skep.core.progress import Report

Rule = Literal["none", "median", "asha", "hypersched"]
Mode = Literal["min", "max"]
RULES: tuple[str, ...] = get_args(Rule)
MODES: tuple[str, ...] = get_args(Mode)


class SearchSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    metric: str
    """The reported series by which trials are compared."""
    mode: Mode = "min"
    rule: Rule = "none"
    """`none`: all trials run to their end."""
    first: float = 1.0
    """Steps before trials are compared for the first time."""
    eta: float = 3.0
    """Of so many trials one goes on; each rung has so many times the steps of the one before."""
    deadline_s: float | None = None
    """Seconds after its submission; what has not ended is then stopped."""
    gpu_hours: float | None = None
    """GPU time of all trials together, after which the search ends."""

    def rung(self, number: int) -> float:
        """The steps of a rung. The median rule compares at equal distances."""
        return self.first * (number + 1) if self.rule == "median" else self.first * self.eta**number

    def cost(self, value: float) -> float:
        """Smaller is better."""
        return value if self.mode == "min" else -value

    def value(self, cost: float) -> float:
        return self.cost(cost)


class Trial(msgspec.Struct):
    """What a trial has reported. It has no verdict yet while it has passed fewer rungs than it has results."""

    results: list[float] = []
    """Its costs at the rungs that it reached; infinite where its metric was not a number."""
    passed: int = 0
    """The number of rungs beyond which it may go."""
    is_paused: bool = False
    step: float = 0.0
    steps: float | None = None
    """How far it is, of how many steps."""
    begun_s: float = 0.0
    """Seconds that it ran before its first report."""

    def take_in(self, spec: SearchSpec, report: Report) -> None:
        self.step, self.steps = report.step, report.steps
        result = self.result_of(spec, report)
        while result is not None:
            self.results.append(result)
            result = self.result_of(spec, report) if len(self.results) in report.at_rungs else None

    def result_of(self, spec: SearchSpec, report: Report) -> float | None:
        """Its cost, if the report is the first at its next rung. The end of a trial is no rung: it ends by itself."""
        number = len(self.results)
        rung = spec.rung(number)
        if spec.rule == "none" or report.step < rung or (report.steps is not None and rung >= report.steps):
            return None
        if number in report.at_rungs:
            return spec.cost(report.at_rungs[number])
        if spec.metric in report.diverged:
            return math.inf
        value = report.series.get(spec.metric)
        return None if value is None else spec.cost(value)
