"""Estimates of the total work of jobs that have not ended: from their reports, their owners, or similar finished
jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from skep.core.history import History, kinds, kinds_of
from skep.core.job import Job
from skep.core.knowledge import KnowledgeView
from skep.core.model import told
from skep.core.state import State

PROGRESS, OWNER, HISTORY, NONE = "progress", "owner", "history", "none"


class Estimate(NamedTuple):
    work_s: float
    source: str


def estimate_all(state: State) -> dict[str, Estimate]:
    """By id; jobs without any information are left out. A job that has already exceeded its owner's estimate shows that
    the estimate is wrong, and among similar jobs only those that took longer count."""
    works = works_by_kind(state.known.history)
    open_jobs = (job for job in state.jobs.values() if not job.state.is_final)
    found = ((job.id, estimate(job, job.work_at(state.now_s), state.known, works)) for job in open_jobs)
    return {job_id: each for job_id, each in found if each is not None}


def works_by_kind(history: History) -> dict[object, list[float]]:
    works: dict[object, list[float]] = {}
    for job in history.latest():
        for kind in kinds(job.owner, job.model, job.gpus):
            works.setdefault(kind, []).append(job.work_s)
    return works


def estimate(job: Job, done_s: float, known: KnowledgeView, works: dict[object, list[float]]) -> Estimate | None:
    total_s = reported(job, done_s, known)
    if total_s is not None:
        return Estimate(total_s, PROGRESS)
    expect_s = told(job.spec).expect_s
    if expect_s is not None and expect_s > done_s:
        return Estimate(expect_s, OWNER)
    for kind in kinds_of(job):
        longer = [work_s for work_s in works.get(kind, ()) if work_s > done_s]
        if longer:
            return Estimate(sum(longer) / len(longer), HISTORY)
    return None


def reported(job: Job, done_s: float, known: KnowledgeView) -> float | None:
    """The work of a job that reports progress, if it continues at the same speed."""
    progress = known.progress.get(job.id)
    if progress is None:
        return None
    if progress.reference is None:
        done_s = job.work_at(progress.at_s)  # as of its latest report
    part = progress.done_at(done_s)
    return done_s / part if part and done_s else None


def weakest(sources: Iterable[str]) -> str:
    """For a job of several tasks: the estimate of the whole is as good as that of the least known task."""
    return max(sources, key=(PROGRESS, OWNER, HISTORY, NONE).index)
