"""What follows from the losses that a job has reported: how much it will learn, and when it has learned enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.core.knowledge import KnowledgeView
from skep.core.progress import Progress
from skep.core.view import JobView

if TYPE_CHECKING:
    from skep.policies.estimate.loss import LossFit

OPTIMUS = ("sublinear",)
SLAQ = ("quadratic", "geometric")

WINDOW_EPOCHS, THRESHOLD = 10.0, 0.05
"""Optimus: a job has converged when its loss falls by less than this part of the largest within so many epochs;"""
EPOCHS_MAX, EPOCHS_MORE = 100.0, 20.0
"""after so many epochs it is no longer predicted: it is taken to need so many more."""


class LossFits:
    """The fits of jobs, made anew when a job has reported another loss."""

    def __init__(self, families: tuple[str, ...]) -> None:
        self.families = families

    def of(self, known: KnowledgeView, job: JobView) -> tuple[LossFit, Progress] | None:
        """None if it has reported too little, or not how fast it is."""
        progress = known.progress.get(job.id)
        course = None if progress is None else progress.courses.get("loss")
        if progress is None or course is None or not progress.reference:
            return None
        from skep.policies.estimate.loss import fit_loss  # numpy

        fit = fit_loss(tuple(course.points), self.families)
        return None if fit is None else (fit, progress)

    def reduction(self, fit: LossFit, step: float, steps: float, usual: float) -> float:
        """How much the loss falls within so many steps, relative to the largest change so far in `usual` steps, which
        is the first one: curves become flatter."""
        largest = fit.at(0.0) - fit.at(usual)
        return max(fit.at(step) - fit.at(step + steps), 0.0) / largest if largest > 0 else 0.0

    def left_s(self, known: KnowledgeView, job: JobView, now_s: float) -> float | None:
        """Work until it has converged, in seconds at its reference. None: not known."""
        found = self.of(known, job)
        if found is None:
            return None
        from skep.policies.estimate.loss import steps_to_converge  # numpy

        fit, progress = found
        assert progress.reference
        report, step = progress.report, job.work_at(now_s) * progress.reference
        epoch = report.step / report.epoch if report.epoch else report.step / WINDOW_EPOCHS
        if step >= EPOCHS_MAX * epoch:
            return EPOCHS_MORE * epoch / progress.reference
        steps = steps_to_converge(fit, step, WINDOW_EPOCHS * epoch, THRESHOLD, EPOCHS_MAX * epoch - step)
        return max(steps, epoch) / progress.reference
