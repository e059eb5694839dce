"""Pending jobs in lines.

A *line* holds pending jobs of which the first must start before any other can: with `walk=skip` the jobs with equal
requests (if the first does not fit, none does), with `walk=strict` all jobs of a group. So a decision examines the
heads of a few lines instead of every pending job.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Hashable, Sequence
from typing import Any

from skep.core.errors import InvariantBroken
from skep.core.model import Shape
from skep.core.refusal import Cause
from skep.core.view import JobView, PoolView
from skep.policies.order.base import Key

Entry = tuple[int, Key, int, JobView]
"""(rank, key, seq, job): rank puts priorities first, seq ends every tie."""


NO_SEQ = -1
"""A seq that no job has."""

NOT_TRIED = (NO_SEQ, -1)


class Line:
    """Pending jobs in order; `tried` is the head that failed and the epoch in which it did."""

    __slots__ = (
        "cause",
        "entries",
        "gpus",
        "group",
        "head",
        "hope",
        "is_plain",
        "is_strict",
        "passed",
        "pool",
        "pools",
        "quiet_coming",
        "quiet_lacks",
        "quiet_missing",
        "quiet_seq",
        "quiet_until_s",
        "scope",
        "tried",
    )

    def __init__(
        self,
        group: Hashable,
        scope: str,
        shapes: tuple[Shape, ...],
        pools: Sequence[PoolView],
        *,
        is_strict: bool,
        needs_free: bool = True,
    ) -> None:
        self.group = group
        self.scope = scope
        self.entries: list[Entry] = []
        self.gpus = shapes[0].gpus
        self.pools = pools
        self.pool = pools[0] if len(pools) == 1 else None
        self.is_strict = is_strict
        self.is_plain = needs_free and not is_strict and len(shapes) == 1 and shapes[0].is_plain
        """If all jobs of the line request only this many whole GPUs, which must be free."""
        self.tried = NOT_TRIED
        self.hope = 0.0
        """If the head failed because too few GPUs could be freed for it: how many must be free or newly held (counted
        as in `Walker.heads`) before it is worth another try."""
        self.passed: list[int] | None = None
        """Where keys of running jobs rise: those (by seq) that had passed the head when it failed because they have too
        few GPUs. None: it failed otherwise."""
        self.quiet_until_s = -math.inf
        """Where keys of running jobs rise: if the head (`quiet_seq`) needs at least `quiet_missing` GPUs beyond the
        free ones, no job that matters to it passes it before this time."""
        self.quiet_seq, self.quiet_missing = NO_SEQ, 0
        self.quiet_lacks = 0.0
        """How many of those GPUs the jobs did not have that had passed it; 0: it fails for another reason."""
        self.quiet_coming: list[tuple[float, int]] = []
        """The next jobs that pass it, in order: (not before, GPUs)."""
        self.cause: Cause | None = None
        """Why the jobs wait (in a strict line: its head), as last booked."""
        self.head: JobView | None = None
        """In a strict line the job whose own waiting is booked."""

    def free(self) -> int:
        """Free GPUs of the types that the head accepts."""
        free = 0
        for pool in self.pools:
            free += pool.free
        return free

    def is_quiet(self, free: int, now_s: float) -> bool:
        """True if the head lacks GPUs as before: those that it could preempt have too few."""
        if not self.quiet_lacks or now_s >= self.quiet_until_s or self.quiet_seq != self.entries[0][2]:
            return False
        lacks = self.quiet_lacks + self.gpus - free - self.quiet_missing
        for at_s, gpus in self.quiet_coming:
            if at_s > now_s:
                break
            lacks -= gpus
        return lacks > 0


Head = tuple[Line, Entry, int]
"""A line with its head, and how many GPUs that needs beyond the free ones."""


def insert_entry(entries: list[Entry], entry: Entry) -> None:
    if not entries or entries[-1] < entry:
        entries.append(entry)
    else:
        bisect.insort(entries, entry)


# Sorted by the first items of the entries.
def remove_entry(entries: list[Any], entry: tuple[Any, ...]) -> None:
    if entries and entries[-1] is entry:
        entries.pop()
        return
    index = 0 if entries and entries[0] is entry else bisect.bisect_left(entries, entry)
    if index == len(entries) or entries[index] is not entry:
        raise InvariantBroken(f"no entry of {entry[-1]!r} at its position")
    del entries[index]
