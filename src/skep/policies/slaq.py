"""The planner of SLAQ: GPUs go one by one to the job whose loss each lowers most until the next round.

It hands out GPUs as Optimus does; what a size costs a job is not its remaining time but the loss that it keeps. A job
that has reported too little is taken to learn 1, its largest change, at its slowest, and at most twice as much.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.core.model import Shape
from skep.core.view import JobView, View
from skep.policies.allocate.elastic import ElasticSizes, Ladder
from skep.policies.estimate.by_loss import SLAQ, LossFits
from skep.policies.optimus import Optimus, Sized, TimeAt
from skep.policies.place import Place


class Slaq(Optimus):
    """`horizon_s`: the time for which reductions are predicted."""

    def __init__(self, *, name: str, place: Place, sizes: ElasticSizes, restart_s: float, horizon_s: float) -> None:
        super().__init__(name=name, place=place, sizes=sizes, restart_s=restart_s, by_steps=False)
        self.horizon_s = horizon_s
        self.fits = LossFits(SLAQ)

    def times(self, view: View, job: JobView) -> tuple[Sequence[Shape], TimeAt]:
        ladder = self.sizes.ladder(job.spec)
        found = self.fits.of(view.knowledge, job)
        if found is None:
            slowest = float(ladder.speeds[0]) or 1.0
            return ladder.shapes, lambda size: -2 + 2 * slowest / (slowest + float(ladder.speeds[size]))
        fit, progress = found
        reference = progress.reference or 0.0
        step, usual = job.work_at(view.now_s) * reference, self.steps_in_round(ladder, 0, reference)
        return (
            ladder.shapes,
            lambda size: -self.fits.reduction(fit, step, self.steps_in_round(ladder, size, reference), usual),
        )

    def steps_in_round(self, ladder: Ladder, size: int, reference: float) -> float:
        """Steps until the next round."""
        return float(ladder.speeds[size]) * reference * self.horizon_s

    def spare_restarts(self, jobs: list[Sized]) -> None:
        """A job that would learn less by growing than it loses by a restart stays as it is."""
        lost = min(self.restart_s / self.horizon_s, 1.0)
        for each in jobs:
            now = each.milli.index(each.held) if each.held in each.milli else each.size
            if each.size > now and -each.time_s(each.size) * (1 - lost) < -each.time_s(now):
                each.size = now
