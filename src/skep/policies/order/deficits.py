"""How far jobs are behind (Singularity): the GPU time that each has wanted and not received.

    deficit = time since the job was first ready - GPU-seconds received ÷ requested GPUs

in seconds with all its GPUs. While a job waits it grows by one each second; while the job has all its GPUs it stays. So
the order of waiting jobs never changes by itself, nor does that of running ones, and a waiting job is behind a running
one by a given number of seconds at a known time.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator

import msgspec

from skep.core.job import JobState, amount_of
from skep.core.memory import Slot
from skep.core.plan import Plan
from skep.core.view import JobView, View

EPSILON = 1e-6


class Ready(msgspec.Struct, frozen=True, array_like=True):
    """When a job was first ready, if that was after its submission."""

    at_s: float


READY = Slot("ready", Ready)


class Deficits:
    """The deficits of jobs, and running jobs in the order of theirs."""

    def attach(self, view: View) -> None:
        self.ready_s = {job_id: ready.at_s for job_id, ready in READY.all(view.memory).items()}
        self.running: list[tuple[float, int, JobView]] = []
        """(deficit, seq, job), the best served first; of jobs whose GPUs have not all been theirs, a lower bound."""
        self.listed: dict[int, tuple[float, int, JobView]] = {}

    def note_ready(self, job: JobView, plan: Plan, now_s: float) -> None:
        """It wants to run from now on, not since its submission: it was held, or needed other jobs."""
        self.ready_s[job.id] = now_s
        plan.remember(READY, job.id, Ready(now_s))

    def standing_s(self, job: JobView, now_s: float) -> float:
        """When its deficit was, or will be, 0 if it waits from now on. Waiting jobs are ordered by it."""
        return self.ready_s.get(job.id, job.submit_s) + job.service_at(now_s) / (amount_of(job.shapes[0]) or 1)

    def of(self, job: JobView, now_s: float) -> float:
        return now_s - self.standing_s(job, now_s)

    # Running jobs --------------------------------------------------------------------------------------------------

    def watch(self, job: JobView, now_s: float) -> None:
        """The job has got or lost GPUs, or has begun to run."""
        self.forget(job)
        if job.allocation is not None:
            at_s = job.held_since_s if job.state is JobState.RUNNING else now_s
            entry = self.listed[job.seq] = (round(self.of(job, at_s), 6), job.seq, job)
            bisect.insort(self.running, entry)

    def forget(self, job: JobView) -> None:
        entry = self.listed.pop(job.seq, None)
        if entry is not None:
            del self.running[bisect.bisect_left(self.running, entry)]

    def count_within(self, deficit_s: float) -> int:
        """How many of the running jobs may have at most this deficit: the first ones of `running`."""
        return bisect.bisect_right(self.running, (deficit_s + EPSILON, math.inf))

    def ahead_of(self, deficit_s: float, now_s: float) -> Iterator[JobView]:
        """Running jobs with at most this deficit, the best served first, of equal ones the newest."""
        some = self.running[: self.count_within(deficit_s)]
        found = [(self.of(job, now_s), -seq, job) for _, seq, job in some]
        return (job for behind_s, _, job in sorted(found) if behind_s <= deficit_s + EPSILON)
