"""The jobs of a pipeline: pending ones in lines, running ones in order, suspended ones, and when each of them changes
by itself. All of it follows from the state."""

from __future__ import annotations

import math
from collections.abc import Hashable

from skep.core.cluster import WHOLE
from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.adjust.base import Preemption
from skep.policies.crossings import Crossings, NoCrossings
from skep.policies.drifting import Drifting
from skep.policies.job_timers import JobTimers
from skep.policies.kept_keys import KeptKeys
from skep.policies.lines import NOT_TRIED, Entry, Line, Pending
from skep.policies.order.base import RISES, Order
from skep.policies.place import Place
from skep.policies.rising import Rising
from skep.policies.running import Leaving, Running
from skep.policies.seats import Seats


class Roster:
    """Where every job of a pipeline is kept, and under which key."""

    def __init__(
        self,
        name: str,
        order: Order,
        place: Place,
        memory: Memory,
        preempt: Preemption,
        *,
        is_strict: bool,
        has_seats: bool,
    ) -> None:
        self.name = name
        self.order = order
        self.place = place
        self.is_strict = is_strict
        self.pending = Pending()
        self.seats = Seats()
        """Up to date only with `has_seats`."""
        crossings = make_crossings(order, preempt, self.pending, may_settle=not has_seats)
        self.running = Running(crossings, self.seats if has_seats else None)
        self.suspended: dict[int, JobView] = {}
        """By seq, in the order of their suspension."""
        self.leaving = Leaving(order)
        self.timers = JobTimers()
        self.keys = KeptKeys(memory)
        self.remembers = order.remembers
        self.keeps_entries = order.start_keeps_key and not order.remembers
        self.has_fixed = False
        """True if there may be running jobs that must not be preempted."""
        self.has_models = place.standstills.are_known
        """Whether it may depend on the model beside whom a job can run."""
        self.is_by_shape = not (order.has_groups or place.has_keys or is_strict or self.has_models)
        """True if jobs of the same shapes are in the same line."""
        self.has_moments = order.jumps or place.jumps
        """Whether jobs have moments at which they change by themselves, so that `timers` is used at all."""
        self.pending_change = place.jumps or (order.jumps and order.pending_change)
        """Whether pending jobs have such moments."""

    # Pending jobs ----------------------------------------------------------------------------------------------

    def enqueue(self, view: View, plan: Plan | None, job: JobView) -> Line:
        now_s = view.now_s
        kind: Hashable = job.shapes if self.is_by_shape else self._kind(job, now_s)
        line = self.pending.lines.get(kind)
        if line is None:
            line = self.pending.lines[kind] = self.new_line(view, job)
        key = self.order.key(job, now_s)
        if self.remembers:
            key = self.keys.keep(job, key, plan)
        self.pending.add(line, (job.rank, key, job.seq, job))
        if self.pending_change:
            self.timers.set(job, min(self.order.changes_at(job, now_s), self.place.changes_at(job, now_s)))
        return line

    def new_line(self, view: View, job: JobView) -> Line:
        """An empty line for jobs like this one; it is in no queue yet."""
        shapes = job.shapes
        group, pools = self.order.group(job), view.cluster.pools_for(shapes[0].gpu_types)
        scope, needs_free = f"{self.name} {self._kind(job, view.now_s)!r}", self.place.needs_free
        return Line(group, scope, shapes, pools, is_strict=self.is_strict, needs_free=needs_free)

    def kind(self, job: JobView, now_s: float) -> Hashable:
        """The key of its line."""
        return job.shapes if self.is_by_shape else self._kind(job, now_s)

    def _kind(self, job: JobView, now_s: float) -> Hashable:
        """What the jobs of a line have in common."""
        group, shapes = self.order.group(job), job.shapes
        if self.is_strict:
            return group
        key = self.place.key(job, now_s)
        if self.has_models and (shapes[0].gpu_milli < WHOLE or not self.place.needs_free):
            key = (key, job.spec.model)
        return (group, shapes, key)

    def withdraw(self, job: JobView) -> None:
        """This pending job is not ours to start: it is held, has ended, or another planner has started it."""
        if job.seq in self.pending.entries:
            line = self.pending.remove(job)
            line.tried = NOT_TRIED  # it may return with another priority
            if self.has_moments:
                self.timers.drop(job)
            if line.entries:
                self.pending.touched[line.scope] = line

    # Jobs with cells -------------------------------------------------------------------------------------------

    def take_over(self, plan: Plan, job: JobView, now_s: float, pending: Entry | None = None) -> None:
        """A job that got cells, from us or another planner, counts as one of ours from now on. `pending`: its entry
        until now."""
        if self.order.hears_starts:
            self.order.entered(job, plan, now_s)
        self.keep_running(job, plan, now_s, pending if self.keeps_entries else None)

    def keep_running(self, job: JobView, plan: Plan | None, now_s: float, entry: Entry | None = None) -> None:
        if not job.spec.preemptible:
            self.has_fixed = True
        if entry is None:
            key, changes_s = self.order.key_and_change(job, now_s)
            if self.remembers:
                key = self.keys.keep(job, key, plan)
            entry = (job.rank, key, job.seq, job)
        else:
            changes_s = self.order.changes_at(job, now_s) if self.has_moments else math.inf
        self.running.add(entry)
        if self.has_moments:
            self.timers.set(job, changes_s)

    def reorder(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The key of this running job has changed."""
        self.running.remove(job)
        self.keep_running(job, plan, now_s)

    def let_go(self, plan: Plan, job: JobView, now_s: float) -> None:
        """The job released its cells: it ended, was preempted, or another planner has taken it over."""
        if self.suspended:
            self.suspended.pop(job.seq, None)
        if job.seq in self.running.by_seq:  # otherwise we stopped or suspended it before
            self.running.remove(job)
            if self.has_moments:
                self.timers.drop(job)
            if self.order.hears_stops:
                self.order.left(job, plan, now_s)

    # Either ----------------------------------------------------------------------------------------------------

    def rekey(self, view: View, plan: Plan, job: JobView) -> Line | None:
        """The timer of this job: its key, or the placements it accepts, change now. Returns the new line of a pending
        job."""
        self.order.rekeyed(job, plan, view.now_s)
        if job.seq in self.pending.entries:
            line = self.pending.remove(job)
            if line.entries:
                self.pending.touched[line.scope] = line
            line = self.enqueue(view, plan, job)
            line.tried = NOT_TRIED
            return line
        if job.allocation is not None:
            self.reorder(job, plan, view.now_s)
            self.pending.epoch += 1
        return None


def make_crossings(order: Order, preempt: Preemption, pending: Pending, *, may_settle: bool) -> Crossings:
    if order.moves != RISES or not preempt.preempts:
        return NoCrossings(pending)
    kind = Rising if order.is_even else Drifting
    return kind(order, pending, is_bounded=preempt.is_by_order, may_settle=may_settle)
