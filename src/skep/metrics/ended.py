"""The jobs of a run as they end: rows, and the few figures of a summary that are not in a row.

A run of a million jobs cannot keep them all: those that have ended leave the state, in batches, by the event that a
server uses for its oldest jobs.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection

import msgspec

from skep.core.events import JobsForgotten
from skep.core.job import Job, JobState
from skep.core.model import deadline_of
from skep.core.state import State
from skep.metrics.gpu_time import busy_gpu_s, held_gpu_s, useful_gpu_s
from skep.metrics.run import JobRow

BATCH = 4096


def job_rows(state: State) -> list[JobRow]:
    """In the order of submission."""
    for waiting in state.waiting.values():
        waiting.settle(state.now_s)
    return [job_row(job, state.now_s) for job in state.jobs.values()]


def job_row(job: Job, now_s: float) -> JobRow:
    finish_s = job.finish_s
    if finish_s is None:
        jct_s = queue_s = None
        run_s, service_gpu_s = job.run_at(now_s), job.service_at(now_s)
        quota_s, fragmentation_s = job.waited_for()
    else:  # it holds nothing and waits for nothing any more
        jct_s, run_s, service_gpu_s = finish_s - job.submit_s, job.run_s, job.service_gpu_s
        queue_s = jct_s - run_s if jct_s > run_s else 0.0
        quota_s, fragmentation_s = job.quota_s, job.fragmentation_s
    return JobRow(  # by position, which is faster: every job has one
        job.id,
        job.spec.vc,
        job.gpus,
        job.submit_s,
        job.start_s,
        finish_s,
        jct_s,
        queue_s,
        quota_s,
        fragmentation_s,
        run_s,
        service_gpu_s,
        job.preemptions,
        job.migrations,
        job.resizes,
        str(job.state),
    )


class JobFacts(msgspec.Struct):
    """Lists that run in parallel, in the order of submission."""

    rows: list[JobRow]
    held: array[float]
    busy: array[float]
    useful: array[float]
    """GPU-seconds; each part is at most the one before (`metrics/gpu_time.py`)."""
    works: array[float]
    """Seconds of work done."""
    users: list[str]
    """Of a job that names none, its VC."""
    deadline_misses: int
    reasons: dict[str, str]
    """Why jobs can never run, or were ended, by id."""


class JobTally:
    """Call `collect` when everything that follows from an instant is done."""

    def __init__(self, state: State, *, may_forget: bool) -> None:
        """`may_forget` is False if a later job may need an earlier one, or a planner still has to see it."""
        self.state = state
        self.may_forget = may_forget
        self.seqs = array("q")
        self.facts = JobFacts([], array("d"), array("d"), array("d"), array("d"), [], 0, {})
        self.own_events = 0
        """Events that are no part of the simulated world."""

    def collect(self) -> None:
        state = self.state
        if len(state.jobs) < BATCH or not self.may_forget:
            return
        ended = len(state.jobs) - len(state.open_jobs)
        if ended < BATCH or ended < len(state.open_jobs):
            return
        jobs = [job for job in state.jobs.values() if job.ended is not None]
        self._add(jobs)
        state.advance(state.now_s, [JobsForgotten([job.id for job in jobs])])
        self.own_events += 1

    def finish(self) -> JobFacts:
        """All jobs, those that have not ended too."""
        state, facts, seqs = self.state, self.facts, self.seqs
        for waiting in state.waiting.values():
            waiting.settle(state.now_s)
        self._add(state.jobs.values())
        if self.own_events:  # else they are in order
            order = sorted(range(len(seqs)), key=seqs.__getitem__)
            for name in ("held", "busy", "useful", "works"):
                values = getattr(facts, name)
                setattr(facts, name, array("d", map(values.__getitem__, order)))
            facts.rows = [facts.rows[at] for at in order]
            facts.users = [facts.users[at] for at in order]
        return facts

    def _add(self, jobs: Collection[Job]) -> None:
        facts, now_s = self.facts, self.state.now_s
        held = held_gpu_s(jobs, now_s)
        busy = busy_gpu_s(jobs, now_s, held)
        facts.held.extend(held)
        facts.busy.extend(busy)
        facts.useful.extend(useful_gpu_s(jobs, now_s, busy))
        facts.works.extend([job.work_s for job in jobs])
        facts.rows.extend([job_row(job, now_s) for job in jobs])
        facts.users.extend([job.spec.user or job.spec.vc for job in jobs])
        facts.deadline_misses += sum([is_late(job, now_s) for job in jobs if deadline_of(job.spec) is not None])
        facts.reasons |= {job.id: job.reason for job in jobs if job.reason}
        self.seqs.extend([job.seq for job in jobs])

    def service_at(self, at_s: float) -> float:
        """GPU-seconds held so far, of all jobs."""
        return sum(self.facts.held) + sum([job.service_at(at_s) for job in self.state.jobs.values()])


def is_late(job: Job, now_s: float) -> bool:
    deadline_s = deadline_of(job.spec)
    if deadline_s is None or job.state is JobState.UNRUNNABLE:
        return False
    end_s = now_s if job.finish_s is None else job.finish_s
    return end_s - job.submit_s > deadline_s
