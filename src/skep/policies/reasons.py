"""Why pending jobs wait: booked for each line and, in strict lines, for the head by itself. Which requests could never
run, however empty the cluster."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from skep.core.cluster import WHOLE
from skep.core.job import JobState
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.refusal import Cause
from skep.core.view import JobView, View
from skep.policies.explain import why_never_fits
from skep.policies.lines import Line, Pending
from skep.policies.order.base import Order
from skep.policies.place import Place


class Reasons:
    __slots__ = ("_booked", "_order", "_pending", "moved")

    def __init__(self, order: Order, pending: Pending) -> None:
        self._order = order
        self._pending = pending
        self._booked: tuple[tuple[int, ...], float] = ((), math.nan)
        """The free GPUs of the pools, and the quota, when all lines were last examined. Nothing equals NaN."""
        self.moved: list[JobView] = []
        """Pending jobs that changed lines."""

    def resume(self, view: View, job: JobView, line: Line) -> None:
        """The job waits in the scope that the previous planner booked."""
        assert job.waiting is not None
        if job.waiting is view.waiting.get(line.scope):
            if not line.is_strict:
                line.cause = job.waiting.cause
        elif line.is_strict and job.waiting is view.waiting.get(f"head {job.id}"):
            line.head, line.cause = job, job.waiting.cause
        else:
            self.moved.append(job)

    def book(self, view: View, plan: Plan, fresh: list[JobView], *, changed: bool) -> None:
        """Book the causes of jobs that are new in their lines and, if anything has changed, of all lines."""
        if self.moved:
            fresh += self.moved
            self.moved = []
        lines: dict[str, Line] = {}
        for job in fresh:
            place = self._pending.entries.get(job.seq)
            if place is not None:
                line = place[0]
                lines[line.scope] = line
                plan.wait(job, line.scope)
                if line.head is job:
                    line.head = None  # it ran in between: as a head it must be booked again
        if changed:
            lines = self._changed(view, lines)
        for line in lines.values():
            if line.entries:
                if line.is_strict:
                    self._book_head(view, plan, line)
                else:
                    cause = self.cause(view, line, line.entries[0][3])
                    if cause is not line.cause:
                        line.cause = cause
                        plan.refuse(line.scope, cause)

    def _changed(self, view: View, fresh: dict[str, Line]) -> dict[str, Line]:
        """The lines whose causes may be others than when they were last looked at, and those with new jobs. For whole
        GPUs the cause depends on whether as many are free, and on the quota that is left."""
        cluster, pending = view.cluster, self._pending
        pools, quota_left = cluster.pools, cluster.quota_left
        free = (pools[0].free,) if len(pools) == 1 else tuple([pool.free for pool in pools])
        (before, quota_before), self._booked = self._booked, (free, quota_left)
        if self._order.may_refuse or quota_left != quota_before:
            return pending.active
        if pending.odd:
            fresh.update(pending.odd)
        if free == before:
            return fresh
        if len(free) != 1:
            return pending.active
        least, most = (free[0], before[0]) if free < before else (before[0], free[0])
        for scope, line in pending.active.items():
            if least < line.gpus <= most:
                fresh[scope] = line
        return fresh

    def _book_head(self, view: View, plan: Plan, line: Line) -> None:
        job = line.entries[0][3]
        cause = self.cause(view, line, job)
        scope = f"head {job.id}"
        if job is not line.head:
            if line.head is not None and line.head.seq in self._pending.entries:
                plan.wait(line.head, line.scope)
            plan.wait(job, scope)
        elif cause is line.cause:
            return
        line.head, line.cause = job, cause
        plan.refuse(scope, cause)

    def cause(self, view: View, line: Line, job: JobView) -> Cause:
        refused = self._order.refuses(job)
        if refused is not None:
            return refused
        shape = job.shapes[0]
        milli = shape.gpu_milli
        free = 0
        # A strict line has different requests, and `pools` belongs to its first job.
        for pool in view.cluster.pools_for(shape.gpu_types) if line.is_strict else line.pools:
            free += pool.free if milli == WHOLE else pool.with_room(milli)
        return view.cluster.why_not(shape.gpus, free)


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
