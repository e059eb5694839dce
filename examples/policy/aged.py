"""Jobs with few GPUs first, but none waits for ever: a job that has waited for `wait_s` seconds goes before all
others.

    skep simulate jobs.csv --cluster 8x8 --policy fifo --policy ./aged.py:Aged --policy ./aged.py:Aged:wait_s=3600
"""

from __future__ import annotations

import math

from skep.core.view import JobView
from skep.policies import Order


class Aged(Order):
    """Ties go by submission time, as in every order."""

    jumps = True  # see `changes_at`

    def __init__(self, wait_s: float = 86400.0) -> None:
        self.wait_s = wait_s

    def key(self, job: JobView, now_s: float) -> tuple[int, float]:
        if now_s >= self._waited_at_s(job):
            return (0, job.pending_since_s)
        return (1, job.gpus)

    def changes_at(self, job: JobView, now_s: float) -> float:
        """The key of a pending job jumps once, so nothing has to be computed in between."""
        at_s = self._waited_at_s(job)
        return at_s if at_s > now_s else math.inf

    def _waited_at_s(self, job: JobView) -> float:
        return job.pending_since_s + self.wait_s
