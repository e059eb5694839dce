"""What policies must remember from one decision to the next, as typed values inside the state.

A planner (or an order) declares a `Slot` for each kind of value: per job, per VC, or one for all. It reads with
`slot.get(memory, key)` and writes with `plan.remember(slot, key, value)`. The state itself forgets: what is remembered
of a job goes when the job ends, everything of a policy when another takes over, and nothing of the jobs that stay when
the cluster changes. What lies beneath the policies (`OWNED`, `LENT`) outlives them.

Planners of virtual clusters share what is remembered of jobs, since a job has one planner; the rest of each is a part
of the memory by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from skep.core.cluster import Allocation

T = TypeVar("T")

Values = dict[str, Any]  # what a `Slot` of that name holds: it knows the type
"""By the name of their slots; still encoded if they were not read since."""

At = tuple[str, str]
"""A part of the memory: the VC and the pinned cell whose planner remembers; two empty words for that of the whole."""

WHOLE_PLANNER: At = ("", "")


class Of(enum.StrEnum):
    """What a value is remembered of."""

    JOB = "job"
    VC = "vc"
    ALL = "all"


class MemoryChange(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered from now on; no value: it is forgotten."""

    of: Of
    key: str
    """The job or the VC."""
    slot: str
    value: Any  # of the type of the slot
    at: At = WHOLE_PLANNER

    @property
    def name(self) -> tuple[At, Of, str, str]:
        """A later change of the same name replaces this one."""
        return (self.at, self.of, self.key, self.slot)


class PlannerPart(msgspec.Struct, array_like=True):
    """What one planner remembers beside jobs."""

    all: Values = {}
    vcs: dict[str, Values] = {}


class Memory:
    """The memory as the planner of one part sees it. All parts have their values in common."""

    __slots__ = ("at", "jobs", "parts")

    def __init__(
        self, jobs: dict[str, Values] | None = None, parts: dict[str, dict[str, PlannerPart]] | None = None
    ) -> None:
        self.jobs: dict[str, Values] = {} if jobs is None else jobs
        self.parts: dict[str, dict[str, PlannerPart]] = {} if parts is None else parts
        """By VC and pinned cell."""
        self.at = WHOLE_PLANNER

    def part(self, vc: str, pinned: str) -> Memory:
        found = Memory(self.jobs, self.parts)
        found.at = (vc, pinned)
        return found

    def values(self, of: Of, key: str) -> Values | None:
        if of is Of.JOB:
            return self.jobs.get(key)
        vc, pinned = self.at
        part = self.parts.get(vc, {}).get(pinned)
        if part is None:
            return None
        return part.all if of is Of.ALL else part.vcs.get(key)

    # What only the state does ------------------------------------------------------------------------------------

    def take_in(self, change: MemoryChange) -> None:
        values = self._room(change)
        if change.value is None:
            values.pop(change.slot, None)
            if not values and change.of is Of.JOB:
                del self.jobs[change.key]
        else:
            values[change.slot] = change.value

    def _room(self, change: MemoryChange) -> Values:
        if change.of is Of.JOB:
            values = self.jobs.get(change.key)
            if values is None:
                values = self.jobs[change.key] = {}
            return values
        vc, pinned = change.at
        part = self.parts.setdefault(vc, {}).setdefault(pinned, PlannerPart())
        return part.all if change.of is Of.ALL else part.vcs.setdefault(change.key, {})

    def drop_policy(self, jobs: Collection[str], vc: str) -> None:
        """Forget what planners of this VC (nothing: all of them) remember, of these jobs and beside them."""
        self._keep(jobs, lambda slot: slot in BENEATH)
        if vc:
            self.parts.pop(vc, None)
        else:
            self.parts.clear()

    def drop_beneath(self) -> None:
        self._keep(list(self.jobs), lambda slot: slot not in BENEATH)
        whole = self.parts.get("", {}).get("")
        if whole is not None:
            whole.all.pop(SHOWN, None)

    def _keep(self, jobs: Collection[str], is_kept: Callable[[str], bool]) -> None:
        for job_id in jobs:
            values = self.jobs.pop(job_id, None)
            kept = {slot: value for slot, value in (values or {}).items() if is_kept(slot)}
            if kept:
                self.jobs[job_id] = kept

    def others(self, parts: Collection[At]) -> list[MemoryChange]:
        """What would forget everything that is remembered in other parts than these."""
        found = []
        for vc, pinneds in self.parts.items():
            for pinned, part in pinneds.items():
                at = (vc, pinned)
                if at not in parts:
                    found += [MemoryChange(Of.ALL, "", slot, None, at) for slot in part.all]
                    found += [
                        MemoryChange(Of.VC, key, slot, None, at) for key, values in part.vcs.items() for slot in values
                    ]
        return found


class Slot(Generic[T]):
    """A place for values of one type: `of` says of what there is one each."""

    __slots__ = ("kind", "name", "of")

    def __init__(self, name: str, kind: type[T], of: Of = Of.JOB) -> None:
        self.name = name
        self.kind = kind
        self.of = of

    def get(self, memory: Memory, key: str = "") -> T | None:
        """Of that job or VC. What was read back from the log becomes a value of its type when it is first asked for."""
        values = memory.values(self.of, key)
        if values is None:
            return None
        value = values.get(self.name)
        if value is None or type(value) is self.kind:
            return value
        found: T = msgspec.convert(value, self.kind)
        values[self.name] = found
        return found

    def all(self, memory: Memory) -> dict[str, T]:
        """Of each job that has one."""
        found = ((job_id, self.get(memory, job_id)) for job_id, values in memory.jobs.items() if self.name in values)
        return {job_id: value for job_id, value in found if value is not None}


class Owned(msgspec.Struct, frozen=True):
    """What a job holds in terms of its VC, and the physical (node, gpu) behind each of its virtual gpus in turn."""

    allocation: Allocation
    gpus: tuple[tuple[int, int], ...] = ()


OWNED = Slot("owned", Owned)
"""Of jobs that run on cells of their VC."""
LENT = Slot("lent", bool)
"""Of jobs that run on cells which others leave idle."""
BENEATH = (OWNED.name, LENT.name)
"""What holds beneath the policies and outlives them."""


SHOWN = "shown"
"""The slot in which the planner of VCs remembers which bad cells they were shown; it belongs to one layout of VCs."""


# The fields of `SavedMemory`.
def values_of(memory: Memory) -> Mapping[str, Any]:
    """All of it, for writing down and for comparing; parts in which nothing is are left out."""
    parts = {
        vc: {pinned: part for pinned, part in pinneds.items() if part.all or any(part.vcs.values())}
        for vc, pinneds in memory.parts.items()
    }
    return {"jobs": memory.jobs, "parts": {vc: pinneds for vc, pinneds in parts.items() if pinneds}}
