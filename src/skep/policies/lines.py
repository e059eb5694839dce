"""Pending jobs in lines.

A *line* holds pending jobs of which the first must start before any other can: with `walk=skip` the jobs with equal
requests (if the first does not fit, none does), with `walk=strict` all jobs of a group. So a decision examines the
heads of a few lines instead of every pending job.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
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


class Pending:
    """The pending jobs of a planner: the line and the entry of each."""

    __slots__ = ("active", "entries", "epoch", "lines", "odd", "touched")

    def __init__(self) -> None:
        self.lines: dict[Hashable, Line] = {}
        """By what their jobs have in common; made when the first one comes."""
        self.active: dict[str, Line] = {}
        """Non-empty lines, by scope: most users have nothing pending."""
        self.odd: dict[str, Line] = {}
        """Those of them that are not plain."""
        self.entries: dict[int, tuple[Line, Entry]] = {}
        """By seq."""
        self.touched: dict[str, Line] = {}
        """Lines with a new head since the last walk."""
        self.epoch = 0
        """Increases when something happens that could help a job which did not fit."""

    def add(self, line: Line, entry: Entry) -> None:
        entries, scope = line.entries, line.scope
        insert_entry(entries, entry)
        if entries[0] is entry:
            self.active[scope] = line  # else there already
            if not line.is_plain:
                self.odd[scope] = line
            self.touched[scope] = line
        self.entries[entry[2]] = (line, entry)

    def remove(self, job: JobView) -> Line:
        """Remove the job. Returns the line that it was in."""
        line, entry = self.entries.pop(job.seq)
        remove_entry(line.entries, entry)
        if not line.entries:
            del self.active[line.scope]
            self.odd.pop(line.scope, None)
        return line

    def before(self, job: JobView) -> list[JobView]:
        """The jobs before it in its line."""
        line, entry = self.entries[job.seq]
        return [other[3] for other in line.entries[: bisect.bisect_left(line.entries, entry)]]

    def in_order(self, group_key: Callable[[Hashable], float]) -> Iterator[JobView]:
        """All jobs in the order in which they would start."""

        def keyed(line: Line) -> Iterator[tuple[float, int, Key, int, JobView]]:
            group = group_key(line.group)
            return ((group, *entry) for entry in line.entries)

        return (each[4] for each in heapq.merge(*map(keyed, self.active.values())))

    def offer(self, group_key: Callable[[Hashable], float], attempt: Callable[[JobView], bool]) -> None:
        """Yield the jobs in order; after a refused one the rest of its line is skipped."""
        heads = [(group_key(line.group), *line.entries[0][:3], 0, line) for line in self.active.values()]
        heapq.heapify(heads)
        while heads:
            group, _, _, _, at, line = heads[0]
            if attempt(line.entries[at][3]) and at + 1 < len(line.entries):
                heapq.heapreplace(heads, (group, *line.entries[at + 1][:3], at + 1, line))
            else:
                heapq.heappop(heads)
