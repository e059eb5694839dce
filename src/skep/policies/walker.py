"""The walk of a pipeline: it tries the heads of the lines in order, and makes room for those that may preempt.

Only the heads of the lines are tried, and one that failed only when that can help: after an event (counted by the
*epoch*), or, where keys of running jobs rise, when enough of them may have passed it (`policies/crossings.py`). So the
cost of a walk depends on what has changed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from skep.core.cluster import Allocation
from skep.core.job import JobState
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.adjust.base import Preemption
from skep.policies.allocate.base import Allocator
from skep.policies.crossings import LineHead
from skep.policies.lines import NOT_TRIED, Entry, Line
from skep.policies.place import Place
from skep.policies.room import lacking, make_room
from skep.policies.roster import Roster

LAUNCHING = JobState.LAUNCHING

Ranked = tuple[float, Entry, Line]
"""(key of the group, first entry, line): lines in the order in which they are tried."""


class Walker:
    """Starts the pending jobs of a roster."""

    def __init__(self, roster: Roster, allocate: Allocator, place: Place, preempt: Preemption) -> None:
        self.roster = roster
        self.order = roster.order
        self.allocate = allocate
        self.place = place
        self.preempt = preempt
        self.crossings = roster.running.crossings
        self.walked_epoch = -1
        self.given: list[JobView] = []
        """Where running jobs cross heads: the jobs that were started at `given_s`."""
        self.given_s = self.spared_s = -math.inf
        """`spared_s`: when a launching job was last spared (`Running.has_spared`)."""

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

    def _head(self, line: Line) -> Ranked:
        return (self.order.group_key(line.group) if self.order.ranks_groups else 0.0, line.entries[0], line)

    def heads(self, view: View) -> list[Ranked]:
        """A heap of the lines to try: all after something was freed or may have been crossed, otherwise those with a
        new head. `Crossings.may_try` leaves out heads that are certain to fail again."""
        pending, crossings, now_s = self.roster.pending, self.crossings, view.now_s
        is_known = pending.epoch == self.walked_epoch and crossings.is_settled
        lines = pending.touched if is_known else pending.active
        self.walked_epoch = pending.epoch
        if not lines:
            return []
        heads: list[Ranked] = []
        pools, edge = view.cluster.pools, self.preempt.edge(self.order, self.roster.running)
        pending.touched = {}
        has_types, free = len(pools) != 1, pools[0].free if pools else 0
        for line in lines.values():
            if not line.entries:
                continue
            entry = line.entries[0]
            if has_types:
                free = line.free()
            if line.gpus > free and entry >= edge and line.is_plain:
                continue
            if crossings.may_try(line, entry, free, now_s):
                heads.append(self._head(line))
        if len(heads) > 1:
            heapq.heapify(heads)
        return heads

    def _start(self, view: View, plan: Plan, line: Line, entry: Entry) -> bool:
        job, now_s = entry[3], view.now_s
        missing = 0
        if line.is_plain:
            missing = line.gpus - (line.free() if line.pool is None else line.pool.free)
        if missing <= 0 and line.tried != (job.seq, self.roster.pending.epoch):
            for shape in self.allocate.shapes(job):
                allocation = self.place.find(view.cluster, plan, job, shape, now_s)
                if allocation is not None:
                    self.give(view, plan, entry, allocation)
                    return True
        if entry >= self.preempt.edge(self.order, self.roster.running):
            return False
        if line.is_plain and self.crossings.moves:
            is_lacking = self.crossings.lacks(LineHead(line, entry, missing), now_s)
            if is_lacking:
                return False
            if is_lacking is False and missing > 0 and not self.place.keeps_together(job, now_s):
                return self._preempt(view, plan, entry, job.shapes[0], missing)
        return self._push_out(view, plan, line, entry, missing)

    def _push_out(self, view: View, plan: Plan, line: Line, entry: Entry, missing: int) -> bool:
        """Start the job in the first shape for which preempting some jobs makes room. `missing`: the GPUs that a plain
        request needs beyond the free ones."""
        job = entry[3]
        shapes = self.allocate.shapes(job)
        reachable = self.preempt.reachable(view, self.order, self.roster.running, entry)
        if len(shapes) > 1:
            reachable = list(reachable)
        for shape in shapes:
            if not line.is_plain:
                missing = missing_gpus(view, job, shape)
            lacks = lacking(view, self.place, job, shape, reachable, missing)
            if self.crossings.moves:
                self.crossings.failed(LineHead(line, entry, missing), lacks or 0.0)
            if lacks is None and self._preempt(view, plan, entry, shape, missing):
                return True
        return False

    def _preempt(self, view: View, plan: Plan, entry: Entry, shape: Shape, missing: int) -> bool:
        """Preempt as few jobs as possible, if the job then fits."""
        roster, job = self.roster, entry[3]
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
        if self.crossings.moves:
            if self.given_s != view.now_s:
                self.given, self.given_s = [], view.now_s
            self.given.append(entry[3])

    def note_spared(self, view: View, fresh: list[JobView]) -> None:
        """Jobs that were preempted at this instant, and now wait, may stop others that were started at it before, as
        soon as those run. (Where keys do not rise, `may_stop` notes it.)"""
        order, now_s, entries = self.order, view.now_s, self.roster.pending.entries
        behind = [entries[job.seq][1] for job in fresh if job.seq in entries]
        launching = [job for job in self.given if job.decided_s == now_s and job.state is LAUNCHING] if behind else []
        for waiting in behind if launching else ():
            cutoff = order.cutoff(waiting[3], waiting[1])
            if any((job.rank, order.running_key(job, now_s), job.seq) > cutoff for job in launching):
                self.roster.running.has_spared = True
                return

    def wake_s(self, view: View) -> float:
        """When the queue must be walked again although nothing happens."""
        wake_s = math.inf
        if self.roster.running.has_spared and self.spared_s != view.now_s:
            self.spared_s = wake_s = view.now_s  # once: in a simulation it runs by then, else its start wakes us
        crossing_s = self.crossings.known_s()
        if crossing_s is None:
            crossing_s = self.crossings.next_s(self._all_heads(view), view)
        return min(wake_s, crossing_s)

    def _all_heads(self, view: View) -> list[LineHead]:
        pending, pools = self.roster.pending, view.cluster.pools
        if not pending.active:
            return []
        if len(pools) == 1 and not pending.odd:
            free = pools[0].free
            return [LineHead(line, line.entries[0], line.gpus - free) for line in pending.active.values()]
        return [LineHead(line, line.entries[0], self._missing(view, line)) for line in pending.active.values()]

    def _missing(self, view: View, line: Line) -> int:
        """The smallest number of GPUs that the head needs beyond the free ones."""
        if line.is_plain:
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
