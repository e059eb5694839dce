"""The planner of AFS: a tournament over all jobs decides the size of each; then the plan makes as few changes as
possible.

1. Every job enters the tournament: running jobs as if they had no GPUs, pending jobs through the heads of their queues.
2. Jobs that are to start are placed; if there is no place, running jobs with more than their due give GPUs back, by
   shrinking first, then by stopping. A job that still finds no place is left out, as are equal jobs behind it, and the
   tournament is repeated.
3. Jobs that are due more grow if the gain is larger than the cost of a restart, or of two if another job must shrink.

A job with more than its due keeps it until another job can use it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from skep.core.cluster import Allocation
from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.model import Declares, Shape
from skep.core.plan import Plan
from skep.core.refusal import Cause, Refusal
from skep.core.view import ClusterView, JobView, Trigger, View
from skep.policies.allocate.elastic import ElasticSizes, Ladder, kind_of
from skep.policies.allocate.runner import Givers, Runner, gain
from skep.policies.allocate.tournament import Entrant, Home, TournamentRoom, share_out, time_s
from skep.policies.estimate.duration import Duration
from skep.policies.job_timers import JobTimers
from skep.policies.lines import Entry, Line, Pending
from skep.policies.missing import Trials
from skep.policies.place import Place
from skep.policies.reasons import Possible, admits

RUNNING = JobState.RUNNING

Misfits = dict[tuple[str, Hashable, Home], Entry]
"""By line, placements that are accepted, and home: the first job that found no place there. Those before it did."""


class AfsCourse(NamedTuple):
    """The result of the tournament, and the jobs that can give GPUs back for it. The last to be kept are at the end."""

    starting: list[Entrant]
    growing: list[Runner]
    givers: dict[Home, Givers]
    running: list[Runner]


class Afs(Declares):
    """`restart_s` is the cost of a restart, `horizon_s` the expected duration of an allocation."""

    round_s = 0.0

    def __init__(
        self, *, name: str, place: Place, allocate: ElasticSizes, is_strict: bool, restart_s: float, horizon_s: float
    ) -> None:
        self.name = name
        self.place = place
        self.allocate = allocate
        self.estimate = Duration()
        self.is_strict = is_strict
        self.restart_s = restart_s
        self.horizon_s = horizon_s

    # Derived from the state ------------------------------------------------------------------------------------

    def attach(self, view: View, memory: Memory) -> None:
        self.pending = Pending()
        """Jobs with equal requests form a line, by priority and remaining time."""
        self.timers = JobTimers()
        """When pending jobs accept to be spread."""
        self.place.attach(view)
        self.possible = Possible(view, self.place)
        self.search: Trials | None = None
        self.allocate.use(view)
        self.speed_version = view.knowledge.speed_version
        self.unseen = [job for job in view.jobs.values() if job.state is JobState.PENDING and job.is_ready]

    # The decision ----------------------------------------------------------------------------------------------

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        if self.speed_version != view.knowledge.speed_version:
            self.attach(view, memory)  # sizes and keys follow from speeds
        plan = view.new_plan()
        for job in trigger.withdrawn:
            self._leave(job)
        arrived = {job.seq: job for job in (*self.unseen, *trigger.returned, *trigger.submitted)}
        self.unseen = []
        fresh = [job for job in arrived.values() if self._admit(view, plan, job)]
        if trigger.submitted or trigger.ended or trigger.is_timer or trigger.nodes_changed or trigger.withdrawn:
            self._decide(view, plan)  # otherwise only its own preemptions returned
        self._say_why(view, plan, fresh)
        plan.wake(self._next_wake(view))
        return plan

    def _admit(self, view: View, plan: Plan, job: JobView) -> bool:
        """Queue a job, unless it could not run even on the whole cluster."""
        if job.seq in self.pending.entries or not admits(self, self.possible, view, plan, job):
            return False
        ladder = self.allocate.ladder(job.spec)
        key = time_s(self._left_s(job, view.now_s), ladder.speeds[0])
        self.pending.add(self._line(view, job), (job.rank, key, job.seq, job))
        self.timers.set(job, self.place.changes_at(job, view.now_s))
        return True

    def _line(self, view: View, job: JobView) -> Line:
        kind = kind_of(job.spec)
        line = self.pending.lines.get(kind)
        if line is None:
            line = self.pending.lines[kind] = self.new_line(view, job)
        return line

    def new_line(self, view: View, job: JobView) -> Line:
        shapes = self.allocate.ladder(job.spec).shapes[:1]
        pools = view.cluster.pools_for(shapes[0].gpu_types)
        return Line("", f"{self.name} {kind_of(job.spec)!r}", shapes, pools, is_strict=False)

    def why_never(self, view: View, job: JobView) -> str:
        """Why the job could not run even on the whole cluster; empty if it could."""
        shapes = self._least(job, self.allocate.ladder(job.spec))
        return self.possible.why_never(view, job, kind_of(job.spec), shapes)

    def _least(self, job: JobView, ladder: Ladder) -> tuple[Shape, ...]:
        """The smallest shapes that a job accepts: a rigid job may name several."""
        return job.shapes if job.spec.gpu_range is None else ladder.shapes[:1]

    def _leave(self, job: JobView) -> None:
        if job.seq in self.pending.entries:
            self.pending.remove(job)
            self.timers.drop(job)

    def _left_s(self, job: JobView, now_s: float) -> float:
        return max(self.estimate.total_s(job) - job.work_at(now_s), 0.0)

    def _decide(self, view: View, plan: Plan) -> None:
        misfits: Misfits = {}
        mark = plan.mark()  # a rejected job stays rejected
        while True:
            course = self._tournament(view, misfits)
            misfit = self._carry_out(view, plan, course)
            if misfit is None:
                break
            plan.rollback(mark)
            line, entry = self.pending.entries[misfit.seq]
            misfits[line.scope, self.place.key(misfit.job, view.now_s), misfit.home] = entry
        for decision in plan.decisions:
            if decision.before is None:
                self._leave(view.jobs[decision.job_id])

    # The tournament --------------------------------------------------------------------------------------------

    def _tournament(self, view: View, misfits: Misfits) -> AfsCourse:
        cluster, now_s = view.cluster, view.now_s
        jobs = [job for job in view.held_jobs.values() if can_change(cluster, job)]
        shapes = [self._shape(line) for line in self.pending.active.values()] + [job.shapes[0] for job in jobs]
        homes = homes_of(cluster, shapes)
        left = {home: room_in(cluster, home) for home in homes.values()}
        room = TournamentRoom(left, cluster.quota_left)
        running = []
        for job in jobs:
            assert job.allocation is not None
            home, held = homes[home_type(cluster, job.allocation)], round(job.allocation.gpus * 1000)
            running.append(Runner(job, self.allocate.ladder(job.spec), self._left_s(job, now_s), home, held))
            left[home] += held
            room.total += held
        queues: list[Iterator[Entrant]] = [iter((entrant,)) for entrant in running]
        queues += [self._entrants(view, line, homes, misfits) for line in self.pending.active.values()]
        fed = share_out(queues, room, is_strict=self.is_strict)
        return self._course(running, fed)

    def _entrants(self, view: View, line: Line, homes: dict[str, Home], misfits: Misfits) -> Iterator[Entrant]:
        ladder = self.allocate.ladder(line.entries[0][3].spec)
        shapes = self._least(line.entries[0][3], ladder)
        pools = [pool for shape in shapes for pool in view.cluster.pools_for(shape.gpu_types if shape.gpus else ())]
        all_homes = tuple(dict.fromkeys(homes[pool.gpu_type] for pool in pools))
        for entry in line.entries:
            job, possible = entry[3], all_homes
            if misfits:
                key = self.place.key(job, view.now_s)
                bounds = {home: misfits.get((line.scope, key, home)) for home in all_homes}
                possible = tuple(home for home, bound in bounds.items() if bound is None or entry < bound)
            if possible:
                yield Entrant(job, ladder, self._left_s(job, view.now_s), possible)

    def _course(self, running: list[Runner], fed: list[Entrant]) -> AfsCourse:
        running.sort(key=lambda runner: runner.order)
        givers: dict[Home, Givers] = {}
        for runner in running:
            if runner.surplus > 0:
                of_home = givers.setdefault(runner.homes[0], Givers())
                (of_home.stopping if runner.rung < 0 else of_home.shrinking).append(runner)
        starting = [entrant for entrant in fed if entrant.job.allocation is None]
        growing = [runner for runner in running if runner.surplus < 0]
        growing.sort(key=lambda runner: (-gain(runner, runner.rung), runner.seq))
        return AfsCourse(starting, growing, givers, running)

    # Applying the result ---------------------------------------------------------------------------------------

    def _carry_out(self, view: View, plan: Plan, course: AfsCourse) -> Entrant | None:
        """Add the result to the plan. Returns a job that should start and finds no place in its home, if there is
        one."""
        for entrant in course.starting:
            if not self._start(view, plan, entrant, course):
                return entrant
        for runner in course.growing:
            self._grow(view, plan, runner, course.givers.get(runner.home, Givers()))
        return None

    def _start(self, view: View, plan: Plan, entrant: Entrant, course: AfsCourse) -> bool:
        rung, givers = entrant.rung, course.givers.get(entrant.home, Givers())
        while True:
            found = self._find(view, plan, entrant, rung)
            if found is not None:
                plan.start(entrant.job, found)
                return True
            missing = entrant.ladder.milli[rung] - room_in(view.cluster, entrant.home)
            giver = givers.take(missing, may_stop=True) if missing > 0 or rung == 0 else None
            if giver is not None:
                self._give(view, plan, giver, entrant.job)
            elif rung:
                rung -= 1  # there are enough, but not close enough to each other
            elif not self._push_out(plan, entrant, course):
                return False

    def _push_out(self, plan: Plan, entrant: Entrant, course: AfsCourse) -> bool:
        """Stop the last job of a lower priority: CPUs or memory may be missing, which AFS does not divide."""
        changed = {decision.job_id for decision in plan.decisions}
        for victim in reversed(course.running):
            if victim.rank > entrant.rank and victim.job.id not in changed:
                plan.stop(victim.job, entrant.job.id)
                return True
        return False

    def _find(self, view: View, plan: Plan, entrant: Entrant, rung: int) -> Allocation | None:
        job, ladder = entrant.job, entrant.ladder
        shapes = self._least(job, ladder) if ladder.is_rigid else (ladder.shapes[rung],)
        for shape in shapes:
            found = self.place.find(view.cluster, plan, job, at_home(shape, entrant.home), view.now_s)
            if found is not None:
                return found
        return None

    def _give(self, view: View, plan: Plan, giver: Runner, taker: JobView) -> None:
        """Shrink it to its due size."""
        if giver.job.allocation is None:
            return  # it was preempted
        if giver.rung < 0:
            plan.stop(giver.job, taker.id)
            return
        found = self._find_anew(view, plan, giver, giver.rung)
        if found is not None:
            plan.move(giver.job, found)

    def _find_anew(self, view: View, plan: Plan, runner: Runner, rung: int) -> Allocation | None:
        """Where a running job could be with another size; its own GPUs count as free."""
        mark = plan.mark()
        plan.vacate(runner.job)
        found = self._find(view, plan, runner, rung)
        plan.rollback(mark)
        return found

    def _grow(self, view: View, plan: Plan, runner: Runner, givers: Givers) -> None:
        rung, milli = runner.rung, runner.ladder.milli
        if runner.job.allocation is None:
            return  # it was preempted
        while rung >= 0 and milli[rung] > runner.held and self._is_worth(runner, rung, self.restart_s):
            missing = milli[rung] - runner.held - room_in(view.cluster, runner.home)
            found = self._find_anew(view, plan, runner, rung) if missing <= 0 else None
            if found is not None:
                plan.move(runner.job, found)
                return
            is_worth_two = missing > 0 and self._is_worth(runner, rung, 2 * self.restart_s)
            giver = givers.take(missing, may_stop=False) if is_worth_two else None
            if giver is not None:
                self._give(view, plan, giver, runner.job)
            else:
                rung -= 1

    def _is_worth(self, runner: Runner, rung: int, cost_s: float) -> bool:
        """True if the gain of a larger size until the allocation changes again exceeds the cost."""
        lasts_s = min(time_s(runner.left_s, runner.speed), self.horizon_s)
        return gain(runner, rung) * lasts_s >= cost_s

    # Waiting reasons and wake-ups ------------------------------------------------------------------------------

    def _say_why(self, view: View, plan: Plan, fresh: list[JobView]) -> None:
        for job in fresh:
            if job.seq in self.pending.entries:
                scope = self.pending.entries[job.seq][0].scope
                waiting = view.waiting.get(scope)
                if waiting is None or job.waiting is not waiting:
                    plan.wait(job, scope)
        for line in self.pending.active.values():
            waiting = view.waiting.get(line.scope)
            cause = self._cause(view, line)
            if waiting is None or waiting.cause is not cause:
                plan.refuse(line.scope, cause)

    def _cause(self, view: View, line: Line) -> Cause:
        shape = self._shape(line)
        return view.cluster.why_not(shape.gpus, view.cluster.free_gpus(shape.gpu_types, shape.gpu_milli))

    def _shape(self, line: Line) -> Shape:
        """For the smallest size that its jobs accept."""
        return self.allocate.ladder(line.entries[0][3].spec).shapes[0]

    def _next_wake(self, view: View) -> float | None:
        for job in self.timers.take_due(view.now_s):
            self.timers.set(job, self.place.changes_at(job, view.now_s))
        next_s = self.timers.next_s()
        return next_s if next_s < math.inf else None

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        if self.search is None or self.search.version != view.version:
            self.search = Trials(view, self)
        return self.search.refusal(job)

    def least_shapes(self, job: JobView) -> Sequence[Shape]:
        return self._least(job, self.allocate.ladder(job.spec))

    def holders(self, view: View, job: JobView) -> list[JobView]:
        return sorted(view.placed_jobs(), key=lambda each: each.gpu_count < job.gpu_count)

    def position(self, view: View, job: JobView) -> tuple[Hashable, Line | None, Entry]:
        place = self.pending.entries.get(job.seq)
        if place is not None:
            return "", *place
        ladder = self.allocate.ladder(job.spec)
        key = time_s(self._left_s(job, view.now_s), ladder.speeds[0])
        return "", self.pending.lines.get(kind_of(job.spec)), (job.rank, key, job.seq, job)

    def trials(self) -> AbstractContextManager[None]:
        return nullcontext()

    def go_before(self, holders: Collection[JobView], *, more_nodes: bool) -> list[JobView]:
        return []

    def line_key(self, job: JobView) -> float:
        return 0.0

    def standing(self, entry: Entry) -> Entry:
        return entry

    def may_push(self, view: View, plan: Plan, entry: Entry) -> bool:
        return True  # others shrink for it

    def allowance(self, job: JobView) -> str:
        return ""


def can_change(cluster: ClusterView, job: JobView) -> bool:
    """True if a job that holds something is in its wanted place and could be placed there again."""
    if job.state is not RUNNING or job.allocation is None or job.is_ending or job.held != job.bound:
        return False
    return all(cluster.nodes[piece.node].is_up for piece in job.allocation.slices)


def homes_of(cluster: ClusterView, shapes: list[Shape]) -> dict[str, Home]:
    """The homes, by GPU type: each type by itself, except for types that a gang may span."""
    homes: dict[str, Home] = {pool.gpu_type: (pool.gpu_type,) for pool in cluster.pools}
    for shape in shapes:
        if shape.spans_types:
            spanned = {homes[pool.gpu_type] for pool in cluster.pools_for(shape.gpu_types)}
            together = tuple(gpu_type for gpu_type, home in homes.items() if home in spanned)
            homes = {gpu_type: together if home in spanned else home for gpu_type, home in homes.items()}
    return homes


@functools.cache
def at_home(shape: Shape, home: Home) -> Shape:
    """The shape restricted to the GPU types of its home."""
    types = tuple(gpu_type for gpu_type in home if not shape.gpu_types or gpu_type in shape.gpu_types)
    return Shape(shape.roles, types, shape.spans_types) if shape.gpus and types else shape


def home_type(cluster: ClusterView, allocation: Allocation) -> str:
    """The GPU type that it uses; without GPUs, any."""
    pieces = [piece for piece in allocation.slices if piece.gpus]
    return cluster.nodes[(pieces or allocation.slices)[0].node].pool.gpu_type


def room_in(cluster: ClusterView, home: Home) -> int:
    """Thousandths of GPUs that are free there, wholly or in part, and may be used."""
    free = sum(pool.free * 1000 + pool.shared_milli for pool in cluster.pools_for(home))
    return int(min(free, cluster.quota_left))
