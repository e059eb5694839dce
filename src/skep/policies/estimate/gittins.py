"""The Gittins index of a job from the service that others turned out to need (Tiresias-G).

    G(a) = max over the quantum d of  P(X - a <= d | X > a) / E[min(X - a, d) | X > a]

taken at the quantum that leads to the next queue, so that each queue behaves like one Gittins step.
"""

from __future__ import annotations

import bisect
import itertools
import math

from skep.core.job import JobState
from skep.core.view import JobView, View


class Gittins:
    """Samples are total services in gpu-seconds: given, or those of the jobs finished so far."""

    def __init__(self, samples: tuple[float, ...] | None = None, *, by_size: bool = True) -> None:
        self.given = samples
        self.by_size = by_size
        self._use(sorted(samples or ()))

    def attach(self, view: View) -> None:
        self._use(sorted(self.given or ()))
        if self.given is None:
            ended = [job for job in view.jobs.values() if job.state is JobState.SUCCEEDED]
            for job in sorted(ended, key=lambda job: (job.finish_s, job.seq)):
                self.learn(job)

    def _use(self, samples: list[float]) -> None:
        self.samples = samples
        self.sums = [0.0, *itertools.accumulate(samples)]
        self.fresh: list[float] = []

    def learn(self, job: JobView) -> None:
        """New samples count once they are a twentieth of all: the sums over the sorted ones are built rarely."""
        if self.given is None and job.state is JobState.SUCCEEDED:
            self.fresh.append(job.service_gpu_s if self.by_size else job.run_s)
            if len(self.fresh) * 20 >= len(self.samples):
                self._use(sorted(self.samples + self.fresh))

    def index(self, attained: float, quantum: float) -> float:
        """0 beyond all samples: nothing is known of such a job."""
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
