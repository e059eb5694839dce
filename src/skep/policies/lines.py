"""The pipeline's indexes: pending jobs in lines, running jobs in order.

A *line* holds pending jobs of which the first must start before any other can: with `walk=skip` the jobs of one
request (if the first does not fit, none does), with `walk=strict` all jobs of a group. So a decision looks at the heads
of a few lines instead of at every pending job.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from skep.core.cluster import Pool
from skep.core.errors import InvariantBroken
from skep.core.job import Job
from skep.core.model import Shape
from skep.core.refusal import Cause

if TYPE_CHECKING:
    from skep.policies.order.base import Order

Entry = tuple[int, Any, int, Job]
"""(rank, key, seq, job): rank puts priorities first, seq ends every tie."""


class Line:
    """Pending jobs in order; `tried` is the head that failed and when, in the pipeline's epochs."""

    __slots__ = ("cause", "entries", "gpus", "group", "head", "is_plain", "is_strict", "pools", "scope", "tried")

    def __init__(
        self, group: Hashable, scope: str, shapes: tuple[Shape, ...], pools: list[Pool], *, is_strict: bool
    ) -> None:
        self.group = group
        self.scope = scope
        self.entries: list[Entry] = []
        self.gpus = shapes[0].gpus
        self.pools = pools
        self.is_strict = is_strict
        self.is_plain = not is_strict and len(shapes) == 1 and shapes[0].is_plain
        """All ask for so many whole gpus and nothing else."""
        self.tried: tuple[int, int] = (-1, -1)
        self.cause: Cause | None = None
        """Why the jobs wait (in a strict line: its head), as last said."""
        self.head: Job | None = None
        """In a strict line the job whose own waiting is booked."""

    def could_fit(self) -> bool:
        """False only if there are too few free gpus for whatever the head asks for."""
        if not self.is_plain:
            return True
        free = 0
        for pool in self.pools:
            free += pool.free
        return self.gpus <= free

    def add(self, entry: Entry) -> None:
        bisect.insort(self.entries, entry)

    def remove(self, entry: Entry) -> None:
        remove_entry(self.entries, entry)


class Running:
    """The running jobs by order, the last to be kept at the end. Keys are as of when they were last set."""

    __slots__ = ("_present", "by_seq", "entries")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_seq: dict[int, Entry] = {}
        self._present: tuple[float, list[Entry]] | None = None

    def add(self, entry: Entry) -> None:
        self._present = None
        bisect.insort(self.entries, entry)
        self.by_seq[entry[2]] = entry

    def remove(self, job: Job) -> None:
        entry = self.by_seq.pop(job.seq, None)
        if entry is not None:
            self._present = None
            remove_entry(self.entries, entry)

    def present(self, order: Order, now_s: float) -> list[Entry]:
        """All entries with the keys of this moment, the last first; worked out once as long as nothing changes."""
        if self._present is None or self._present[0] != now_s:
            entries = [(job.rank, order.running_key(job, now_s), job.seq, job) for *_, job in self.entries]
            entries.sort(reverse=True)
            self._present = (now_s, entries)
        return self._present[1]


def remove_entry(entries: list[Entry], entry: Entry) -> None:
    index = bisect.bisect_left(entries, entry)
    if index == len(entries) or entries[index] is not entry:
        raise InvariantBroken(f"no entry of {entry[3]!r} where it should be")
    del entries[index]
