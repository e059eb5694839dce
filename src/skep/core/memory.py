"""Memory of policies: what they must remember from one decision to the next, as typed values inside the state.

A planner (or an order) declares a `Slot` for each kind of value: per job, per VC, or one in all. It reads with
`slot.get(memory, key)` and writes with `plan.remember(slot, key, value)`. The state itself drops values: those of a job
when the job ends, those of a policy when another policy takes over. Values of other jobs stay when the cluster changes.
The slots below the policies (`OWNED`, `LENT`) outlive a change of policy.

The planners of virtual clusters share the values of jobs, since a job has one planner; their other values are separate
parts of the memory.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from skep.core.cluster import Allocation

T = TypeVar("T")

Values = dict[str, Any]  # the value of a `Slot` of that name, which knows the type
"""By slot name; still encoded if not read since it was loaded."""

At = tuple[str, str]
"""A part of the memory: the VC and the pinned cell of the planner; two empty texts for the planner of the whole
cluster."""

WHOLE_PLANNER: At = ("", "")


class Of(enum.StrEnum):
    """What a slot has one value for."""

    JOB = "job"
    VC = "vc"
    ALL = "all"


JOB, ALL = Of.JOB, Of.ALL


class MemoryChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of the memory; without a value it removes the entry."""

    of: Of
    key: str
    """The job or the VC."""
    slot: str
    value: Any  # of the type of the slot
    at: At = WHOLE_PLANNER

    @property
    def name(self) -> tuple[At, Of, str, str]:
        """A later change with the same name replaces this one."""
        return (self.at, self.of, self.key, self.slot)


class PlannerPart(msgspec.Struct, array_like=True):
    """The values of one planner that do not belong to a job."""

    all: Values = {}
    vcs: dict[str, Values] = {}


class Memory:
    """The memory as one planner sees it. All parts share the same dictionaries."""

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
        if of is JOB:
            return self.jobs.get(key)
        vc, pinned = self.at
        part = self.parts.get(vc, {}).get(pinned)
        if part is None:
            return None
        return part.all if of is ALL else part.vcs.get(key)

    # For the state only ------------------------------------------------------------------------------------------

    def take_in(self, change: MemoryChange) -> None:
        if change.of is JOB:
            values = self.jobs.get(change.key)
            if values is None:
                values = self.jobs[change.key] = {}
        else:
            values = self._of_planner(change)
        if change.value is None:
            values.pop(change.slot, None)
            if not values and change.of is JOB:
                del self.jobs[change.key]
        else:
            values[change.slot] = change.value

    def _of_planner(self, change: MemoryChange) -> Values:
        vc, pinned = change.at
        part = self.parts.setdefault(vc, {}).setdefault(pinned, PlannerPart())
        return part.all if change.of is ALL else part.vcs.setdefault(change.key, {})

    def drop_policy(self, jobs: Collection[str], vc: str) -> None:
        """Drop what the planners of this VC (empty: of all VCs) remember, of these jobs and otherwise."""
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
        """The changes that would remove everything in other parts than these."""
        found = []
        for vc, pinneds in self.parts.items():
            for pinned, part in pinneds.items():
                at = (vc, pinned)
                if at not in parts:
                    found += [MemoryChange(ALL, "", slot, None, at) for slot in part.all]
                    found += [
                        MemoryChange(Of.VC, key, slot, None, at) for key, values in part.vcs.items() for slot in values
                    ]
        return found


class Slot(Generic[T]):
    """A declared place for values of one type; `of` says what there is one value for."""

    __slots__ = ("kind", "name", "of")

    def __init__(self, name: str, kind: type[T], of: Of = JOB) -> None:
        self.name = name
        self.kind = kind
        self.of = of

    def get(self, memory: Memory, key: str = "") -> T | None:
        """The value for that job or VC. A value that was loaded from the log is decoded when it is first read."""
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
        """The values of all jobs that have one."""
        found = ((job_id, self.get(memory, job_id)) for job_id, values in memory.jobs.items() if self.name in values)
        return {job_id: value for job_id, value in found if value is not None}


class Owned(msgspec.Struct, frozen=True):
    """The allocation of a job in terms of its VC, and the physical (node, GPU) of each of its virtual GPUs."""

    allocation: Allocation
    gpus: tuple[tuple[int, int], ...] = ()


OWNED = Slot("owned", Owned)
"""For jobs on cells of their VC."""
LENT = Slot("lent", bool)
"""For jobs on borrowed cells."""
BENEATH = (OWNED.name, LENT.name)
"""The slots that outlive a change of policy."""


SHOWN = "shown"
"""The slot of the planner of VCs for the bad cells that VCs were shown; it belongs to one layout of VCs."""


# The fields of `SavedMemory`.
def values_of(memory: Memory) -> Mapping[str, Any]:
    """All values, for writing and for comparing; empty parts are left out."""
    parts = {
        vc: {pinned: part for pinned, part in pinneds.items() if part.all or any(part.vcs.values())}
        for vc, pinneds in memory.parts.items()
    }
    return {"jobs": memory.jobs, "parts": {vc: pinneds for vc, pinneds in parts.items() if pinneds}}
