"""What pending jobs lack, found by trials: in which changed world would a job start?

A trial takes steps of a plan on the present state and undoes them. Jobs of one kind lack the same; what differs between
them is how many jobs are before each. Everything is worked out on demand, at most once for each version of the
state.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from skep.core.job import JobState
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.refusal import NEVER, Cause, Refusal
from skep.core.view import JobView, View
from skep.policies.explain import Short, put_into_words, short_of
from skep.policies.lines import Entry, Line, Pending
from skep.policies.place import Place
from skep.policies.room import make_room

LISTED_MAX = 20
"""The most jobs that a remedy lists."""


class Queue(Protocol):
    """The part of a planner that the search reads."""

    @property
    def place(self) -> Place: ...
    @property
    def pending(self) -> Pending: ...
    @property
    def is_strict(self) -> bool:
        """True if no job of a group passes another one."""

    def why_never(self, view: View, job: JobView) -> str: ...
    def least_shapes(self, job: JobView) -> Sequence[Shape]:
        """The smallest shapes in which the job would be started."""

    def holders(self, view: View, job: JobView) -> list[JobView]:
        """The jobs that hold cells, in the order in which they should rather end for this one."""

    def position(self, view: View, job: JobView) -> tuple[Hashable, Line | None, Entry]:
        """Its group, its line and its entry; also those it would have if it were ready."""

    def new_line(self, view: View, job: JobView) -> Line:
        """An empty line for jobs like this one, in no queue."""

    def trials(self) -> AbstractContextManager[None]:
        """The context in which holders can be stopped by a plan for trials."""

    def go_before(self, holders: Collection[JobView], *, more_nodes: bool) -> list[JobView]:
        """Jobs in other queues that may take the cells of these holders, or of more nodes, first."""

    def line_key(self, job: JobView) -> float:
        """Jobs with smaller ones go first."""

    def standing(self, entry: Entry) -> Entry:
        """The entry by which it is compared with jobs that have the same key."""

    def may_push(self, view: View, plan: Plan, entry: Entry) -> bool:
        """True if the pending job may preempt others in this trial. It may be true for one that then finds no room."""

    def allowance(self, job: JobView) -> str:
        """If the order refuses the job more: what its group has of its quota."""


class Missing(msgspec.Struct, frozen=True):
    """What the jobs of one kind lack."""

    short: Short | None = None
    """None: a job of this kind fits now."""
    until_s: float = math.inf
    """When it accepts another placement, and then fits."""
    nodes: tuple[str, ...] = ()
    """Nodes that would have to be in use."""
    holders: tuple[JobView, ...] = ()
    """Jobs that would have to end."""
    is_known: bool = True
    """False if all of that is not enough."""
    rivals: tuple[Line, ...] = ()
    """The lines whose first job could then start too."""
    elsewhere: tuple[JobView, ...] = ()
    """Jobs of other queues that go first."""
    compared: list[Entry] = []
    """The jobs of which those with earlier entries go first."""
    others: list[JobView] = []
    """Jobs that go first in any case."""


class Trials:
    """The lacks of one planner's jobs at one version of the state."""

    def __init__(self, view: View, queue: Queue) -> None:
        self.view = view
        self.queue = queue
        self.version = view.version
        self._lacks: dict[Hashable, Missing] = {}
        self.lines = [*queue.pending.active.values(), *self._fresh()]
        """The lines of the queue, and lines of ready jobs that the planner has not seen yet (within a round)."""

    def refusal(self, job: JobView) -> Refusal:
        """Why the job waits, as if it were ready."""
        lack = self.lack(job)
        # A job in the queue was examined before it got there, perhaps on another cluster.
        may_never = not lack.is_known or job.seq not in self.queue.pending.entries
        if may_never and (never := self.queue.why_never(self.view, job)):
            return Refusal(NEVER, Cause.CONSTRAINT, f"can never run here: {never}", "a cluster on which it fits")
        return put_into_words(
            lack,
            self.queue.least_shapes(job)[0],
            self.ahead(job, lack),
            self.queue.allowance(job),
            self.view,
        )

    def _fresh(self, needed: Collection[JobView] = ()) -> Iterator[Line]:
        """Lines of jobs that are ready, or would be if these had succeeded, and not in the queue."""
        view, queue = self.view, self.queue
        names = {job.id for job in needed}
        for job in view.open_jobs.values():
            if job.state is not JobState.PENDING or job.seq in queue.pending.entries or not view.has(job):
                continue
            is_new = job.is_ready if not needed else not job.hold and names.issuperset(self._unmet(job))
            if is_new and not queue.why_never(view, job):
                line = queue.new_line(view, job)
                line.entries.append(queue.position(view, job)[2])
                yield line

    def _unmet(self, job: JobView) -> list[str]:
        """The jobs that it still needs; the groups may end with any of them."""
        jobs = self.view.jobs
        return [name for name in job.spec.needs if name not in jobs or jobs[name].finish_s is None]

    # Of a kind of jobs -------------------------------------------------------------------------------------------

    def lack(self, job: JobView) -> Missing:
        spec, queue = job.spec, self.queue
        kind: tuple[Hashable, ...] = (
            job.shapes,
            spec.model if self.view.knowledge.standstills.are_known else "",
            spec.gpu_range,
            queue.place.key(job, self.view.now_s),
            queue.position(self.view, job)[0],
        )
        if not job.is_ready:
            kind = (*kind, spec.needs)
        found = self._lacks.get(kind)
        if found is None:
            with self.queue.trials():
                found = self._lacks[kind] = self._ordered(job, self._find(job))
        return found

    def _find(self, job: JobView) -> Missing:
        view, queue = self.view, self.queue
        needed = [view.jobs[name] for name in job.spec.needs if name in view.jobs]
        plan = view.new_plan()
        stop_all(plan, needed)
        try:
            if self._fits(plan, job):
                return Missing(rivals=self._rivals(plan, job))
            short = short_of(view, plan, queue.place, job, queue.least_shapes(job)[0])
            until_s = queue.place.changes_at(job, view.now_s)
            if until_s < math.inf and self._fits(plan, job, until_s):
                return Missing(short, until_s, rivals=self._rivals(plan, job, until_s))
        finally:
            plan.rollback(0)
        nodes = tuple(view.unusable())
        for some in (*((name,) for name in nodes), nodes) if nodes else ():
            found = self._with(job, short, needed, some, ())
            if found is not None:
                return found
        holders = [each for each in queue.holders(view, job) if each.allocation is not None and each not in needed]
        for some in ((), nodes) if nodes else ((),):
            found = self._with(job, short, needed, some, holders)
            if found is None and until_s < math.inf:
                found = self._later(job, short, needed, some, holders, until_s)
            if found is not None:
                return found
        return Missing(short, nodes=nodes, holders=tuple(holders), is_known=False, rivals=tuple(self.lines))

    def _with(
        self,
        job: JobView,
        short: Short,
        needed: list[JobView],
        nodes: tuple[str, ...],
        holders: list[JobView] | tuple[()],
    ) -> Missing | None:
        """What is lacking if it is no more than these nodes and some of these holders."""
        with self.view.with_nodes(nodes) as plan:
            stop_all(plan, needed)
            if not holders:
                return self._enough(plan, job, short, nodes, ()) if self._fits(plan, job) else None
            for shape in self.queue.least_shapes(job):
                missing = shape.gpus - self.view.cluster.free_gpus(shape.gpu_types) if job.gpus >= shape.gpus else 0
                room = make_room(self.view, plan, self.queue.place, job, shape, holders, missing)
                if room is not None:
                    return self._enough(plan, job, short, nodes, tuple(room.victims))
        return None

    def _later(
        self,
        job: JobView,
        short: Short,
        needed: list[JobView],
        nodes: tuple[str, ...],
        holders: list[JobView],
        until_s: float,
    ) -> Missing | None:
        """The same if it accepts another placement by then, and some of the holders have to end too."""
        with self.view.with_nodes(nodes) as plan:
            stop_all(plan, needed)
            mark = plan.mark()
            for count, each in enumerate(holders, start=1):
                stop_all(plan, [each])
                if self._fits(plan, job, until_s):
                    ended = self._fewest(plan, mark, job, holders[:count], until_s)
                    return Missing(short, until_s, nodes, tuple(ended), rivals=self._rivals(plan, job, until_s))
        return None

    def _fewest(self, plan: Plan, mark: int, job: JobView, holders: list[JobView], until_s: float) -> list[JobView]:
        """Without those that may stay; the plan has the stops of the others."""
        for each in holders[:-1] if len(holders) <= LISTED_MAX else ():
            fewer = [other for other in holders if other is not each]
            plan.rollback(mark)
            stop_all(plan, fewer)
            holders = fewer if self._fits(plan, job, until_s) else holders
        plan.rollback(mark)
        stop_all(plan, holders)
        return sorted(holders, key=lambda each: each.seq)

    def _enough(
        self, plan: Plan, job: JobView, short: Short, nodes: tuple[str, ...], holders: tuple[JobView, ...]
    ) -> Missing:
        """In this trial the job fits."""
        first = self.queue.go_before(holders, more_nodes=bool(nodes))
        holders = tuple(sorted(holders, key=lambda each: each.seq))
        return Missing(short, nodes=nodes, holders=holders, rivals=self._rivals(plan, job), elsewhere=tuple(first))

    def _fits(self, plan: Plan, job: JobView, now_s: float | None = None) -> bool:
        now_s = self.view.now_s if now_s is None else now_s
        find, cluster = self.queue.place.find, self.view.cluster
        return any(find(cluster, plan, job, shape, now_s) is not None for shape in self.queue.least_shapes(job))

    def _rivals(self, plan: Plan, job: JobView, now_s: float | None = None) -> tuple[Line, ...]:
        """The lines whose first job could start in this trial, beside the job's own."""
        view, queue, found = self.view, self.queue, []
        group, own, _ = queue.position(view, job)
        free = view.cluster.free_gpus()
        needed = [view.jobs[name] for name in job.spec.needs if name in view.jobs] if not job.is_ready else ()
        for line in (*self.lines, *(self._fresh(needed) if needed else ())):
            entry = line.entries[0]
            if queue.is_strict and line.group == group:
                found.append(line)
                continue
            if line is own:
                continue
            least = min(shape.gpus for shape in queue.least_shapes(entry[3]))
            has_chance = least <= free or not queue.place.needs_free or entry[3].gpus < least
            if (has_chance and self._fits(plan, entry[3], now_s)) or queue.may_push(view, plan, entry):
                found.append(line)
        return tuple(found)

    # Of one job --------------------------------------------------------------------------------------------------

    def ahead(self, job: JobView, lack: Missing) -> Ahead:
        """The jobs that go first."""
        entry = self.queue.standing(self.queue.position(self.view, job)[2])
        before = bisect.bisect_left(lack.compared, entry)
        first = [each[3] for each in lack.compared[: min(before, LISTED_MAX)]]
        others = [each for each in lack.others if each is not job]
        return Ahead(len(others) + before, [*others, *first][:LISTED_MAX])

    def _ordered(self, job: JobView, lack: Missing) -> Missing:
        """With the jobs of the rivals and of the job's own line: those that are compared with it by their entries, and
        those that go first in any case."""
        queue = self.queue
        group, own, _ = queue.position(self.view, job)
        key, freed = queue.line_key(job), {queue.position(self.view, each)[0] for each in lack.holders}
        compared = [] if own is None else list(own.entries)
        others: list[JobView] = []
        for line in (line for line in lack.rivals if line is not own):
            other = queue.line_key(line.entries[0][3])
            if other == key and (line.group == group or line.group not in freed):
                compared += line.entries
            elif other < key or line.group in freed:
                others += [entry[3] for entry in line.entries]
        others += [each for each in lack.elsewhere if each not in others]
        known = {each.seq for each in others}
        compared = [queue.standing(entry) for entry in compared if entry[2] not in known]
        compared.sort(key=lambda entry: entry[:3])
        return msgspec.structs.replace(lack, compared=compared, others=others)


class Ahead(msgspec.Struct, frozen=True):
    """The jobs that go first: how many, and the first of them."""

    count: int
    first: list[JobView]


def stop_all(plan: Plan, jobs: Collection[JobView]) -> None:
    """For a trial: they hold nothing."""
    for job in jobs:
        if job.allocation is not None and job.state is not JobState.STOPPING:
            plan.stop(job, "")
