"""The Gittins index of a job from the service that other jobs needed (Tiresias-G).

    G(a) = max over the quantum d of  P(X - a <= d | X > a) / E[min(X - a, d) | X > a]

taken at the quantum that leads to the next queue, so that each queue behaves like one Gittins step.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

from skep.core.history import KEPT, History
from skep.core.view import View


class Gittins:
    """Samples are total services in GPU-seconds: given, or those of the latest finished jobs."""

    def __init__(self, samples: tuple[float, ...] | None = None, *, by_size: bool = True) -> None:
        self.given = samples
        self.by_size = by_size
        self.history: History | None = None
        self.counted, self.next = 0, 1
        """How many finished jobs are included, and with how many they are counted again."""
        self._use(samples or ())

    def attach(self, view: View) -> None:
        if self.given is None:
            self.history = view.knowledge.history
            self.counted, self.next = 0, 1
            self._use(())

    def _use(self, samples: Sequence[float]) -> None:
        self.samples = sorted(samples)
        self.sums = [0.0, *itertools.accumulate(self.samples)]

    def learn(self) -> int:
        """Include the jobs that have finished. Returns how many are included."""
        if self.history is not None and self.history.count >= self.next:
            self._learn(self.history)
        return self.counted

    def _learn(self, history: History) -> None:
        """New samples are included once they are a twentieth of all, so that the sums over the sorted samples are
        rebuilt rarely. Which samples are included follows from the number of finished jobs, so that a planner attached
        now computes the same."""
        while history.count >= self.next:
            self.counted = self.next
            self.next += max(-(-min(self.counted, KEPT) // 20), 1)
        finished = history.finished(max(self.counted - KEPT, 0), self.counted)
        self._use([job.service_gpu_s if self.by_size else job.run_s for job in finished])

    def index(self, attained: float, quantum: float) -> float:
        """0 beyond all samples: nothing is known about such a job."""
        self.learn()
        samples = self.samples
        above = bisect.bisect_right(samples, attained)
        alive = len(samples) - above
        if not alive:
            return 0.0
        within = len(samples) if quantum == math.inf else bisect.bisect_right(samples, attained + quantum)
        ending = within - above
        served = self.sums[within] - self.sums[above] - attained * ending
        if quantum < math.inf:
            served += quantum * (alive - ending)
        return ending / served if served > 0 else 0.0
