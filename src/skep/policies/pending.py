"""The pending jobs of a planner, in lines by their requests."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Hashable, Iterator

from skep.core.view import JobView
from skep.policies.lines import Entry, Line, insert_entry, remove_entry
from skep.policies.order.base import Key


class Pending:
    """The line and the entry of each pending job."""

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
