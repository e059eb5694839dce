"""The completed part of a job: as reported by the job, else derived from its owner's estimate."""

from __future__ import annotations

import math
from typing import NamedTuple

from skep.core.job import JobState
from skep.core.knowledge import KnowledgeView
from skep.core.view import JobView


class EpochStanding(NamedTuple):
    """How far a job is, and how fast it progresses."""

    done: float
    """The completed part of its work, 0 to 1."""
    rate: float
    """The growth of that part per second."""
    epochs: float
    """The number of epochs, if only whole epochs count; 0: none."""

    @property
    def counted(self) -> float:
        return whole_epochs(self.done, self.epochs) if self.epochs else self.done


def standing_of(job: JobView, known: KnowledgeView, now_s: float) -> EpochStanding:
    """From the steps that the job reports; else work done ÷ work expected; 0 if neither is known."""
    work_s = job.work_at(now_s)
    speed = job.rate if job.state is JobState.RUNNING else 0.0
    progress = known.progress.get(job.id) if known.progress else None
    part = None if progress is None else progress.done_at(work_s)
    if progress is not None and part is not None:
        report = progress.report
        rate = speed * report.reference / report.steps if report.reference and report.steps else 0.0
        return EpochStanding(part, rate, job.spec.epochs or report.epochs or 0)
    expected = job.spec.expect_s
    if not expected:
        return EpochStanding(0.0, 0.0, 0)
    return EpochStanding(min(work_s / expected, 1.0), speed / expected, job.spec.epochs or 0)


def whole_epochs(done: float, epochs: float) -> float:
    return math.floor(done * epochs + 1e-9) / epochs
