"""The planner of most policies: small parts, and the walk that calls them.

    estimate   what will it need?          read by the order
    order      who goes first?             keys of the lines
    allocate   how much does each get?     the shapes to try
    place      on which cells?             `find`
    preempt    who makes room?             running jobs that may be stopped for a pending one
    adjust     what else may be changed?   after the walk: move, resize, suspend, pack

The jobs of a pipeline are in its `Roster`, the walk is in the `Walker`. `reasons.py` has why jobs wait, and which
requests could ever run. All of it follows from the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.model import Declares, Shape
from skep.core.plan import Decision, Plan
from skep.core.refusal import Refusal
from skep.core.rounds import next_boundary
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Adjuster, Preemption
from skep.policies.adjust.preempt import ByPriority
from skep.policies.allocate.base import Allocator, AsRequested
from skep.policies.easy import backfill
from skep.policies.estimate.duration import Duration
from skep.policies.lines import Entry, Line
from skep.policies.missing import Trials
from skep.policies.order.base import Order
from skep.policies.place import Place
from skep.policies.reasons import Possible, Reasons, admits
from skep.policies.room import lacking
from skep.policies.roster import Roster
from skep.policies.walker import Walker, missing_gpus

PENDING, STOPPING, SUSPENDED = JobState.PENDING, JobState.STOPPING, JobState.SUSPENDED
STRICT, SKIP, EASY = "strict", "skip", "easy"


class Pipeline(Declares):
    """The planner made of these parts."""

    round_s = 0.0
    looks_at_ends: ClassVar[bool] = False
    """True for a pipeline that decides about more than its parts: it is called for every end."""

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
        self.ignores_ends = not adjust and order.ignores_ends() and not self.looks_at_ends
        """True if the end of a job requires no decision while no job waits."""

    # Derived from the state ------------------------------------------------------------------------------------

    def attach(self, view: View, memory: Memory) -> None:
        self.order.attach(view)
        self.place.attach(view)
        self.roster = roster = self._make_roster(memory)
        roster.seats.nodes = view.cluster.nodes
        self.pending, self.running, self.seats = roster.pending, roster.running, roster.seats
        self.walker = self._make_walker(roster)
        self.reasons = Reasons(self.order, self.pending)
        self.possible = Possible(view, self.place)
        self.search: Trials | None = None
        """For explanations, made on demand."""
        for job in view.placed_jobs():
            if job.state is SUSPENDED:
                roster.suspended[job.seq] = job
            else:
                roster.keep_running(job, None, view.now_s)
        self.unseen: list[JobView] = []
        """Pending jobs that no planner has seen yet."""
        for job in view.jobs.values():
            if job.state is STOPPING:
                roster.leaving.add(job, view.now_s)
            elif job.state is PENDING and job.is_ready:
                if job.waiting is None:
                    self.unseen.append(job)
                else:
                    self.reasons.resume(view, job, roster.enqueue(view, None, job))
        for adjuster in self.adjust:
            adjuster.attach(view)

    def _make_roster(self, memory: Memory) -> Roster:
        is_strict, has_seats = self.walk != SKIP, bool(self.adjust)
        return Roster(self.name, self.order, self.place, memory, self.preempt, is_strict=is_strict, has_seats=has_seats)

    def _make_walker(self, roster: Roster) -> Walker:
        return Walker(roster, self.allocate, self.place, self.preempt)

    # The decision ----------------------------------------------------------------------------------------------

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        roster, order, walker = self.roster, self.order, self.walker
        if roster.remembers:
            roster.keys.write(plan)
        self._take_in(view, plan, trigger)
        if self.running.crossings.moves:
            self.running.crossings.begin(view, trigger)
        arrived = [*self.unseen, *trigger.returned, *trigger.submitted]
        is_idle = not arrived and not self.pending.entries
        fresh = [] if is_idle else self._fill(view, plan, arrived)
        if fresh and walker.given_s == view.now_s:
            walker.note_spared(view, fresh)
        wake_s = self._adjust(view, plan, trigger) if self.adjust else math.inf
        if order.unsettled:
            for job in order.settle(plan, view.now_s):
                roster.reorder(job, plan, view.now_s)
        if not is_idle:
            # What preempted jobs release was booked when they were stopped.
            is_changed = bool(plan.decisions or trigger.ended or trigger.nodes_changed or trigger.withdrawn)
            self.reasons.book(view, plan, fresh, changed=is_changed)
        if roster.has_moments and (change_s := roster.timers.next_s()) < wake_s:
            wake_s = change_s
        if self.running.crossings.moves or self.running.has_spared:
            wake_s = min(wake_s, walker.wake_s(view))
        if wake_s < math.inf:
            plan.wake(wake_s)
        return plan

    def _take_in(self, view: View, plan: Plan, trigger: Trigger) -> None:
        """Update the indexes with the events."""
        roster, now_s, order = self.roster, view.now_s, self.order
        if trigger.withdrawn:
            self._withdraw(plan, trigger.withdrawn, now_s)
        if roster.has_moments:
            for job in trigger.started:
                # If it started when that was decided, its time is known.
                if job.held_since_s != job.decided_s and job.seq in self.running.by_seq:
                    roster.timers.set(job, order.changes_at(job, job.held_since_s))
        for job in trigger.ended:
            roster.let_go(plan, job, now_s)
            if self.order.hears_ends:
                order.ended(job, plan, now_s)
        for job in trigger.returned:
            roster.let_go(plan, job, now_s)
        if trigger.ended or trigger.nodes_changed or self.running.has_spared:
            self.pending.epoch += 1
            self.running.has_spared = False
        if order.learns and order.has_learned():
            for _, entry in list(self.pending.entries.values()):
                if order.key(entry[3], now_s) != entry[1]:
                    self._rekey(view, plan, entry[3])
        if roster.has_moments:
            for job in roster.timers.take_due(now_s):
                self._rekey(view, plan, job)

    def _withdraw(self, plan: Plan, jobs: list[JobView], now_s: float) -> None:
        for job in jobs:
            self.roster.withdraw(job)
            if job.state.is_final:
                self.order.ended(job, plan, now_s)

    def _rekey(self, view: View, plan: Plan, job: JobView) -> None:
        line = self.roster.rekey(view, plan, job)
        if line is not None and not line.is_strict:
            self.reasons.moved.append(job)

    def has_no_work(self, trigger: Trigger) -> bool:
        """True if no startable job is pending, so that freed resources change nothing."""
        return not (self.pending.entries or self.unseen or trigger.submitted or trigger.returned)

    def _fill(self, view: View, plan: Plan, arrived: list[JobView]) -> list[JobView]:
        """Start the jobs that can be started. Returns those of the arrived ones that were queued."""
        if len(arrived) > 1:
            arrived = list({job.seq: job for job in arrived}.values())
        self.unseen = []
        fresh = []
        for job in arrived:
            if self._admit(view, plan, job):
                fresh.append(job)
        self.walker.walk(view, plan)
        if self.walk == EASY:
            for line in list(self.pending.active.values()):
                for job, allocation in backfill(view, plan, self.place, self.estimate, self.running, line):
                    entry = self.pending.entries[job.seq][1]
                    self.pending.remove(job)
                    self.walker.give(view, plan, entry, allocation)
        return fresh

    def _admit(self, view: View, plan: Plan, job: JobView) -> bool:
        """Queue a job, unless it could not run even on the whole cluster."""
        if job.seq in self.pending.entries or not admits(self, self.possible, view, plan, job):
            return False
        self.roster.enqueue(view, plan, job)
        return True

    def why_never(self, view: View, job: JobView) -> str:
        """Why the job could not run even on the whole cluster; empty if it could."""
        return self.possible.why_never(view, job, job.shapes, self.allocate.shapes(job))

    # Adjusters -------------------------------------------------------------------------------------------------

    def pending_jobs(self) -> Iterator[JobView]:
        return self.pending.in_order(self.order.group_key)

    def offer_pending(self, attempt: Callable[[JobView], bool]) -> None:
        self.pending.offer(self.order.group_key, attempt)

    def walk_again(self) -> None:
        self.pending.epoch += 1

    @property
    def epoch(self) -> int:
        return self.pending.epoch

    def running_jobs(self) -> Iterator[JobView]:
        return (entry[3] for entry in self.running.entries)

    def suspended_jobs(self) -> Iterator[JobView]:
        return iter(self.roster.suspended.values())

    def _adjust(self, view: View, plan: Plan, trigger: Trigger) -> float:
        """Call the adjusters in turn, and walk again after each that freed GPUs, so that the next one sees only pending
        jobs that do not fit. Returns when they want to be called again."""
        wake_s = math.inf
        for adjuster in self.adjust:
            number = len(plan.decisions)
            wake_s = min(wake_s, adjuster.adjust(view, plan, trigger, self))
            if len(plan.decisions) > number and self._follow(view, plan, plan.decisions[number:]):
                self.pending.epoch += 1
            if self.pending.epoch != self.walker.walked_epoch and self.pending.entries:
                self.walker.walk(view, plan)
        return wake_s

    def _follow(self, view: View, plan: Plan, decisions: list[Decision]) -> bool:
        """Update the queue and the running jobs with an adjuster's decisions. Returns True if cells were released."""
        has_freed = False
        for job_id, before in {each.job_id: each.before for each in reversed(decisions)}.items():
            job = view.jobs[job_id]
            if job.seq in self.pending.entries and job.state is not PENDING:
                self.pending.remove(job)
            had_cells = before is not None and not before.is_suspended
            has_cells = job.allocation is not None and not job.allocation.is_suspended
            is_reshared = before is not None and job.allocation is not None and job.allocation.has_seats_of(before)
            has_freed |= had_cells and not is_reshared
            if had_cells and not has_cells:
                self.let_go(view, plan, job)
            if job.state is SUSPENDED:
                self.roster.suspended[job.seq] = job
            elif has_cells:
                self.roster.suspended.pop(job.seq, None)
                self.running.remove(job)
                if not had_cells:
                    self.order.entered(job, plan, view.now_s)
                self.roster.keep_running(job, plan, view.now_s)
        return has_freed

    # Also for the planner of virtual clusters --------------------------------------------------------------------

    def absorb(self, trigger: Trigger) -> bool:
        """Process jobs that have ended if `plan` would decide and write nothing. False: `plan` must be called."""
        if trigger.submitted or trigger.nodes_changed or trigger.is_timer or trigger.withdrawn or not self.ignores_ends:
            return False
        if not self.has_no_work(trigger) or self.roster.timers or self.roster.keys.has_unwritten:
            return False
        for job in trigger.ended:
            self.roster.suspended.pop(job.seq, None)
            self.running.remove(job)
        self.pending.epoch += 1
        return True

    def withdraw(self, job: JobView) -> None:
        """This pending job is not ours to start: it is held, has ended, or another planner has started it."""
        self.roster.withdraw(job)

    def take_over(self, view: View, plan: Plan, job: JobView) -> None:
        """A job that got cells from another planner counts as one of ours from now on."""
        self.roster.take_over(plan, job, view.now_s)

    def let_go(self, view: View, plan: Plan, job: JobView) -> None:
        """The job released its cells, or another planner has taken it over."""
        self.roster.let_go(plan, job, view.now_s)

    def may_pass(self, view: View, job: JobView) -> bool:
        """True if this job may fit where the jobs waiting here do not."""
        if self.walk == SKIP:
            return True
        entry = (job.rank, self.order.key(job, view.now_s), job.seq)
        group = self.order.group(job)
        return all(line.entries[0][:3] > entry for line in self.pending.active.values() if line.group == group)

    # Explanations ----------------------------------------------------------------------------------------------

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        if self.search is None or self.search.version != view.version:
            self.search = Trials(view, self)
        return self.search.refusal(job)

    @property
    def is_strict(self) -> bool:
        return self.roster.is_strict

    def least_shapes(self, job: JobView) -> Sequence[Shape]:
        return self.allocate.shapes(job)

    def holders(self, view: View, job: JobView) -> list[JobView]:
        """Those of its own group first, so that the others do not come before it; then those that are enough by
        themselves, and the last in order."""
        group, gpus = self.order.group(job), job.gpu_count
        jobs = [*self.roster.suspended.values(), *(entry[3] for entry in reversed(self.running.entries))]
        return sorted(jobs, key=lambda each: (self.order.group(each) != group, each.gpu_count < gpus))

    def position(self, view: View, job: JobView) -> tuple[Hashable, Line | None, Entry]:
        place = self.pending.entries.get(job.seq)
        if place is not None:
            return place[0].group, *place
        at_s = next_boundary(view.now_s, self.round_s) if self.round_s else view.now_s
        entry = (job.rank, self.order.key(job, at_s), job.seq, job)
        return self.order.group(job), self.pending.lines.get(self.roster.kind(job, at_s)), entry

    def new_line(self, view: View, job: JobView) -> Line:
        return self.roster.new_line(view, job)

    def trials(self) -> AbstractContextManager[None]:
        return self.place.trials()

    def go_before(self, holders: Collection[JobView], *, more_nodes: bool) -> list[JobView]:
        return []

    def line_key(self, job: JobView) -> float:
        return self.order.group_key(self.order.group(job)) if self.order.aside(job) is None else math.inf

    def standing(self, entry: Entry) -> Entry:
        aside = self.order.aside(entry[3])
        return entry if aside is None else (entry[0], aside, entry[2], entry[3])

    def may_push(self, view: View, plan: Plan, entry: Entry) -> bool:
        if entry >= self.preempt.edge(self.order, self.running):
            return False
        job, victims = entry[3], self.preempt.reachable(view, self.order, self.running, entry)
        left = [victim for victim in victims if victim.allocation is not None]
        return any(
            lacking(view, self.place, job, shape, left, missing_gpus(view, job, shape)) is None
            for shape in self.allocate.shapes(job)
        )

    def allowance(self, job: JobView) -> str:
        return self.order.allowance(job) if self.order.refuses(job) is not None else ""
