"""Pending jobs in lines.

A *line* holds pending jobs of which the first must start before any other can: with `walk=skip` the jobs with equal
requests (if the first does not fit, none does), with `walk=strict` all jobs of a group. So a decision examines the
heads of a few lines instead of every pending job.
"""

from __future__ import annotations

import bisect
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
        "is_plain",
        "is_strict",
        "pool",
        "pools",
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
