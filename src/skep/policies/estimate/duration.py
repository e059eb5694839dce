"""Estimates of the run time of a job: the owner's estimate, or the durations of similar finished jobs."""

from __future__ import annotations

import math

from skep.core.view import JobView, View


class Duration:
    """The owner's estimate. A job without one goes last."""

    name = "known"
    learns = False
    """True if the estimate depends on finished jobs."""

    def attach(self, view: View) -> None:
        """Nothing to look up."""

    def total_s(self, job: JobView) -> float:
        expected = job.spec.expect_s
        return math.inf if expected is None else expected


class LikeFinished(Duration):
    """The mean of the latest similar finished jobs in the history of the view."""

    name = "history"
    learns = True

    def attach(self, view: View) -> None:
        self.history = view.knowledge.history

    def total_s(self, job: JobView) -> float:
        like = self.history.like(job)
        return 0.0 if like is None else like.mean
