"""How much work jobs that have not ended may have in all: what their owners say, or what jobs like them took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from skep.core.job import Job, JobState
from skep.core.state import State
from skep.policies.estimate.duration import kinds_of

OWNER, HISTORY, NONE = "owner", "history", "none"


class Estimate(NamedTuple):
    work_s: float
    source: str


def estimate_all(state: State) -> dict[str, Estimate]:
    """By id; jobs of which nothing is known are not in it. What a job has done already was not all of its work, so an
    expectation that it has passed says nothing, and of the jobs like it only those that took longer count."""
    works: dict[object, list[float]] = {}
    for job in state.jobs.values():
        if job.state is JobState.SUCCEEDED:
            for kind in kinds_of(job):
                works.setdefault(kind, []).append(job.work_s)
    open_jobs = (job for job in state.jobs.values() if not job.state.is_final)
    found = ((job.id, estimate(job, job.work_at(state.now_s), works)) for job in open_jobs)
    return {job_id: each for job_id, each in found if each is not None}


def estimate(job: Job, done_s: float, works: dict[object, list[float]]) -> Estimate | None:
    expect_s = job.spec.expect_s
    if expect_s is not None and expect_s > done_s:
        return Estimate(expect_s, OWNER)
    for kind in kinds_of(job):
        longer = [work_s for work_s in works.get(kind, ()) if work_s > done_s]
        if longer:
            return Estimate(sum(longer) / len(longer), HISTORY)
    return None


def weakest(sources: Iterable[str]) -> str:
    """Of a job of several tasks: the estimate of the whole is as good as that of the task that is known least."""
    return max(sources, key=(OWNER, HISTORY, NONE).index)
