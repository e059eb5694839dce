"""AntMan's classes of jobs (Xiao et al., "AntMan", OSDI'20): which jobs may use the quota of their VC.

A guaranteed job counts against the quota and runs as if it were alone. An opportunistic one does not count and uses
what others leave idle. A job with the claim `auto` is guaranteed if the quota allows and opportunistic otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from skep.core.refusal import Cause
from skep.core.share import Claim
from skep.core.view import JobView, View
from skep.policies.order.shares import CapacityQueues

LEND = "lend"

NO_QUOTAS = "none"
"""Each VC may use everything that its planner sees."""


def claim_of(job: JobView) -> Claim:
    """The claim of the job; a job of negative priority is always opportunistic."""
    if job.rank > 0:
        return "opportunistic"
    return "guaranteed" if job.spec.share is None else job.spec.share.claim


def is_guest(job: JobView) -> bool:
    """True if a job with a wanted allocation is opportunistic there."""
    if claim_of(job) == "opportunistic":
        return True
    terms = None if job.allocation is None else job.allocation.terms
    return terms is not None and terms.mode == LEND and not terms.milli


class Classes(CapacityQueues):
    """First come, first served, opportunistic jobs after the others. Quotas apply to guaranteed jobs."""

    def attach(self, view: View) -> None:
        self.placed: dict[str, dict[int, JobView]] = {}
        """Jobs with a wanted allocation, by VC and seq."""
        super().attach(view)

    def key(self, job: JobView, now_s: float) -> float:
        return 1.0 if claim_of(job) == "opportunistic" else 0.0

    def group(self, job: JobView) -> Hashable:
        return super().group(job), claim_of(job)

    def group_key(self, group: Hashable) -> float:
        return 0.0

    def _count(self, job: JobView, sign: int) -> None:
        placed = self.placed.setdefault(job.spec.vc, {})
        if sign > 0:
            placed[job.seq] = job
        else:
            placed.pop(job.seq, None)

    def guests(self) -> list[JobView]:
        """Opportunistic jobs with a wanted allocation, in the order of their submission."""
        jobs = (job for placed in self.placed.values() for job in placed.values())
        return sorted((job for job in jobs if job.allocation is not None and is_guest(job)), key=lambda job: job.seq)

    def used_by(self, group: Hashable) -> float:
        """GPUs of the guaranteed jobs of a VC, also during a trial: jobs that the trial has stopped do not count."""
        jobs = self.placed.get(str(group), {}).values()
        return math.fsum(job.gpus for job in jobs if job.allocation is not None and not is_guest(job))

    def is_within(self, job: JobView) -> bool:
        return self.kind == NO_QUOTAS or super().is_within(job)

    def could_ever(self, job: JobView) -> bool:
        """True if the quota of its VC would cover the job if no other ran."""
        self.group(job)
        return self.kind == NO_QUOTAS or job.gpus <= self.quotas.get(job.spec.vc, 0.0) + 1e-9

    def refuses(self, job: JobView) -> Cause | None:
        return None if claim_of(job) == "opportunistic" or self.is_within(job) else Cause.QUOTA
