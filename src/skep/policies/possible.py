"""Which requests could run if the cluster were empty."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from skep.core.job import JobState
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.view import JobView, View
from skep.policies.explain import why_never_fits
from skep.policies.place import Place

PENDING = JobState.PENDING


class Possible:
    """Tries requests on an empty cluster, each kind of request once."""

    __slots__ = ("_blank", "_could_run", "_place", "_trial", "sure")

    def __init__(self, view: View, place: Place) -> None:
        self._blank = view.blank()
        self._trial = self._blank.new_plan()
        self._place = place
        self._could_run: dict[Hashable, bool] = {}
        self.sure: set[Hashable] = set()
        """The kinds of which it is known that every job could run."""

    def why_never(self, view: View, job: JobView, kind: Hashable, shapes: Sequence[Shape]) -> str:
        """Why the job fits in none of these shapes even on the empty cluster; empty if it fits. Jobs of one kind have
        the same shapes."""
        request = (kind, self._place.key(job, math.inf)) if self._place.has_keys else kind
        could = self._could_run.get(request)
        if could is None:
            could = any(self._fits(job, shape) for shape in shapes)
            self._could_run[request] = could
            if could and not self._place.has_keys:
                self.sure.add(kind)
        return "" if could else why_never_fits(view.cluster, job, shapes[0], lambda less: self._fits(job, less))

    def _fits(self, job: JobView, shape: Shape) -> bool:
        return self._place.find(self._blank.cluster, self._trial, job, shape, math.inf) is not None


def admits(planner: Planner, possible: Possible, view: View, plan: Plan, job: JobView) -> bool:
    """True if the job may be queued. One that could not run even on the whole cluster is rejected."""
    if job.state is not PENDING or not job.is_ready:
        return False
    never = "" if job.shapes in possible.sure else planner.why_never(view, job)
    if never:
        plan.reject(job, never)
    return not never
