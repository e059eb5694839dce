"""How long will it run? What its owner says, or what its like took before."""

from __future__ import annotations

import math

from skep.core.job import JobState
from skep.core.view import JobView, View


class Duration:
    """The owner's expectation. A job without one goes last."""

    name = "known"
    learns = False
    """Whether it tells something else when more jobs are over."""

    def attach(self, view: View) -> None:
        """Nothing to learn."""

    def total_s(self, job: JobView) -> float:
        expected = job.spec.expect_s
        return math.inf if expected is None else expected

    def learn(self, job: JobView) -> None:
        """A job is over."""


class History(Duration):
    """The mean run time of finished jobs of the same user and size, else of the user, else of the size, else of all."""

    name = "history"
    learns = True

    def attach(self, view: View) -> None:
        self.sums: dict[object, tuple[int, float]] = {}
        ended = [job for job in view.jobs.values() if job.state is JobState.SUCCEEDED]
        for job in sorted(ended, key=lambda job: (job.finish_s, job.seq)):  # sums depend on the order, by a hair
            self.learn(job)

    def total_s(self, job: JobView) -> float:
        for kind in kinds_of(job):
            if kind in self.sums:
                count, sum_s = self.sums[kind]
                return sum_s / count
        return 0.0

    def learn(self, job: JobView) -> None:
        if job.state is not JobState.SUCCEEDED:
            return
        for kind in kinds_of(job):
            count, sum_s = self.sums.get(kind, (0, 0.0))
            self.sums[kind] = (count + 1, sum_s + job.work_s)


def kinds_of(job: JobView) -> tuple[object, ...]:
    """Whom a job is like, the most alike first: jobs of its owner and size, of its owner, of its size, all."""
    owner = job.spec.user or job.spec.vc
    return ((owner, job.gpus), owner, (job.gpus,), ())
