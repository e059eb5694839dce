"""A plan: what a planner wants, built step by step with rollback.

Each step changes the wanted state at once, so that the next question ("does this fit?") sees it; `rollback` reverts
steps exactly. A planner tries a gang or a preemption by taking steps, checking the result and rolling back. A finished
plan is a list of decisions that can be logged and replayed on another state.

Planners see jobs and clusters through read-only protocols (`core/view.py`); a plan finds the jobs themselves by id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from skep.core.actions import Checkpoint, JobSetting, Limit, Setting, Tune
from skep.core.cluster import WHOLE, Allocation, MemoryPlace
from skep.core.errors import InvariantBroken
from skep.core.group import Group
from skep.core.job import Job, JobState
from skep.core.memory import JOB, WHOLE_PLANNER, At, MemoryChange, Slot
from skep.core.refusal import Cause
from skep.core.solving import ASKED, OpenQuestion
from skep.core.view import JobView, View

PENDING, LAUNCHING, RUNNING = JobState.PENDING, JobState.LAUNCHING, JobState.RUNNING
SUSPENDED, STOPPING = JobState.SUSPENDED, JobState.STOPPING


class Decision(msgspec.Struct, frozen=True):
    """A change from `before` to `after`: a start has no `before`, a stop no `after`, a move or resize both. A
    suspension and its end have the same seats on both sides, one of them without compute. A reshare has the same seats
    on both sides under other terms.

    Decisions with the same `bundle` depend on each other: preemptions and the start they make room for. 0: no bundle.
    `until_s`: a start with an end; the job is then stopped as if preempted.
    `together`: a move that is booked in one step with the decision before it: running jobs exchange GPUs.
    """

    job_id: str
    before: Allocation | None
    after: Allocation | None
    cause: str = ""
    bundle: int = 0
    until_s: float | None = None
    together: bool = False

    @property
    def kind(self) -> str:
        before, after = self.before, self.after
        if before is None:
            return "start"
        if after is None:
            return "preempt"
        if after.is_suspended:
            return "suspend"
        if before.is_suspended:
            return "resume"
        if after.has_seats_of(before):
            return "share"
        return "move" if before.gpu_count() == after.gpu_count() else "resize"


GroupEnd = tuple[str, JobState, str]
"""A group by id, how it ends (succeeded, failed or stopped) and why."""


T = TypeVar("T")

Step = list[Any] | tuple[Callable[[Any, Any, Any], None], Any, Any]  # each function knows the types
"""How to undo a step: a list whose last item is removed, or a function of the plan with two arguments. It is not a
bound method: a plan that refers to itself would stay in memory until the garbage collector runs."""

NO_GROUPS: Mapping[str, Group] = {}


class PlanBooks(Protocol):
    """What a plan books on: the cluster, or the cells of a VC and their bindings."""

    def take(self, allocation: Allocation, owner: int) -> None:
        """Book for the job with this `seq`."""

    def give(self, allocation: Allocation, owner: int) -> None: ...
    def reserve(self, allocation: Allocation) -> None:
        """Book for a trial, for no job."""

    def release(self, allocation: Allocation) -> None: ...
    def allows(self, allocation: Allocation) -> bool:
        """True if free cells may be used."""


class Bundle(msgspec.Struct, eq=False):
    """The context in which decisions of a plan need each other. `number`: that of a replay; 0: the next one."""

    _plan: Plan
    _number: int
    _outer: int = 0
    """The bundle around it, or 0: a nested bundle is part of the outer one."""

    def __enter__(self) -> None:
        plan = self._plan
        self._outer = plan._bundle
        if not self._outer:
            following = plan._bundles + 1
            plan._bundle = number = self._number or following
            plan._bundles = number if number > following else following

    def __exit__(self, *error: object) -> None:
        self._plan._bundle = self._outer


class Plan(msgspec.Struct, eq=False):
    """The decisions of one planner call; made by `new_plan` of a view."""

    _jobs: Mapping[str, Job]
    _books: PlanBooks
    _groups: Mapping[str, Group] = NO_GROUPS
    _at: At = WHOLE_PLANNER
    version: int = 0
    """The version of the state on which it is tried; it can be committed on no other. 0: a plan for a part of the
    cluster."""
    decisions: list[Decision] = []
    joins: list[tuple[Job, str]] = []
    """Jobs that now wait in this scope."""
    refusals: list[tuple[str, Cause]] = []
    """Scopes that now wait for another cause."""
    settings: list[JobSetting] = []
    """Changes of jobs that do not change what they hold."""
    leases: list[tuple[Job, float]] = []
    """Jobs that are started with an end, and when they are to be stopped instead."""
    rejects: list[tuple[Job, str]] = []
    """Jobs that can never run here, and why."""
    ends: list[GroupEnd] = []
    """Groups to end: their members are stopped and do not restart."""
    memory: list[MemoryChange] = []
    """What the policy wants to remember."""
    asks: list[tuple[At, OpenQuestion]] = []
    """Questions for solvers, by the part of the memory whose planner asks."""
    wake_s: float | None = None
    """When the planner wants to be called again if nothing happens before."""
    _steps: list[Step] = []
    _marks: list[int] = []
    """The number of steps before each decision."""
    _bundle: int = 0
    _bundles: int = 0

    # The wanted state -------------------------------------------------------------------------------------------

    def start(self, job: JobView, allocation: Allocation, until_s: float | None = None) -> None:
        """Start a pending job. With `until_s` it is stopped at that time as if preempted, unless it has ended
        before."""
        mine = self._jobs[job.id]
        if mine.state is not PENDING:
            raise InvariantBroken(f"start of {mine!r}: only a pending job can be started")
        self._books.take(allocation, mine.seq)
        self._decide(mine, LAUNCHING, None, allocation, "", until_s)

    def extend(self, job: JobView, until_s: float) -> None:
        """Move the end of a job that was started with one; it continues in place."""
        mine = self._jobs[job.id]
        if mine.allocation is None or mine.is_expired or mine.is_ending:
            raise InvariantBroken(f"a later end for {mine!r}: only a job that is to go on can be extended")
        self.leases.append((mine, until_s))
        self._steps.append(self.leases)

    def stop(self, job: JobView, cause: str) -> None:
        mine = self._jobs[job.id]
        before = mine.allocation
        if before is None or mine.state not in (RUNNING, LAUNCHING, SUSPENDED):
            raise InvariantBroken(f"stop of {mine!r}: only a launching, running or suspended job can be stopped")
        self._books.give(before, mine.seq)
        self._decide(mine, STOPPING, before, None, cause)

    def move(self, job: JobView, allocation: Allocation) -> None:
        """Move a running job to another allocation."""
        mine = self._jobs[job.id]
        before = mine.allocation
        if before is None or mine.state is not RUNNING:
            raise InvariantBroken(f"move of {mine!r}: only a running job can be moved")
        self._rebook(mine, before, allocation)
        self._decide(mine, RUNNING, before, allocation)

    def move_all(self, moves: Sequence[tuple[JobView, Allocation]]) -> None:
        """Move running jobs in one step, so that they can exchange GPUs: all return what they have before the first
        takes its new allocation. All of them move or, with everything restored, none."""
        mine = [(self._jobs[job.id], allocation) for job, allocation in moves]
        for job, _ in mine:
            if job.allocation is None or job.state is not RUNNING:
                raise InvariantBroken(f"move of {job!r}: only a running job can be moved")
        if len({job.seq for job, _ in mine}) < len(mine):
            raise InvariantBroken("jobs that move together have one new allocation each")
        mark = self.mark()
        try:
            with self.bundle():
                for job, _ in mine:
                    self.vacate(job)
                for number, (job, allocation) in enumerate(mine):
                    self._exchange(job, allocation, mark if number == 0 else self.mark(), together=number > 0)
        except InvariantBroken:
            self.rollback(mark)
            raise

    def _exchange(self, job: Job, after: Allocation, mark: int, *, together: bool) -> None:
        """The move of a vacated job; undoing it leaves the job vacated."""
        before = job.allocation
        self._books.take(after, job.seq)
        self._marks.append(mark)
        self._steps.append((unexchange, job, before))
        job.allocation = after
        self.decisions.append(Decision(job.id, before, after, "", self._bundle, together=together))

    def resize(self, job: JobView, allocation: Allocation) -> None:
        """Move a running job to an allocation with more or fewer GPUs."""
        before = job.allocation
        if before is not None and before.gpus == allocation.gpus:
            raise InvariantBroken(f"resize of {job!r}: it has {before.gpus:g} GPUs already")
        self.move(job, allocation)

    def reshare(self, job: JobView, allocation: Allocation) -> None:
        """Give a launching or running job other terms in the same seats, without a restart."""
        mine = self._jobs[job.id]
        before = mine.allocation
        if before is None or mine.state not in (RUNNING, LAUNCHING):
            raise InvariantBroken(f"reshare of {mine!r}: only a launching or running job has terms")
        if not allocation.has_seats_of(before):
            raise InvariantBroken(f"reshare of {mine!r}: the GPUs and memory must stay the same")
        self._rebook(mine, before, allocation)
        self._decide(mine, mine.state, before, allocation)

    def reshare_all(self, changes: Sequence[tuple[JobView, Allocation]]) -> None:
        """Change the terms of several jobs whose new terms conflict with the others' old ones: all are parked first.
        All of them change or, with everything restored, none."""
        mark = self.mark()
        try:
            with self.bundle():
                for job, allocation in changes:
                    self.reshare(job, allocation.parked())
                for job, allocation in changes:
                    self.reshare(job, allocation)
        except InvariantBroken:
            self.rollback(mark)
            raise

    def limit(self, job: JobView, milli: int) -> None:
        """Limit a running job to this many thousandths of each of its GPUs."""
        if not 0 < milli <= WHOLE:
            raise InvariantBroken(f"limit of {job!r}: {milli} thousandths of a GPU")
        self.set(Limit(job.id, job.held_launch, milli))

    def tune(self, job: JobView, settings: Mapping[str, Setting]) -> None:
        """Pass these settings to a running job, where earlier ones that are not named stay, or to one that this plan
        starts or moves: they wait until that launch runs."""
        self.set(Tune(job.id, self._begins(job) or job.held_launch, dict(settings)))

    def checkpoint(self, job: JobView) -> None:
        """Have a running job save a checkpoint and continue."""
        self.set(Checkpoint(job.id, job.held_launch))

    def set(self, setting: JobSetting) -> None:
        mine = self._jobs[setting.job_id]
        is_running = mine.state is RUNNING and mine.held_launch == setting.launch
        if not is_running and not (isinstance(setting, Tune) and 0 < setting.launch == self._begins(mine)):
            raise InvariantBroken(f"a setting for {mine!r}: only a running job can be changed")
        self.settings.append(setting)
        self._steps.append(self.settings)

    def _begins(self, job: JobView) -> int:
        """The launch that follows from the last decision about this job; 0: none."""
        last = next((each for each in reversed(self.decisions) if each.job_id == job.id), None)
        return job.launches + 1 if last is not None and last.kind in ("start", "move", "resize") else 0

    def suspend(self, job: JobView, memory: MemoryPlace = "resident") -> None:
        """Suspend a running job: others may use its compute. Its memory stays on its GPUs or moves to its nodes.

        If the job was suspended and has not resumed yet, its memory stays where it is.
        """
        mine = self._jobs[job.id]
        before = mine.allocation
        if before is None or mine.state is not RUNNING:
            raise InvariantBroken(f"suspension of {mine!r}: only a running job can be suspended")
        if mine.held is not None and mine.held.memory is not None:
            memory = mine.held.memory
        after = before.suspended(memory)
        self._rebook(mine, before, after)
        self._decide(mine, SUSPENDED, before, after)

    def resume(self, job: JobView) -> None:
        """Resume a suspended job where it is, with everything it had."""
        mine = self._jobs[job.id]
        before = mine.allocation
        if before is None or before.resumes_as is None or mine.state is not SUSPENDED:
            raise InvariantBroken(f"resumption of {mine!r}: only a suspended job can be resumed")
        self._rebook(mine, before, before.resumes_as)
        self._decide(mine, RUNNING, before, before.resumes_as)

    def end_group(self, group_id: str, why: str, *, succeeded: bool = False) -> None:
        """Stop all members of the group: the best trial is found, or none is worth continuing."""
        group = self._groups.get(group_id)
        if group is None or group.outcome is not None:
            raise InvariantBroken(f"end of group {group_id}, which {'has ended' if group else 'does not exist'}")
        outcome = JobState.SUCCEEDED if succeeded else JobState.STOPPED
        self.end((group_id, outcome, f"{group.spec.title} ended: {why}"))

    def end(self, group: GroupEnd) -> None:
        self.ends.append(group)
        self._steps.append(self.ends)

    def _decide(
        self,
        job: Job,
        state: JobState,
        before: Allocation | None,
        after: Allocation | None,
        cause: str = "",
        until_s: float | None = None,
    ) -> None:
        """Note a booked step and how to undo it."""
        self._marks.append(len(self._steps))
        self._steps.append((undecide, job, job.state))
        job.allocation = after
        job.state = state
        self.decisions.append(Decision(job.id, before, after, cause, self._bundle, until_s))

    def _rebook(self, job: Job, before: Allocation, after: Allocation) -> None:
        """Replace one booking by another; if that fails, restore the first."""
        self._books.give(before, job.seq)
        try:
            self._books.take(after, job.seq)
        except InvariantBroken:
            self._books.take(before, job.seq)
            raise

    def _book(self, owner: int, before: Allocation | None, after: Allocation | None) -> None:
        if before is not None:
            self._books.give(before, owner)
        if after is not None:
            self._books.take(after, owner)

    def _book_all(self, changes: Sequence[tuple[int, Allocation | None, Allocation | None]]) -> None:
        """Owners with what they return and what they take: all return first."""
        for owner, before, _ in changes:
            self._book(owner, before, None)
        for owner, _, after in changes:
            self._book(owner, None, after)

    def bundle(self, number: int = 0) -> Bundle:
        """`with plan.bundle():` decisions made inside depend on each other. A replay passes the number that the bundle
        had."""
        return Bundle(self, number)

    def reject(self, job: JobView, why: str) -> None:
        """The job can never run on this cluster."""
        self.rejects.append((self._jobs[job.id], why))
        self._steps.append(self.rejects)

    def wait(self, job: JobView, scope: str) -> None:
        """The job waits in this scope from now on."""
        self.joins.append((self._jobs[job.id], scope))
        self._steps.append(self.joins)

    def refuse(self, scope: str, cause: Cause) -> None:
        """All jobs in this scope wait for this cause from now on."""
        self.refusals.append((scope, cause))
        self._steps.append(self.refusals)

    def remember(self, slot: Slot[T], key: str, value: T | None) -> None:
        """Remember a value for that job or VC ("" if there is one value in all); None removes it."""
        at = WHOLE_PLANNER if slot.of is JOB else self._at
        self.memory.append(MemoryChange(slot.of, key, slot.name, value, at))
        self._steps.append(self.memory)

    def keep(self, change: MemoryChange) -> None:
        self.memory.append(change)
        self._steps.append(self.memory)

    def ask(self, view: View) -> None:
        """Ask for an answer to the planner's problem on the present state (`core/solving.py`). A plan that asks decides
        nothing else: the planner is called again, with the answer if it comes at once."""
        asked = OpenQuestion(view.version, view.now_s)
        self.remember(ASKED, "", asked)
        self.asks.append((self._at, asked))
        self._steps.append(self.asks)

    def wake(self, at_s: float | None) -> None:
        """Call the planner again at this time, if nothing happens before."""
        if at_s != self.wake_s:
            self._steps.append((unwake, self.wake_s, None))
            self.wake_s = at_s

    # Trials -----------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        return len(self._steps)

    def rollback(self, mark: int) -> None:
        """Undo every step since that mark, the last first."""
        steps = self._steps
        while len(steps) > mark:
            step = steps.pop()
            if isinstance(step, list):
                step.pop()
            else:
                undo, what, before = step
                undo(self, what, before)

    def reserve(self, allocation: Allocation) -> None:
        """Book these cells for no job until they are released or the step is undone."""
        self._books.reserve(allocation)
        self._steps.append((unreserve, allocation, None))

    def release(self, allocation: Allocation) -> None:
        self._books.release(allocation)
        self._steps.append((unrelease, allocation, None))

    def vacate(self, job: JobView) -> None:
        """Count the job's resources as free until `occupy` books them, or others in a trial, or this is undone."""
        allocation = self._jobs[job.id].allocation
        assert allocation is not None
        self._books.give(allocation, job.seq)
        self._steps.append((unvacate, allocation, job.seq))

    def occupy(self, job: JobView, trial: Allocation | None = None) -> None:
        allocation = trial or self._jobs[job.id].allocation
        assert allocation is not None
        self._books.take(allocation, job.seq)
        self._steps.append((unoccupy, allocation, job.seq))

    def allows(self, allocation: Allocation) -> bool:
        """True if free cells may be used: those of a VC may have no healthy physical cell left."""
        return self._books.allows(allocation)

    # For planners of parts of the cluster -----------------------------------------------------------------------

    def part(self, over: Callable[[PlanBooks], PlanBooks], at: At = WHOLE_PLANNER) -> Plan:
        """An empty plan for the same jobs on the books of a part, which may depend on those of the whole; `at` is the
        part of the memory that it writes."""
        return Plan(self._jobs, over(self._books), self._groups, at)

    def anew(self) -> Plan:
        """An empty plan for the same jobs on the same books."""
        return Plan(self._jobs, self._books, self._groups, self._at)

    def translate(self, made: Plan, first: int, *decisions: Decision, is_booked: bool) -> None:
        """Add decisions from the plan of a part, in terms of the whole: the one with the number `first` and those that
        are booked together with it. `is_booked` if the part uses the books of the whole. Undoing them also undoes
        everything since the first in the plan of the part."""
        if self._bundle:
            decisions = tuple([msgspec.structs.replace(each, bundle=self._bundle) for each in decisions])
        if not is_booked:
            self._book_all([(self._jobs[each.job_id].seq, each.before, each.after) for each in decisions])
        self._marks += [len(self._steps)] * len(decisions)
        self._steps.append((untranslate, (made, made._marks[first], len(decisions)), is_booked))
        self.decisions += decisions

    def see_as(self, job: JobView, allocation: Allocation) -> None:
        """Rename the job's allocation in terms of its VC; this is not a decision."""
        mine = self._jobs[job.id]
        self._steps.append((unsee, mine, mine.allocation))
        mine.allocation = allocation

    def undo_by(self, undo: Callable[[], object]) -> None:
        """Note something outside the plan that is undone together with it."""
        self._steps.append((unnote, undo, None))


