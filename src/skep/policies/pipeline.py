"""Most planners: small parts, and the walk that asks them.

    estimate   what will it need?          read by the order
    order      who goes first?             keys of the lines
    allocate   how much does each get?     the shapes to try
    place      on which cells?             `find`
    preempt    who makes room?             running jobs that may be stopped for a pending one
    adjust     what else may be changed?   after the walk: move, resize, suspend, pack

A decision costs what it touches: a line whose head failed is tried again only after something happened that could
help it (the *epoch*), and the heads of the lines are walked in order, not the jobs.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Hashable, Iterator

import msgspec

from skep.core.cluster import WHOLE, Allocation
from skep.core.job import JobState
from skep.core.memory import Memory, Slot
from skep.core.model import Shape
from skep.core.plan import Decision, Plan
from skep.core.refusal import Cause, Refusal
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Adjuster, Preemption
from skep.policies.adjust.preempt import ByPriority
from skep.policies.allocate.base import Allocator, AsRequested
from skep.policies.easy import backfill
from skep.policies.estimate.duration import Duration
from skep.policies.explain import never_fits, refusal_of
from skep.policies.lines import Entry, Head, Line, Running
from skep.policies.order.base import RISES, Key, Order
from skep.policies.place import Place
from skep.policies.room import Room, has_chance, make_room
from skep.policies.seats import Seats

STRICT, SKIP, EASY = "strict", "skip", "easy"


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """The key of a job, for orders that remember; whatever an order compares, tuples as lists when read back."""

    key: Key


KEY = Slot("key", Kept)


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
        """In a virtual cluster: whether a job that finds no room may run on lent cells."""
        self.ignores_ends = not adjust and order.ignores_ends() and type(self).plan is Pipeline.plan
        """Whether the end of a job decides nothing as long as no job waits."""

    # Derived from the state ------------------------------------------------------------------------------------

    def attach(self, view: View, memory: Memory) -> None:
        self.lines: dict[Hashable, Line] = {}
        self.active: dict[str, Line] = {}
        """Lines in which somebody stands, by scope: of many users most have nothing pending."""
        self.entries: dict[int, tuple[Line, Entry]] = {}
        """Where each pending job stands, by seq."""
        self.seats = Seats()
        self.running = Running(self.seats if self.adjust else None)
        self.suspended: dict[int, JobView] = {}
        """By seq, in the order of their suspension."""
        self.leaving: list[JobView] = []
        """Jobs that were pushed out: in a strict line nobody passes them while they are not back in it."""
        self.ahead: dict[Hashable, tuple[int, Key, int]] = {}
        """The first of these in each group: (rank, key, seq)."""
        self.has_fixed = False
        """Whether there may be running jobs that must not be pushed out."""
        self.timers: list[tuple[float, int, JobView]] = []
        self.due: dict[int, float] = {}
        self.epoch = 0
        self.walked_epoch = -1
        self.touched: dict[str, Line] = {}
        """Lines with a new head since the last walk."""
        self.moved: list[JobView] = []
        """Pending jobs that changed lines."""
        self.blank = view.blank()
        self.trial = self.blank.new_plan()
        self.could_run: dict[Hashable, bool] = {}
        self.memory = memory
        self.unwritten: dict[str, Kept] = {}
        """Keys of running jobs that no planner has written down: another policy started them."""
        self.order.attach(view)
        self.place.attach(view)
        for job in view.placed_jobs():
            if job.state is JobState.SUSPENDED:
                self.suspended[job.seq] = job
            else:
                self._keep_running(job, None, view.now_s)
        self.unseen: list[JobView] = []
        """Pending jobs that no planner has looked at yet."""
        for job in view.jobs.values():
            if job.state is JobState.PENDING and job.is_ready:
                self._resume(view, job)
            elif job.state is JobState.STOPPING:
                self.leaving.append(job)
        for adjuster in self.adjust:
            adjuster.attach(view)

    def _resume(self, view: View, job: JobView) -> None:
        """Take up a pending job where the planner before left it."""
        if job.waiting is None:
            self.unseen.append(job)
            return
        line = self._enqueue(view, None, job)
        if job.waiting is view.waiting.get(line.scope):
            if not line.is_strict:
                line.cause = job.waiting.cause
        elif line.is_strict and job.waiting is view.waiting.get(f"head {job.id}"):
            line.head, line.cause = job, job.waiting.cause
        else:
            self.moved.append(job)

    # The decision ----------------------------------------------------------------------------------------------

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        for job_id, kept in self.unwritten.items():
            plan.remember(KEY, job_id, kept)
        self.unwritten = {}
        self._take_in(view, plan, trigger)
        is_idle = self.has_nobody(trigger)
        fresh = [] if is_idle else self._fill(view, plan, trigger)
        wake_s = self._adjust(view, plan, trigger) if self.adjust else math.inf
        for job in self.order.settle(plan, view.now_s):
            self.running.remove(job)
            self._keep_running(job, plan, view.now_s)
        if not is_idle:
            changed = bool(plan.decisions or trigger.ended or trigger.nodes_changed or trigger.withdrawn)
            self._say_why(view, plan, fresh, changed=changed)
        wake_s = min(wake_s, self._next_wake(view))
        plan.wake(wake_s if wake_s < math.inf else None)
        return plan

    def _fill(self, view: View, plan: Plan, trigger: Trigger) -> list[JobView]:
        """Start whoever can be started; those who stand in line for the first time."""
        arrived = {job.seq: job for job in (*self.unseen, *trigger.returned, *trigger.submitted)}
        self.unseen = []
        fresh = [job for job in arrived.values() if self._admit(view, plan, job)]
        self._walk(view, plan)
        if self.walk == EASY:
            for line in list(self.active.values()):
                for job, allocation in backfill(view, plan, self.place, self.estimate, self.running, line):
                    self._leave_line(job)
                    self._give(view, plan, job, allocation)
        return fresh

    def has_nobody(self, trigger: Trigger) -> bool:
        """Whether nobody waits who could be started: nothing can be freed for anybody."""
        return not (self.entries or self.unseen or trigger.submitted or trigger.returned)

    def _take_in(self, view: View, plan: Plan, trigger: Trigger) -> None:
        """Bring the indexes up to what happened."""
        now_s = view.now_s
        for job in trigger.withdrawn:
            self.withdraw(job)
        for job in trigger.started:
            if job.seq in self.running.by_seq:
                self._set_timer(job, self.order.changes_at(job, job.held_since_s))
        for job in trigger.ended + trigger.returned:
            self.let_go(view, plan, job)
        stopped = [job for job in trigger.withdrawn if job.state.is_final]
        for job in trigger.ended + stopped:
            self.order.ended(job, plan, now_s)
        if trigger.ended or trigger.nodes_changed:
            self.epoch += 1
        while self.timers and self.timers[0][0] <= now_s:
            at_s, seq, job = heapq.heappop(self.timers)
            if self.due.get(seq) == at_s:
                del self.due[seq]
                self._rekey(view, plan, job)

    def _forget(self, job: JobView) -> None:
        self.running.remove(job)
        self.due.pop(job.seq, None)

    def _admit(self, view: View, plan: Plan, job: JobView) -> bool:
        """Put a job in line, unless it could not run even on the whole cluster."""
        if job.seq in self.entries or job.state is not JobState.PENDING or not job.is_ready:
            return False
        never = self.why_never(view, job)
        if never:
            plan.reject(job, never)
            return False
        self._enqueue(view, plan, job)
        return True

    def why_never(self, view: View, job: JobView) -> str:
        """Why the job could not run even on the whole cluster; nothing: it could."""
        shapes = job.spec.shapes
        kind = (shapes, self.place.key(job, math.inf))
        could = self.could_run.get(kind)
        if could is None:
            found = [self._find_alone(job, shape) for shape in self.allocate.shapes(job)]
            could = self.could_run[kind] = any(found)
        return "" if could else never_fits(view.cluster, shapes[0])

    def _find_alone(self, job: JobView, shape: Shape) -> Allocation | None:
        """Where it would be if nobody else were there."""
        return self.place.find(self.blank.cluster, self.trial, job, shape, math.inf)

    def _enqueue(self, view: View, plan: Plan | None, job: JobView) -> Line:
        line = self._line(view, job)
        key = self.order.key(job, view.now_s)
        if self.order.remembers:
            key = self._remember(job, key, plan)
        entry = (job.rank, key, job.seq, job)
        line.add(entry)
        self.active[line.scope] = line
        if line.entries[0] is entry:
            self.touched[line.scope] = line
        self.entries[job.seq] = (line, entry)
        self._set_timer(job, min(self.order.changes_at(job, view.now_s), self.place.changes_at(job, view.now_s)))
        return line

    def _line(self, view: View, job: JobView) -> Line:
        group = self.order.group(job)
        shapes = job.spec.shapes
        is_strict = self.walk != SKIP
        kind: Hashable = group if is_strict else (group, shapes, self.place.key(job, view.now_s))
        line = self.lines.get(kind)
        if line is None:
            pools = view.cluster.pools_for(shapes[0].gpu_types)
            line = Line(group, f"{self.name} {kind!r}", shapes, pools, is_strict=is_strict)
            self.lines[kind] = line
        return line

    def _rekey(self, view: View, plan: Plan, job: JobView) -> None:
        """The moment has come for this job's key, or what it accepts, to jump."""
        self.order.rekeyed(job, plan, view.now_s)
        if job.seq in self.entries:
            line = self.entries[job.seq][0]
            self._leave_line(job)
            if line.entries:
                self.touched[line.scope] = line
            line = self._enqueue(view, plan, job)
            line.tried = (-1, -1)
            if not line.is_strict:
                self.moved.append(job)
        elif job.allocation is not None:
            self.running.remove(job)
            self._keep_running(job, plan, view.now_s)
            self.epoch += 1

    def _keep_running(self, job: JobView, plan: Plan | None, now_s: float) -> None:
        key = self.order.key(job, now_s)
        if self.order.remembers:
            key = self._remember(job, key, plan)
        self.has_fixed |= not job.spec.preemptible
        self.running.add((job.rank, key, job.seq, job))
        self._set_timer(job, self.order.changes_at(job, now_s))

    def _remember(self, job: JobView, key: Key, plan: Plan | None) -> Key:
        """Write the key down; without a plan we take up another planner's work, and go by what it wrote."""
        if plan is not None:
            plan.remember(KEY, job.id, Kept(key))
            return key
        kept = KEY.get(self.memory, job.id)
        if kept is None:
            self.unwritten[job.id] = kept = Kept(key)
        return tuple(kept.key) if isinstance(kept.key, list) else kept.key

    def _leave_line(self, job: JobView) -> None:
        line, entry = self.entries.pop(job.seq)
        line.remove(entry)
        if not line.entries:
            del self.active[line.scope]

    def _set_timer(self, job: JobView, at_s: float) -> None:
        if at_s < math.inf:
            if self.due.get(job.seq) != at_s:
                self.due[job.seq] = at_s
                heapq.heappush(self.timers, (at_s, job.seq, job))
        else:
            self.due.pop(job.seq, None)

    # The walk --------------------------------------------------------------------------------------------------

    def _walk(self, view: View, plan: Plan) -> None:
        """Try the heads of the lines in order; a line is done with when its head fails."""
        group_key = self.order.group_key
        if self.leaving:
            self._look_back(view)
        heads = self._heads()
        held_up = []
        while heads:
            group, rank, key, seq, line = heads[0]
            if group != group_key(line.group):
                heapq.heapreplace(heads, (group_key(line.group), rank, key, seq, line))
                continue
            entry = line.entries[0]
            if self.leaving and line.is_strict and self.ahead.get(line.group, entry[:3]) < entry[:3]:
                held_up.append(line)
            elif self._start(view, plan, entry):
                self._leave_line(entry[3])
                if self.epoch != self.walked_epoch:
                    heads = self._heads()  # those pushed out left something over, for whoever is first in order
                    continue
                if line.entries:
                    rank, key, seq, _ = line.entries[0]
                    heapq.heapreplace(heads, (group_key(line.group), rank, key, seq, line))
                    continue
            else:
                line.tried = (seq, self.epoch)
            heapq.heappop(heads)
        for line in held_up:
            self.touched[line.scope] = line

    def _look_back(self, view: View) -> None:
        self.leaving = [job for job in self.leaving if job.state is JobState.STOPPING and not job.is_ending]
        self.ahead = {}
        for job in self.leaving:
            self._hold_up(view, job)

    def _hold_up(self, view: View, job: JobView) -> None:
        """In a strict line nobody passes this job, which was pushed out, before it is back."""
        group, place = self.order.group(job), (job.rank, self.order.key(job, view.now_s), job.seq)
        if group not in self.ahead or place < self.ahead[group]:
            self.ahead[group] = place

    def _heads(self) -> list[tuple[float, int, Key, int, Line]]:
        """A heap of the lines worth a try: all after something was freed, else those with a new head."""
        group_key = self.order.group_key
        may_help = self.preempt.may_help
        rising = self.order.moves == RISES
        lines = self.active if rising or self.epoch != self.walked_epoch else self.touched
        heads = []
        for line in lines.values():
            if line.entries and (line.could_fit() or may_help(self.order, self.running, line.entries[0])):
                rank, key, seq, _ = line.entries[0]
                if rising or line.tried != (seq, self.epoch):
                    heads.append((group_key(line.group), rank, key, seq, line))
        self.walked_epoch = self.epoch
        self.touched = {}
        heapq.heapify(heads)
        return heads

    def _start(self, view: View, plan: Plan, entry: Entry) -> bool:
        job = entry[3]
        for shape in self.allocate.shapes(job):
            allocation = self.place.find(view.cluster, plan, job, shape, view.now_s)
            if allocation is not None:
                self._give(view, plan, job, allocation)
                return True
        return self.preempt.may_help(self.order, self.running, entry) and self._push_out(view, plan, entry)

    def _push_out(self, view: View, plan: Plan, entry: Entry) -> bool:
        job = entry[3]
        for shape in self.allocate.shapes(job):
            missing = self._missing(view, job, shape)
            reachable = self.preempt.reachable(view, self.order, self.running, entry)
            if not has_chance(view, self.place, job, shape, reachable, missing):
                continue
            candidates = self.preempt.candidates(view, self.order, self.running, entry)
            if self.has_fixed:
                candidates = (victim for victim in candidates if victim.spec.preemptible)
            with plan.bundle():
                room = make_room(view, plan, self.place, job, shape, candidates, missing)
                if room is not None:
                    self._make_way(view, plan, job, room)
            if room is not None:
                if sum(victim.gpus for victim in room.victims) != job.gpus:
                    self.epoch += 1  # something is left over for others
                return True
        return False

    def _make_way(self, view: View, plan: Plan, job: JobView, room: Room) -> None:
        for victim in room.victims:
            self._forget(victim)
            self.order.left(victim, plan, view.now_s)
            if self.walk != SKIP:
                self.leaving.append(victim)
                self._hold_up(view, victim)
        self._give(view, plan, job, room.allocation)

    def _give(self, view: View, plan: Plan, job: JobView, allocation: Allocation) -> None:
        plan.start(job, allocation)
        self.order.entered(job, plan, view.now_s)
        self._keep_running(job, plan, view.now_s)

    # Adjusters ---------------------------------------------------------------------------------------------------

    def pending_jobs(self) -> Iterator[JobView]:
        """Jobs that the walk could not start, the first to be started first."""
        group_key = self.order.group_key
        lines = [
            [(group_key(line.group), rank, key, seq, job) for rank, key, seq, job in line.entries]
            for line in self.active.values()
        ]
        return (each[4] for each in heapq.merge(*lines))

    def pending_lines(self) -> Iterator[Iterator[JobView]]:
        """Pending jobs of one request, or with `walk=strict` of one group, the first to be started first."""
        group_key = self.order.group_key
        for line in sorted(self.active.values(), key=lambda line: (group_key(line.group), line.entries[0][:3])):
            yield (entry[3] for entry in line.entries)

    def running_jobs(self) -> Iterator[JobView]:
        """Jobs that run or are about to, the first to be stopped last."""
        return (entry[3] for entry in self.running.entries)

    def suspended_jobs(self) -> Iterator[JobView]:
        return iter(self.suspended.values())

    def _adjust(self, view: View, plan: Plan, trigger: Trigger) -> float:
        """Ask the adjusters in turn; walk again after each that freed GPUs, so that the next one finds pending only
        jobs that do not fit. Returns when they want to be asked again."""
        wake_s = math.inf
        for adjuster in self.adjust:
            number = len(plan.decisions)
            wake_s = min(wake_s, adjuster.adjust(view, plan, trigger, self))
            has_freed = self._follow(view, plan, plan.decisions[number:])
            if has_freed and self.entries:
                self.epoch += 1
                self._walk(view, plan)
        return wake_s

    def _follow(self, view: View, plan: Plan, decisions: list[Decision]) -> bool:
        """Bring the queue and the running jobs up to what an adjuster decided. Returns whether cells were given up."""
        has_freed = False
        for job_id, before in {each.job_id: each.before for each in reversed(decisions)}.items():
            job = view.jobs[job_id]
            if job.seq in self.entries and job.state is not JobState.PENDING:
                self._leave_line(job)
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

    # Virtual clusters -------------------------------------------------------------------------------------------

    def absorb(self, trigger: Trigger) -> bool:
        """Take in jobs that have ended where `plan` would decide and write nothing. False: `plan` must be called."""
        if not self.ignores_ends or self.timers or self.unwritten or not self.has_nobody(trigger):
            return False
        if trigger.withdrawn or trigger.nodes_changed or trigger.is_timer:
            return False
        for job in trigger.ended:
            self.suspended.pop(job.seq, None)
            self.running.remove(job)
        self.epoch += 1
        return True

    def withdraw(self, job: JobView) -> None:
        """This pending job is not ours to start: it is held, or over, or somebody else has started it."""
        if job.seq in self.entries:
            line = self.entries[job.seq][0]
            self._leave_line(job)
            line.tried = (-1, -1)  # it may come back with another priority
            self.due.pop(job.seq, None)
            if line.entries:
                self.touched[line.scope] = line

    def take_over(self, view: View, plan: Plan, job: JobView) -> None:
        """A job that somebody else has started counts as one of ours from now on."""
        self.order.entered(job, plan, view.now_s)
        self._keep_running(job, plan, view.now_s)

    def let_go(self, view: View, plan: Plan, job: JobView) -> None:
        """The job gave up what it had: it ended, was preempted, or another planner has taken it over."""
        self.suspended.pop(job.seq, None)
        if job.seq in self.running.by_seq:  # else it was stopped or suspended by us, and left then
            self._forget(job)
            self.order.left(job, plan, view.now_s)

    def may_pass(self, view: View, job: JobView) -> bool:
        """Whether this job may have room that the jobs waiting here do not fit in."""
        if self.walk == SKIP:
            return True
        entry = (job.rank, self.order.key(job, view.now_s), job.seq)
        group = self.order.group(job)
        return all(line.entries[0][:3] > entry for line in self.active.values() if line.group == group)

    # What is said about it -------------------------------------------------------------------------------------

    def _say_why(self, view: View, plan: Plan, fresh: list[JobView], *, changed: bool) -> None:
        """Book waiting under its cause: for each line, and in strict lines for the head by itself."""
        fresh += self.moved
        self.moved = []
        lines: dict[str, Line] = {}
        for job in fresh:
            place = self.entries.get(job.seq)
            if place is not None:
                line = place[0]
                lines[line.scope] = line
                plan.wait(job, line.scope)
                if line.head is job:
                    line.head = None  # it ran in between: as a head it has to be booked anew
        for line in self.active.values() if changed else lines.values():
            if line.entries:
                if line.is_strict:
                    self._say_why_head(view, plan, line)
                else:
                    cause = self._cause(view, line, line.entries[0][3])
                    if cause is not line.cause:
                        line.cause = cause
                        plan.refuse(line.scope, cause)

    def _say_why_head(self, view: View, plan: Plan, line: Line) -> None:
        job = line.entries[0][3]
        cause = self._cause(view, line, job)
        scope = f"head {job.id}"
        if job is not line.head:
            if line.head is not None and line.head.seq in self.entries:
                plan.wait(line.head, line.scope)
            plan.wait(job, scope)
        elif cause is line.cause:
            return
        line.head, line.cause = job, cause
        plan.refuse(scope, cause)

    def _cause(self, view: View, line: Line, job: JobView) -> Cause:
        refused = self.order.refuses(job)
        if refused is not None:
            return refused
        shape = job.spec.shapes[0]
        milli = shape.gpu_milli
        free = 0
        # A strict line holds all kinds of requests, and `pools` is what its first job accepts.
        for pool in view.cluster.pools_for(shape.gpu_types) if line.is_strict else line.pools:
            free += pool.free if milli == WHOLE else pool.with_room(milli)
        return view.cluster.why_not(shape.gpus, free)

    def _next_wake(self, view: View) -> float:
        timers = self.timers
        while timers and self.due.get(timers[0][1]) != timers[0][0]:
            heapq.heappop(timers)
        wake_s = timers[0][0] if timers else math.inf
        if self.order.moves == RISES and self.preempt.preempts:
            wake_s = min(wake_s, self._next_crossing(view))
        return wake_s

    def _next_crossing(self, view: View) -> float:
        """When a pending job could next push out running ones that it could not before: the first of any line."""
        heads: list[Head] = []
        for line in self.active.values():
            entry = line.entries[0]
            shapes = self.allocate.shapes(entry[3])
            heads.append((entry, min(self._missing(view, entry[3], shape) for shape in shapes)))
        return self.running.next_crossing(self.order, heads, view.now_s) if heads else math.inf

    def _missing(self, view: View, job: JobView, shape: Shape) -> int:
        """How many GPUs others would have to give up at least; shares may fit on ones that are not free."""
        return 0 if job.gpus < shape.gpus else shape.gpus - view.cluster.free_gpus(shape.gpu_types)

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        place = self.entries.get(job.seq)
        if place is None:
            return refusal_of(view, job, None)
        line, entry = place
        ahead = [other[3] for other in line.entries[: bisect.bisect_left(line.entries, entry)]]
        return refusal_of(view, job, self._cause(view, line, job), ahead)
