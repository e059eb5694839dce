"""The planner of most policies: small parts, and the walk that calls them.

    estimate   what will it need?          read by the order
    order      who goes first?             keys of the lines
    allocate   how much does each get?     the shapes to try
    place      on which cells?             `find`
    preempt    who makes room?             running jobs that may be stopped for a pending one
    adjust     what else may be changed?   after the walk: move, resize, suspend, pack

The caches of a pipeline are separate modules: `pending.py` (lines), `running.py`, `job_timers.py`, `leaving.py`,
`reasons.py` (why jobs wait), `kept_keys.py`, `possible.py`. All of them follow from the state.

A line whose head failed is tried again only after an event that could help it (counted by the *epoch*), and only the
heads of the lines are tried, so the cost of a decision depends on what it changes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator

from skep.core.cluster import Allocation
from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.model import Shape
from skep.core.plan import Decision, Plan
from skep.core.refusal import Refusal
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Adjuster, Preemption
from skep.policies.adjust.preempt import ByPriority, Preempt
from skep.policies.allocate.base import Allocator, AsRequested
from skep.policies.easy import backfill
from skep.policies.estimate.duration import Duration
from skep.policies.explain import refusal_of
from skep.policies.job_timers import JobTimers
from skep.policies.kept_keys import KeptKeys
from skep.policies.leaving import Leaving
from skep.policies.lines import NOT_TRIED, Entry, Head, Line
from skep.policies.order.base import RISES, Key, Order
from skep.policies.pending import Pending
from skep.policies.place import Place
from skep.policies.possible import Possible
from skep.policies.reasons import Reasons
from skep.policies.room import Room, lacking, make_room
from skep.policies.running import Running
from skep.policies.seats import Seats

STRICT, SKIP, EASY = "strict", "skip", "easy"


class Pipeline:
    """The planner made of these parts."""

    round_s = 0.0

    def __init__(
        self,
        *,
        name: str,
        order: Order,
        place: Place,
        estimate: Duration | None = None,
        allocate: Allocator | None = None,
        preempt: Preemption | None = None,
        adjust: tuple[Adjuster, ...] = (),
        walk: str = SKIP,
        borrows: bool = True,
    ) -> None:
        self.name = name
        self.estimate: Duration = estimate or Duration()
        self.order = order
        self.allocate: Allocator = allocate or AsRequested()
        self.place = place
        self.preempt: Preemption = preempt or ByPriority()
        self.adjust = adjust
        self.walk = walk
        self.borrows = borrows
        """In a virtual cluster: whether a job that does not fit may run on borrowed cells."""
        self.ignores_ends = not adjust and order.ignores_ends() and type(self).plan is Pipeline.plan
        """True if the end of a job requires no decision while no job waits."""
        self.has_groups = type(order).group_key is not Order.group_key
        """Whether groups of jobs take turns; else all have the key 0."""
        self.is_rising = order.moves == RISES
        is_by_order = type(self.preempt) in (ByPriority, Preempt)
        self.is_as_requested = isinstance(self.allocate, AsRequested)
        self.keeps_hope = is_by_order and not adjust and not self.is_rising and self.is_as_requested
        """True if what a pending job can reach grows only by GPUs that are counted: what may be stopped depends on keys
        alone, no running job changes its size, and no key rises unseen."""
        self.keeps_bounds = is_by_order and self.is_rising
        order_changes, place_changes = type(order).changes_at, type(place).changes_at
        self.has_moments = order_changes is not Order.changes_at or place_changes is not Place.changes_at
        """Whether jobs have moments at which they change by themselves, so that `timers` is used at all."""

    # Derived from the state ------------------------------------------------------------------------------------

    def attach(self, view: View, memory: Memory) -> None:
        self.pending = Pending()
        self.seats = Seats()
        self.running = Running(self.seats if self.adjust else None)
        self.suspended: dict[int, JobView] = {}
        """By seq, in the order of their suspension."""
        self.timers = JobTimers()
        self.leaving = Leaving(self.order)
        self.reasons = Reasons(self.order, self.pending)
        self.keys = KeptKeys(memory)
        self.possible = Possible(view, self.place)
        self.has_fixed = False
        """True if there may be running jobs that must not be preempted."""
        self.epoch = 0
        """Increases when something happens that could help a job which did not fit."""
        self.walked_epoch = -1
        self.is_bounded = False
        """True if lines that were found quiet are still so (`Line.is_quiet`): no job was started, and none reported
        another speed."""
        self.bounded_by = (-1, -1)
        self.spared_s = -math.inf
        """When a launching job was last spared (`Running.has_spared`)."""
        self.order.attach(view)
        self.place.attach(view)
        for job in view.placed_jobs():
            if job.state is JobState.SUSPENDED:
                self.suspended[job.seq] = job
            else:
                self._keep_running(job, None, view.now_s)
        self.unseen: list[JobView] = []
        """Pending jobs that no planner has seen yet."""
        for job in view.jobs.values():
            if job.state is JobState.STOPPING:
                self.leaving.add(job, view.now_s)
            elif job.state is JobState.PENDING and job.is_ready:
                if job.waiting is None:
                    self.unseen.append(job)
                else:
                    self.reasons.resume(view, job, self._enqueue(view, None, job))
        for adjuster in self.adjust:
            adjuster.attach(view)

    # The decision ----------------------------------------------------------------------------------------------

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        if self.order.remembers:
            self.keys.write(plan)
        self._take_in(view, plan, trigger)
        if self.is_rising:
            known_by = (self.running.gpus_added, view.knowledge.report_count)
            self.is_bounded = self.keeps_bounds and self.bounded_by == known_by
            self.running.refresh(trigger.started, is_steady=self.bounded_by == known_by)
        is_idle = self.has_no_work(trigger)
        fresh = [] if is_idle else self._fill(view, plan, trigger)
        wake_s = self._adjust(view, plan, trigger) if self.adjust else math.inf
        for job in self.order.settle(plan, view.now_s):
            self.running.remove(job)
            self._keep_running(job, plan, view.now_s)
        if not is_idle:
            freed = trigger.ended or trigger.returned or trigger.nodes_changed or trigger.withdrawn
            changed = bool(plan.decisions or freed)
            self.reasons.book(view, plan, fresh, changed=changed)
        if self.has_moments:
            wake_s = min(wake_s, self.timers.next_s)
        if self.running.has_spared and self.spared_s != view.now_s:
            self.spared_s = wake_s = view.now_s  # once: in a simulation it runs by then, else its start wakes us
        if self.is_rising and self.preempt.preempts:
            wake_s = min(wake_s, self._next_crossing(view))
        plan.wake(wake_s if wake_s < math.inf else None)
        return plan

    def _fill(self, view: View, plan: Plan, trigger: Trigger) -> list[JobView]:
        """Start the jobs that can be started. Returns the jobs that are pending for the first time."""
        arrived = [*self.unseen, *trigger.returned, *trigger.submitted]
        if len(arrived) > 1:
            arrived = list({job.seq: job for job in arrived}.values())
        self.unseen = []
        fresh = []
        for job in arrived:
            if self._admit(view, plan, job):
                fresh.append(job)
        self._walk(view, plan)
        if self.walk == EASY:
            for line in list(self.pending.active.values()):
                for job, allocation in backfill(view, plan, self.place, self.estimate, self.running, line):
                    self.pending.remove(job)
                    self._give(view, plan, job, allocation)
        return fresh

    def has_no_work(self, trigger: Trigger) -> bool:
        """True if no startable job is pending, so that freed resources change nothing."""
        return not (self.pending.entries or self.unseen or trigger.submitted or trigger.returned)

    def _take_in(self, view: View, plan: Plan, trigger: Trigger) -> None:
        """Update the indexes with the events."""
        now_s, order = view.now_s, self.order
        for job in trigger.withdrawn:
            self.withdraw(job)
        if self.has_moments:
            for job in trigger.started:
                if job.seq in self.running.by_seq:
                    self.timers.set(job, order.changes_at(job, job.held_since_s))
        for job in trigger.ended:
            self.let_go(view, plan, job)
        for job in trigger.returned:
            self.let_go(view, plan, job)
        for job in trigger.ended:
            order.ended(job, plan, now_s)
        for job in trigger.withdrawn:
            if job.state.is_final:
                order.ended(job, plan, now_s)
        if trigger.ended or trigger.nodes_changed or self.running.has_spared:
            self.epoch += 1
            self.running.has_spared = False
        if trigger.nodes_changed:
            for line in self.pending.active.values():
                line.hope = 0
        if self.has_moments:
            for job in self.timers.take_due(now_s):
                self._rekey(view, plan, job)

    def _admit(self, view: View, plan: Plan, job: JobView) -> bool:
        """Queue a job, unless it could not run even on the whole cluster."""
        if job.seq in self.pending.entries or job.state is not JobState.PENDING or not job.is_ready:
            return False
        never = self.why_never(view, job)
        if never:
            plan.reject(job, never)
            return False
        self._enqueue(view, plan, job)
        return True

    def why_never(self, view: View, job: JobView) -> str:
        """Why the job could not run even on the whole cluster; empty if it could."""
        return self.possible.why_never(view, job, job.spec.shapes, self.allocate.shapes(job))

    def _enqueue(self, view: View, plan: Plan | None, job: JobView) -> Line:
        line, now_s = self._line(view, job), view.now_s
        self.pending.add(line, self._entry(job, plan, now_s))
        if self.has_moments:
            self.timers.set(job, min(self.order.changes_at(job, now_s), self.place.changes_at(job, now_s)))
        return line

    def _line(self, view: View, job: JobView) -> Line:
        group, shapes = self.order.group(job), job.spec.shapes
        is_strict = self.walk != SKIP
        kind: Hashable = group if is_strict else (group, shapes, self.place.key(job, view.now_s))
        line = self.pending.lines.get(kind)
        if line is None:
            pools = view.cluster.pools_for(shapes[0].gpu_types)
            scope, needs_free = f"{self.name} {kind!r}", self.place.needs_free
            line = Line(group, scope, shapes, pools, is_strict=is_strict, needs_free=needs_free)
            self.pending.lines[kind] = line
        return line

    def _entry(self, job: JobView, plan: Plan | None, now_s: float) -> Entry:
        key = self.order.key(job, now_s)
        if self.order.remembers:
            key = self.keys.keep(job, key, plan)
        return (job.rank, key, job.seq, job)

    def _rekey(self, view: View, plan: Plan, job: JobView) -> None:
        """The timer of this job: its key, or the placements it accepts, change now."""
        self.order.rekeyed(job, plan, view.now_s)
        if job.seq in self.pending.entries:
            line = self.pending.remove(job)
            if line.entries:
                self.pending.touched[line.scope] = line
            line = self._enqueue(view, plan, job)
            line.tried = NOT_TRIED
            if not line.is_strict:
                self.reasons.moved.append(job)
        elif job.allocation is not None:
            self.running.remove(job)
            self._keep_running(job, plan, view.now_s)
            self.epoch += 1

    def _keep_running(self, job: JobView, plan: Plan | None, now_s: float) -> None:
        if not job.spec.preemptible:
            self.has_fixed = True
        self.running.add(self._entry(job, plan, now_s))
        if self.has_moments:
            self.timers.set(job, self.order.changes_at(job, now_s))

    # The walk --------------------------------------------------------------------------------------------------

    def _walk(self, view: View, plan: Plan) -> None:
        """Try the heads of the lines in order; a line is finished when its head fails."""
        group_key = self.order.group_key
        is_strict = self.walk != SKIP
        if is_strict:
            self.leaving.refresh(view.now_s)
        heads = self._heads(view)
        if not heads:
            return
        held_up = []
        while heads:
            group, rank, key, seq, line = heads[0]
            if self.has_groups and group != group_key(line.group):
                heapq.heapreplace(heads, (group_key(line.group), rank, key, seq, line))
                continue
            entry = line.entries[0]
            if is_strict and self.leaving.holds_up(line.group, entry):
                held_up.append(line)
            elif self._start(view, plan, line, entry):
                self.pending.remove(entry[3])
                line.tried = NOT_TRIED  # the job may come back to it
                if self.epoch != self.walked_epoch:
                    heads = self._heads(
                        view
                    )  # the preemptions freed more than needed; the rest goes to the first in order
                    continue
                if line.entries:
                    rank, key, seq, _ = line.entries[0]
                    group = group_key(line.group) if self.has_groups else 0.0
                    heapq.heapreplace(heads, (group, rank, key, seq, line))
                    continue
            else:
                line.tried = (seq, self.epoch)
            heapq.heappop(heads)
        for line in held_up:
            self.pending.touched[line.scope] = line

    def _heads(self, view: View) -> list[tuple[float, int, Key, int, Line]]:
        """A heap of the lines to try: all after something was freed, otherwise those with a new head.

        A head that lacked some GPUs is left out until as many more are free, or held by jobs that were started since:
        what it could reach when it failed has not grown by itself.
        """
        order, running, epoch, pools = self.order, self.running, self.epoch, view.cluster.pools
        group_key, may_help, is_rising = order.group_key, self.preempt.may_help, self.is_rising
        lines = self.pending.active if is_rising or epoch != self.walked_epoch else self.pending.touched
        self.walked_epoch = epoch
        self.pending.touched = {}
        has_types = len(pools) > 1
        free = 0 if has_types or not pools else pools[0].free
        added, is_bounded, now_s = running.gpus_added, self.is_bounded, view.now_s
        heads = []
        for line in lines.values():
            if not line.entries:
                continue
            entry = line.entries[0]
            rank, key, seq, _ = entry
            if has_types:
                free = line.free()
            if is_rising:
                if is_bounded and line.is_plain and line.is_quiet(free, now_s):
                    continue
            elif line.tried[0] == seq and (line.tried[1] == epoch or free + added < line.hope):
                continue
            if not line.is_plain or line.gpus <= free or may_help(order, running, entry):
                heads.append((group_key(line.group) if self.has_groups else 0.0, rank, key, seq, line))
        if len(heads) > 1:
            heapq.heapify(heads)
        return heads

    def _start(self, view: View, plan: Plan, line: Line, entry: Entry) -> bool:
        job = entry[3]
        if line.tried != (job.seq, self.epoch) and line.could_fit():
            for shape in self.allocate.shapes(job):
                allocation = self.place.find(view.cluster, plan, job, shape, view.now_s)
                if allocation is not None:
                    self._give(view, plan, job, allocation)
                    return True
        if not self.preempt.may_help(self.order, self.running, entry):
            return False
        may_count = self.keeps_bounds and line.is_plain
        if may_count and self.running.lacks(self.order, entry, line.gpus - line.free(), view.now_s):
            line.passed = None
            return False
        reachable = self.preempt.reachable(view, self.order, self.running, entry)
        if self.is_rising and line.passed is not None and line.tried == (job.seq, self.epoch):
            reachable = list(reachable)
            if line.passed == [other.seq for other in reachable]:
                return False  # nothing was freed, and the same jobs have passed it as when they were not enough
        return self._push_out(view, plan, line, entry, reachable)

    def _push_out(self, view: View, plan: Plan, line: Line, entry: Entry, reachable: Iterable[JobView]) -> bool:
        job = entry[3]
        shapes = self.allocate.shapes(job)
        if len(shapes) > 1:
            reachable = list(reachable)
        line.passed, is_lacking = None, True
        for shape in shapes:
            missing = self._missing(view, job, shape)
            lacks = lacking(view, self.place, job, shape, reachable, missing)
            if self.is_rising and not self.order.is_even:
                line.quiet_seq, line.quiet_missing = job.seq, missing
                line.quiet_lacks = max(lacks or 0.0, 0.0)
            if lacks is not None:
                if self.keeps_hope and line.is_plain:
                    line.hope = line.free() + self.running.gpus_added + max(lacks, 1)
                continue
            is_lacking = False
            line.hope = 0
            candidates = self.preempt.candidates(view, self.order, self.running, entry)
            if self.has_fixed:
                candidates = (victim for victim in candidates if victim.spec.preemptible)
            with plan.bundle():
                room = make_room(view, plan, self.place, job, shape, candidates, missing)
                if room is not None:
                    self._make_way(view, plan, job, room)
            if room is not None:
                if sum(victim.gpus for victim in room.victims) != job.gpus:
                    self.epoch += 1  # something is left for others
                return True
        if self.is_rising and is_lacking:
            line.passed = [other.seq for other in self.preempt.reachable(view, self.order, self.running, entry)]
        return False

    def _make_way(self, view: View, plan: Plan, job: JobView, room: Room) -> None:
        for victim in room.victims:
            self.let_go(view, plan, victim)
            if self.walk != SKIP:
                self.leaving.add(victim, view.now_s)
        self._give(view, plan, job, room.allocation)

    def _give(self, view: View, plan: Plan, job: JobView, allocation: Allocation) -> None:
        plan.start(job, allocation)
        self.take_over(view, plan, job)

    def _missing(self, view: View, job: JobView, shape: Shape) -> int:
        """The smallest number of GPUs that others would have to release; shared jobs may fit on GPUs that are not
        free."""
        return 0 if job.gpus < shape.gpus else shape.gpus - view.cluster.free_gpus(shape.gpu_types)

    def _next_crossing(self, view: View) -> float:
        """The next time at which the head of a line could preempt running jobs that it cannot preempt now."""
        heads: list[Head] = []
        for line in self.pending.active.values():
            entry = line.entries[0]
            if line.is_plain and self.is_as_requested:
                missing = line.gpus - line.free()
            else:
                missing = min(self._missing(view, entry[3], shape) for shape in self.allocate.shapes(entry[3]))
            heads.append((line, entry, missing))
        if not heads:
            self.bounded_by = (-1, -1)
            return math.inf
        self.bounded_by = (self.running.gpus_added, view.knowledge.report_count)
        return self.running.next_crossing(self.order, heads, view.now_s)

    # Adjusters -------------------------------------------------------------------------------------------------

    def pending_jobs(self) -> Iterator[JobView]:
        return self.pending.in_order(self.order.group_key)

    def offer_pending(self, attempt: Callable[[JobView], bool]) -> None:
        self.pending.offer(self.order.group_key, attempt)

    def walk_again(self) -> None:
        self.epoch += 1

    def running_jobs(self) -> Iterator[JobView]:
        return (entry[3] for entry in self.running.entries)

    def suspended_jobs(self) -> Iterator[JobView]:
        return iter(self.suspended.values())

    def _adjust(self, view: View, plan: Plan, trigger: Trigger) -> float:
        """Call the adjusters in turn, and walk again after each that freed GPUs, so that the next one sees only pending
        jobs that do not fit. Returns when they want to be called again."""
        wake_s = math.inf
        for adjuster in self.adjust:
            number = len(plan.decisions)
            wake_s = min(wake_s, adjuster.adjust(view, plan, trigger, self))
            if len(plan.decisions) > number and self._follow(view, plan, plan.decisions[number:]):
                self.epoch += 1
            if self.epoch != self.walked_epoch and self.pending.entries:
                self._walk(view, plan)
        return wake_s

    def _follow(self, view: View, plan: Plan, decisions: list[Decision]) -> bool:
        """Update the queue and the running jobs with an adjuster's decisions. Returns True if cells were released."""
        has_freed = False
        for job_id, before in {each.job_id: each.before for each in reversed(decisions)}.items():
            job = view.jobs[job_id]
            if job.seq in self.pending.entries and job.state is not JobState.PENDING:
                self.pending.remove(job)
            had_cells = before is not None and not before.is_suspended
            has_cells = job.allocation is not None and not job.allocation.is_suspended
            is_reshared = before is not None and job.allocation is not None and job.allocation.has_seats_of(before)
            has_freed |= had_cells and not is_reshared
            if had_cells and not has_cells:
                self.let_go(view, plan, job)
            if job.state is JobState.SUSPENDED:
                self.suspended[job.seq] = job
            elif has_cells:
                self.suspended.pop(job.seq, None)
                self.running.remove(job)
                if not had_cells:
                    self.order.entered(job, plan, view.now_s)
                self._keep_running(job, plan, view.now_s)
        return has_freed

    # Also for the planner of virtual clusters --------------------------------------------------------------------

    def absorb(self, trigger: Trigger) -> bool:
        """Process jobs that have ended if `plan` would decide and write nothing. False: `plan` must be called."""
        if trigger.submitted or trigger.nodes_changed or trigger.is_timer or trigger.withdrawn or not self.ignores_ends:
            return False
        if not self.has_no_work(trigger) or self.timers or self.keys.has_unwritten:
            return False
        for job in trigger.ended:
            self.suspended.pop(job.seq, None)
            self.running.remove(job)
        self.epoch += 1
        return True

    def withdraw(self, job: JobView) -> None:
        """This pending job is not ours to start: it is held, has ended, or another planner has started it."""
        if job.seq in self.pending.entries:
            line = self.pending.remove(job)
            line.tried = NOT_TRIED  # it may return with another priority
            if self.has_moments:
                self.timers.drop(job)
            if line.entries:
                self.pending.touched[line.scope] = line

    def take_over(self, view: View, plan: Plan, job: JobView) -> None:
        """A job that got cells, from us or another planner, counts as one of ours from now on."""
        now_s = view.now_s
        self.order.entered(job, plan, now_s)
        self._keep_running(job, plan, now_s)

    def let_go(self, view: View, plan: Plan, job: JobView) -> None:
        """The job released its cells: it ended, was preempted, or another planner has taken it over."""
        if self.suspended:
            self.suspended.pop(job.seq, None)
        if job.seq in self.running.by_seq:  # otherwise we stopped or suspended it before
            self.running.remove(job)
            if self.has_moments:
                self.timers.drop(job)
            self.order.left(job, plan, view.now_s)

    def may_pass(self, view: View, job: JobView) -> bool:
        """True if this job may fit where the jobs waiting here do not."""
        if self.walk == SKIP:
            return True
        entry = (job.rank, self.order.key(job, view.now_s), job.seq)
        group = self.order.group(job)
        return all(line.entries[0][:3] > entry for line in self.pending.active.values() if line.group == group)

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        place = self.pending.entries.get(job.seq)
        if place is None:
            return refusal_of(view, job, None)
        return refusal_of(view, job, self.reasons.cause(view, place[0], job), self.pending.before(job))
