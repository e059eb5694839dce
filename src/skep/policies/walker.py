"""The walk of a pipeline: it tries the heads of the lines in order, and makes room for those that may preempt.

A line whose head failed is tried again only after an event that could help it (counted by the *epoch*), and only the
heads of the lines are tried, so the cost of a walk depends on what has changed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from skep.core.cluster import Allocation
from skep.core.job import JobState
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Preemption
from skep.policies.adjust.preempt import ByPriority, Preempt
from skep.policies.allocate.base import Allocator, AsRequested
from skep.policies.lines import NOT_TRIED, Entry, Line
from skep.policies.order.base import RISES
from skep.policies.place import Place
from skep.policies.room import lacking, make_room
from skep.policies.roster import Roster

LAUNCHING = JobState.LAUNCHING

LineHead = tuple[float, Entry, Line]
"""(key of the group, first entry, line)."""


class Walker:
    """Starts the pending jobs of a roster."""

    def __init__(
        self, roster: Roster, allocate: Allocator, place: Place, preempt: Preemption, *, sizes_change: bool
    ) -> None:
        """`sizes_change`: others may change the size of running jobs."""
        self.roster = roster
        self.order = order = roster.order
        self.allocate = allocate
        self.place = place
        self.preempt = preempt
        self.is_rising = order.moves == RISES
        is_by_order = type(preempt) in (ByPriority, Preempt)
        self.is_as_requested = isinstance(allocate, AsRequested)
        self.keeps_hope = is_by_order and not self.is_rising and self.is_as_requested and not sizes_change
        """True if what a pending job can reach grows only by GPUs that are counted: what may be stopped depends on keys
        alone, no running job changes its size, and no key rises unseen."""
        self.keeps_bounds = is_by_order and self.is_rising and (order.is_even or order.grain > 0)
        self.counts = self.keeps_bounds and order.is_even and self.is_as_requested
        """True if `Running.lacks` is exact for plain lines."""
        self.is_bounded = False
        """True if lines that were found quiet are still so (`Line.is_quiet`): no job was started, and none reported
        another speed."""
        self.bounded_by = (-1, -1)
        self.may_settle = self.keeps_bounds and not sizes_change
        self.standing: tuple[float, ...] | None = None
        """What failures depended on, besides the pending jobs, after the last decision (`_standing`)."""
        self.is_settled = self.has_new_heads = False
        """Settled: that is still so, and only lines with new heads must be tried."""
        self.crossing_s = math.inf
        """The last answer of `_next_crossing`."""
        self.walked_epoch = -1
        self.given: list[JobView] = []
        """Where keys rise: the jobs that were started at `given_s`."""
        self.given_s = self.spared_s = -math.inf
        """`spared_s`: when a launching job was last spared (`Running.has_spared`)."""

    def refresh(self, view: View, trigger: Trigger) -> None:
        """A decision begins: what is known about rising keys may have changed."""
        known_by = (self.roster.running.gpus_added, view.report_count)
        self.is_bounded = self.keeps_bounds and self.bounded_by == known_by
        self.is_settled = (
            self.standing is not None
            and self.standing[0] == view.now_s
            and self.standing == self._standing(view)
            and not (trigger.started or trigger.withdrawn)
        )
        self.has_new_heads = False
        if not self.is_settled:
            self.roster.running.refresh(trigger.started, is_steady=self.bounded_by == known_by)

    def _standing(self, view: View) -> tuple[float, ...] | None:
        """If this is equal at two decisions, and no job has begun to run in between, a head that failed fails again,
        and crossings are the same. None: that is not known."""
        cluster, pending, running = view.cluster, self.roster.pending, self.roster.running
        pools = cluster.pools
        if not self.may_settle or len(pools) != 1 or pending.odd:
            return None
        held = (len(running.entries), running.gpus_added, view.report_count)
        return (view.now_s, pending.epoch, pools[0].free, cluster.quota_left, *held)

    def walk(self, view: View, plan: Plan) -> None:
        """Try the heads of the lines in order; a line is finished when its head fails."""
        pending, leaving, is_strict = self.roster.pending, self.roster.leaving, self.roster.is_strict
        if is_strict:
            leaving.refresh(view.now_s)
        heads = self.heads(view)
        held_up = []
        while heads:
            group, entry, line = heads[0]
            if self.order.ranks_groups and group != self.order.group_key(line.group):
                heapq.heapreplace(heads, self._head(line))
                continue
            if is_strict and leaving.holds_up(line.group, entry):
                held_up.append(line)
            elif self._start(view, plan, line, entry):
                pending.remove(entry[3])
                line.tried = NOT_TRIED  # the job may come back to it
                if pending.epoch != self.walked_epoch:
                    heads = self.heads(view)  # preemptions freed more than needed; the rest goes to the first in order
                    continue
                if line.entries:
                    heapq.heapreplace(heads, self._head(line))
                    continue
            else:
                line.tried = (entry[2], pending.epoch)
            heapq.heappop(heads)
        for line in held_up:
            pending.touched[line.scope] = line

    def _head(self, line: Line) -> LineHead:
        return (self.order.group_key(line.group) if self.order.ranks_groups else 0.0, line.entries[0], line)

    def heads(self, view: View) -> list[LineHead]:
        """A heap of the lines to try: all after something was freed, otherwise those with a new head.

        A head that lacked some GPUs is left out until as many more are free, or held by jobs that were started since:
        what it could reach when it failed has not grown by itself.
        """
        pending, is_rising = self.roster.pending, self.is_rising
        epoch = pending.epoch
        is_known = epoch == self.walked_epoch and (self.is_settled or not is_rising)
        lines = pending.touched if is_known else pending.active
        self.walked_epoch = epoch
        if not lines:
            return []
        heads: list[LineHead] = []
        running, pools = self.roster.running, view.cluster.pools
        pending.touched, self.has_new_heads = {}, True
        has_types, free = len(pools) != 1, pools[0].free if pools else 0
        added, edge = running.gpus_added, self.preempt.edge(self.order, running)
        for line in lines.values():
            entries = line.entries
            if not entries:
                continue
            entry = entries[0]
            if has_types:
                free = line.free()
            if line.gpus > free and entry >= edge and line.is_plain:
                continue
            if is_rising:
                if self.is_bounded and line.is_plain and line.is_quiet(free, view.now_s):
                    continue
            elif line.tried[0] == entry[2] and (line.tried[1] == epoch or free + added < line.hope):
                continue
            heads.append(self._head(line))
        if len(heads) > 1:
            heapq.heapify(heads)
        return heads

    def _start(self, view: View, plan: Plan, line: Line, entry: Entry) -> bool:
        job, tried_now = entry[3], (entry[2], self.roster.pending.epoch)
        missing = 0
        if line.is_plain:
            missing = line.gpus - (line.free() if line.pool is None else line.pool.free)
        if missing <= 0 and line.tried != tried_now:
            for shape in job.shapes if self.is_as_requested else self.allocate.shapes(job):
                allocation = self.place.find(view.cluster, plan, job, shape, view.now_s)
                if allocation is not None:
                    self.give(view, plan, entry, allocation)
                    return True
        running = self.roster.running
        if entry >= self.preempt.edge(self.order, running):
            return False
        if self.keeps_bounds and line.is_plain:
            if running.lacks(self.order, (line, entry, missing), view.now_s):
                line.passed = None
                return False
            if self.counts and missing > 0 and not self.place.keeps_together(job, view.now_s):
                line.passed = None
                return self._preempt(view, plan, line, entry, job.shapes[0], missing)
        reachable = self.preempt.reachable(view, self.order, running, entry)
        if self.is_rising and line.passed is not None and line.tried == tried_now:
            reachable = list(reachable)
            if line.passed == [other.seq for other in reachable]:
                return False  # nothing was freed, and the same jobs have passed it as when they were not enough
        return self._push_out(view, plan, line, entry, reachable, missing)

    def _push_out(
        self, view: View, plan: Plan, line: Line, entry: Entry, reachable: Iterable[JobView], missing: int
    ) -> bool:
        """Start the job in the first shape for which preempting some of these makes room. `missing`: the GPUs that a
        plain request needs beyond the free ones."""
        job = entry[3]
        shapes = job.shapes if self.is_as_requested else self.allocate.shapes(job)
        if len(shapes) > 1:
            reachable = list(reachable)
        line.passed, is_lacking = None, True
        for shape in shapes:
            if not (line.is_plain and self.is_as_requested):
                missing = missing_gpus(view, job, shape)
            lacks = lacking(view, self.place, job, shape, reachable, missing)
            if self.is_rising and not self.order.is_even:
                line.quiet_seq, line.quiet_missing = job.seq, missing
                line.quiet_lacks = max(lacks or 0.0, 0.0)
            if lacks is None:
                is_lacking = False
                if self._preempt(view, plan, line, entry, shape, missing):
                    return True
            elif self.keeps_hope and line.is_plain:
                line.hope = line.gpus - missing + self.roster.running.gpus_added + max(lacks, 1)
        if self.is_rising and is_lacking:
            reachable = self.preempt.reachable(view, self.order, self.roster.running, entry)
            line.passed = [other.seq for other in reachable]
        return False

    def _preempt(self, view: View, plan: Plan, line: Line, entry: Entry, shape: Shape, missing: int) -> bool:
        """Preempt as few jobs as possible, if the job then fits."""
        roster, job = self.roster, entry[3]
        line.hope = 0
        candidates = self.preempt.candidates(view, self.order, roster.running, entry)
        if roster.has_fixed:
            candidates = (victim for victim in candidates if victim.spec.preemptible)
        number = len(plan.decisions)
        with plan.bundle():
            room = make_room(view, plan, self.place, job, shape, candidates, missing)
            if room is None:
                return False
            freed = [step.before for step in plan.decisions[number:] if step.before is not None]
            for victim in room.victims:
                roster.let_go(plan, victim, view.now_s)
                if roster.is_strict:
                    roster.leaving.add(victim, view.now_s)
            self.give(view, plan, entry, room.allocation)
        if on_nodes(freed) != on_nodes([room.allocation]):
            roster.pending.epoch += 1  # something is left for others, or the same amount on other nodes
        return True

    def give(self, view: View, plan: Plan, entry: Entry, allocation: Allocation) -> None:
        plan.start(entry[3], allocation)
        self.roster.take_over(plan, entry[3], view.now_s, entry)
        if self.is_rising:
            if self.given_s != view.now_s:
                self.given, self.given_s = [], view.now_s
            self.given.append(entry[3])

    def note_spared(self, view: View, fresh: list[JobView]) -> None:
        """Jobs that were preempted at this instant, and now wait, may stop others that were started at it before, as
        soon as those run. (Where keys do not rise, `may_stop` notes it.)"""
        order, now_s, entries = self.order, view.now_s, self.roster.pending.entries
        launching = [job for job in self.given if job.decided_s == now_s and job.state is LAUNCHING]
        for waiting in [entries[job.seq][1] for job in fresh if job.seq in entries] if launching else ():
            cutoff = order.cutoff(waiting[3], waiting[1])
            if any((job.rank, order.running_key(job, now_s), job.seq) > cutoff for job in launching):
                self.roster.running.has_spared = True
                return

    def wake_s(self, view: View) -> float:
        """When the queue must be walked again although nothing happens."""
        wake_s = math.inf
        if self.roster.running.has_spared and self.spared_s != view.now_s:
            self.spared_s = wake_s = view.now_s  # once: in a simulation it runs by then, else its start wakes us
        return min(wake_s, self._next_crossing(view)) if self.is_rising and self.preempt.preempts else wake_s

    def _next_crossing(self, view: View) -> float:
        """The next time at which the head of a line could preempt running jobs that it cannot preempt now."""
        if self.is_settled and not self.has_new_heads:
            return self.crossing_s
        running, pending, pools = self.roster.running, self.roster.pending, view.cluster.pools
        if not pending.active:
            self.bounded_by, self.standing = (-1, -1), None
            return math.inf
        lines = pending.active.values()
        if self.is_as_requested and len(pools) == 1 and not pending.odd:
            free = pools[0].free
            heads = [(line, line.entries[0], line.gpus - free) for line in lines]
        else:
            heads = [(line, line.entries[0], self._missing(view, line)) for line in lines]
        self.bounded_by = (running.gpus_added, view.report_count)
        self.standing = self._standing(view)
        self.crossing_s = running.next_crossing(self.order, heads, view.now_s)
        return self.crossing_s

    def _missing(self, view: View, line: Line) -> int:
        """The smallest number of GPUs that the head needs beyond the free ones."""
        if line.is_plain and self.is_as_requested:
            return line.gpus - line.free()
        job = line.entries[0][3]
        return min([missing_gpus(view, job, shape) for shape in self.allocate.shapes(job)])


def on_nodes(allocations: Iterable[Allocation]) -> dict[int, tuple[int, int, int]]:
    """Thousandths of GPUs and of CPUs, and MiB of memory, on each node."""
    found: dict[int, tuple[int, int, int]] = {}
    for allocation in allocations:
        for piece in allocation.slices:
            gpus, cpu, memory = piece.gpus.bit_count() * piece.milli, piece.cpu_milli, piece.memory_mib
            if piece.node in found:
                others = found[piece.node]
                gpus, cpu, memory = gpus + others[0], cpu + others[1], memory + others[2]
            found[piece.node] = (gpus, cpu, memory)
    return found


def missing_gpus(view: View, job: JobView, shape: Shape) -> int:
    """The smallest number of GPUs that others would have to release; shared jobs may fit on GPUs that are not free."""
    return 0 if job.gpus < shape.gpus else shape.gpus - view.cluster.free_gpus(shape.gpu_types)
