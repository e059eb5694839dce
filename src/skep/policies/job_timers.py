"""Times at which jobs of a planner change by themselves: a key jumps, or the patience of a pending job ends."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator

from skep.core.view import JobView


class JobTimers:
    """At most one time for each job."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, JobView]] = []
        """A heap that may contain dropped entries."""
        self._due: dict[int, float] = {}
        """By seq: the valid entries."""

    def __bool__(self) -> bool:
        """False only if no job has a timer."""
        return bool(self._heap)

    def set(self, job: JobView, at_s: float) -> None:
        """`math.inf`: never."""
        if at_s < math.inf:
            if self._due.get(job.seq) != at_s:
                self._due[job.seq] = at_s
                heapq.heappush(self._heap, (at_s, job.seq, job))
        else:
            self._due.pop(job.seq, None)

    def drop(self, job: JobView) -> None:
        self._due.pop(job.seq, None)

    def take_due(self, now_s: float) -> Iterable[JobView]:
        """Jobs whose time has come; their timers are removed. A timer that is set meanwhile and is already due is
        included."""
        return self._take_due(now_s) if self._heap and self._heap[0][0] <= now_s else ()

    def _take_due(self, now_s: float) -> Iterator[JobView]:
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            at_s, seq, job = heapq.heappop(heap)
            if self._due.get(seq) == at_s:
                del self._due[seq]
                yield job

    def next_s(self) -> float:
        heap, due = self._heap, self._due
        while heap:
            at_s, seq, _ = heap[0]
            if due.get(seq) == at_s:
                return at_s
            heapq.heappop(heap)
        return math.inf
