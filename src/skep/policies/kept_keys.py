"""Keys that cannot be recomputed are kept in the memory, for orders that declare this (`Order.remembers`)."""

from __future__ import annotations

import msgspec

from skep.core.memory import Memory, Slot
from skep.core.plan import Plan
from skep.core.view import JobView
from skep.policies.order.base import Key


class StoredKey(msgspec.Struct, frozen=True, array_like=True):
    """The key of a job, in the form that its order compares. Tuples become lists when read back."""

    key: Key


KEY = Slot("key", StoredKey)


class KeptKeys:
    __slots__ = ("_memory", "_unwritten")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._unwritten: dict[str, StoredKey] = {}
        """Keys of jobs that another policy started: they are stored with the next plan."""

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def keep(self, job: JobView, key: Key, plan: Plan | None) -> Key:
        """The valid key. Without a plan the job is taken over from another planner, with the stored key."""
        if plan is not None:
            plan.remember(KEY, job.id, StoredKey(key))
            return key
        kept = KEY.get(self._memory, job.id)
        if kept is None:
            self._unwritten[job.id] = kept = StoredKey(key)
        return tuple(kept.key) if isinstance(kept.key, list) else kept.key

    def write(self, plan: Plan) -> None:
        for job_id, kept in self._unwritten.items():
            plan.remember(KEY, job_id, kept)
        self._unwritten = {}
