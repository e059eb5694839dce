"""Estimates of the total work of jobs that have not ended: from their reports, their owners, or similar finished
jobs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from skep.core.history import History, kinds, kinds_of, owner_of
from skep.core.job import Job
from skep.core.knowledge import KnowledgeView
from skep.core.model import told
from skep.core.state import State

PROGRESS, OWNER, HISTORY, NONE = "progress", "owner", "history", "none"


class Estimate(NamedTuple):
    work_s: float
    source: str


class PossibleWorks(NamedTuple):
    """Total works that a job may have, given what it has done; all of them equally likely, in ascending order."""

    works: Sequence[float]
    source: str


class Experience:
    """What ended jobs show: the works of similar ones, and how wrong the estimates of owners were."""

    def __init__(self, least: int = 1) -> None:
        self.least = least
        """Fewer similar jobs than this show nothing."""
        self.works: dict[Hashable, list[float]] = {}
        self.errors: dict[str, list[float]] = {}
        """Ratios of true to estimated works, by owner; of all owners under the empty name."""

    def like(self, kinds: Iterable[Hashable], done_s: float) -> list[float]:
        """The works of the most similar jobs that took longer than this."""
        for kind in kinds:
            works = self.works.get(kind, ())
            first = bisect_right(works, done_s)
            if len(works) - first >= self.least:
                return list(works[first:])
        return []

    def of_estimate(self, owner: str, expect_s: float, done_s: float) -> list[float]:
        """The works that an estimate may stand for, without those that the job has exceeded."""
        found = next((each for key in (owner, "") if len(each := self.errors.get(key, ())) >= self.least), EXACT)
        return [work_s for error in found if (work_s := expect_s * error) > done_s]


EXACT = (1.0,)


def estimate_all(state: State) -> dict[str, Estimate]:
    """By id; jobs without any information are left out. A job that has already exceeded its owner's estimate shows that
    the estimate is wrong, and among similar jobs only those that took longer count."""
    past = succeeded(state.known.history)
    open_jobs = (job for job in state.jobs.values() if not job.state.is_final)
    found = ((job.id, possible(job, job.work_at(state.now_s), state.known, past, kinds_of(job))) for job in open_jobs)
    return {
        job_id: Estimate(sum(each.works) / len(each.works), each.source) for job_id, each in found if each is not None
    }


def succeeded(history: History) -> Experience:
    past = Experience()
    for job in history.latest():
        for kind in kinds(job.owner, job.model, job.gpus):
            past.works.setdefault(kind, []).append(job.work_s)
    for works in past.works.values():
        works.sort()
    return past


def possible(
    job: Job, done_s: float, known: KnowledgeView, past: Experience, like: Iterable[Hashable]
) -> PossibleWorks | None:
    """By the best source there is; None if nothing is known."""
    total_s = reported(job, done_s, known)
    if total_s is not None:
        return PossibleWorks((max(total_s, done_s),), PROGRESS)
    expect_s = told(job.spec).expect_s
    if expect_s is not None and (works := past.of_estimate(owner_of(job), expect_s, done_s)):
        return PossibleWorks(works, OWNER)
    works = past.like(like, done_s)
    return PossibleWorks(works, HISTORY) if works else None


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