# How steps are undone ----------------------------------------------------------------------------------------------


def undecide(plan: Plan, job: Job, state: JobState) -> None:
    plan._marks.pop()
    undone = plan.decisions.pop()
    plan._book(job.seq, undone.after, undone.before)
    job.allocation = undone.before
    job.state = state


def unexchange(plan: Plan, job: Job, before: Allocation) -> None:
    plan._marks.pop()
    undone = plan.decisions.pop()
    assert undone.after is not None
    plan._books.give(undone.after, job.seq)
    job.allocation = before


def unwake(plan: Plan, at_s: float | None, _: None) -> None:
    plan.wake_s = at_s


def unreserve(plan: Plan, allocation: Allocation, _: None) -> None:
    plan._books.release(allocation)


def unrelease(plan: Plan, allocation: Allocation, _: None) -> None:
    plan._books.reserve(allocation)


def unvacate(plan: Plan, allocation: Allocation, owner: int) -> None:
    plan._books.take(allocation, owner)


def unoccupy(plan: Plan, allocation: Allocation, owner: int) -> None:
    plan._books.give(allocation, owner)


def untranslate(plan: Plan, part: tuple[Plan, int, int], is_booked: bool) -> None:
    made, mark, count = part
    undone = plan.decisions[-count:]
    del plan._marks[-count:], plan.decisions[-count:]
    if not is_booked:
        plan._book_all([(plan._jobs[each.job_id].seq, each.after, each.before) for each in undone])
    made.rollback(mark)


def unsee(plan: Plan, job: Job, allocation: Allocation | None) -> None:
    job.allocation = allocation


def unnote(plan: Plan, undo: Callable[[], object], _: None) -> None:
    undo()
