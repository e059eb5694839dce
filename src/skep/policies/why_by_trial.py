"""Why a job waits under a planner that decides about all jobs together: the planner is asked what it would decide if
some jobs had ended or some nodes were in use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.refusal import NEVER, Cause, Change, End, Refusal, Undrain, ready, remedy_of
from skep.core.view import JobView, View
from skep.policies.explain import asked, names_of, nodes_out, types_of

PENDING = JobState.PENDING
STOPPABLE = (JobState.LAUNCHING, JobState.RUNNING, JobState.SUSPENDED)

LISTED_MAX = 20
"""The most jobs that a remedy lists."""

TRIED_MAX = 200
"""With more other jobs than this no trials are made: each costs a decision."""


class Decides(Protocol):
    round_s: float

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float: ...
    def why_never(self, view: View, job: JobView) -> str: ...


class WhyByTrial:
    """The trials for one job at one moment."""

    def __init__(self, planner: Decides, view: View, memory: Memory, job: JobView) -> None:
        self.planner, self.view, self.memory, self.job = planner, view, memory, job
        self.needed = set(job.spec.needs)
        placed = view.placed_jobs()
        self.holders = [each for each in placed if each.allocation is not None and each is not job]
        pending = [each for each in view.open_jobs.values() if each.state is PENDING and view.has(each)]
        waiting = [each for each in pending if each is not job and (each.is_ready or self._is_freed(each))]
        self.waiting = [each for each in waiting if not planner.why_never(view, each)]
        """Jobs that are ready, or will be when the jobs that this one needs have succeeded. Until the next round there
        may be some that can never run."""

    def _is_freed(self, other: JobView) -> bool:
        jobs, needs = self.view.jobs, other.spec.needs
        unmet = [name for name in needs if name not in jobs or jobs[name].finish_s is None]
        return not other.hold and bool(unmet) and self.needed.issuperset(unmet)

    def refusal(self) -> Refusal:
        if never := self.planner.why_never(self.view, self.job):
            return Refusal(NEVER, Cause.CONSTRAINT, f"can never run here: {never}", "a cluster on which it fits")
        others = [each for each in (*self.holders, *self.waiting) if each.id not in self.needed]
        if len(others) > TRIED_MAX:
            return self._words(others, ())
        if self._starts((), ()):
            return ready(self.view.now_s)
        nodes = tuple(self.view.unusable())
        for some in (*((name,) for name in nodes), nodes) if nodes else ():
            if self._starts((), some):
                return self._words((), some)
        for some in ((), nodes) if nodes else ((),):
            if self._starts(others, some):
                return self._words(self._fewest(others, some), some)
        return self._words(others, nodes)

    def _fewest(self, others: list[JobView], nodes: tuple[str, ...]) -> list[JobView]:
        """Of these jobs, without all of which the job starts: those that it really waits for."""
        low, high = 0, len(others)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._starts(others[:middle], nodes) else (middle + 1, high)
        found = others[:high]
        if not self._starts(found, nodes):
            return others
        for each in found if len(found) <= LISTED_MAX else ():
            fewer = [other for other in found if other is not each]
            if self._starts(fewer, nodes):
                found = fewer
        return found

    def _starts(self, gone: Collection[JobView], nodes: tuple[str, ...]) -> bool:
        """True if the job starts when these jobs have ended and these nodes are in use. Those that wait leave at once,
        those that run when they have exited, and the planner is called in between unless it decides in rounds."""
        names = self.needed | {each.id for each in gone}
        there = [each for each in self.waiting if each.id not in names]
        with self.view.with_nodes(nodes) as plan:
            if not self.planner.round_s:
                self._decide(plan, [each for each in (*there, self.job) if each.is_ready])
            for each in self.holders:
                if each.id in names and each.state in STOPPABLE:
                    plan.stop(each, "")
            self._decide(plan, [each for each in (*there, self.job) if each.state is PENDING])
            return self.job.allocation is not None

    def _decide(self, plan: Plan, pending: list[JobView]) -> None:
        self.planner.decide(self.view, plan, self.memory, sorted(pending, key=lambda each: each.seq))

    def _words(self, gone: Sequence[JobView], nodes: tuple[str, ...]) -> Refusal:
        shape, said, changes = self.job.shapes[0], list[str](), list[Change]()
        if nodes:
            said.append(nodes_out(self.view, nodes))
            changes.append(Undrain(nodes))
        holders = [each for each in gone if each.allocation is not None]
        waiting = [each for each in gone if each.allocation is None]
        if holders:
            said.append(f"{names_of(holders)} {'holds' if len(holders) == 1 else 'hold'} what it needs")
        if waiting:
            said.append(f"{names_of(waiting)} {'goes' if len(waiting) == 1 else 'go'} first")
        if gone:
            changes.append(End(tuple(each.id for each in gone[:LISTED_MAX]), max(len(gone) - LISTED_MAX, 0)))
        if not changes:
            return ready(self.view.now_s)
        cause = Cause.CONSTRAINT if nodes else Cause.CAPACITY if holders else Cause.ORDER
        code = "node-out-of-use" if nodes else "does-not-fit" if holders else "behind"
        reason = "; ".join([f"asks for {asked(shape)}{types_of(shape)}", *said])
        return Refusal(code, cause, reason, remedy_of(changes, self.view.now_s), tuple(changes))
