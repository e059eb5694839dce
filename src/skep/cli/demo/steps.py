"""Checks the steps of the demo's jobs: whether any was lost, and whether the losses are right."""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

from skep.cli.demo.stage import Stage
from skep.cli.demo.training import undisturbed

curve = functools.cache(undisturbed)
STEP = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)


class Steps(NamedTuple):
    """The steps of one job, over all its attempts."""

    seen: list[tuple[int, float]]
    """Number and loss of each step, in the order in which they were computed."""
    first: list[int]
    """The first step of each attempt."""

    @property
    def repeated(self) -> int:
        return len(self.seen) - len({step for step, _ in self.seen})

    def missing(self, steps: int) -> int:
        return len(set(range(steps)) - {step for step, _ in self.seen})

    def is_undisturbed(self, steps: int, *, is_exact: bool) -> bool:
        """True if every loss is that of an uninterrupted run; another number of tasks rounds differently."""
        right = curve(steps)
        if is_exact:
            return all(loss == right[step] for step, loss in self.seen)
        return all(math.isclose(loss, right[step], rel_tol=1e-9) for step, loss in self.seen)


def steps_of(stage: Stage, name: str) -> Steps:
    seen: list[tuple[int, float]] = []
    first: list[int] = []
    for attempt in range(1, stage.job(name)["attempts"] + 1):
        found = [(int(step), float(loss)) for step, loss in STEP.findall(stage.log(name, attempt))]
        seen += found
        first += [step for step, _ in found[:1]]
    return Steps(seen, first)
