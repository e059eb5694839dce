"""What of the running may be changed? Nothing, or: later ones may be pushed out with their checkpoint."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Iterator

from skep.core.job import JobState
from skep.core.view import JobView, View
from skep.policies.lines import Entry, Running
from skep.policies.order.base import FALLS, RISES, Order


class Nothing:
    """Running jobs are left alone, but by jobs of a higher priority, which no policy can keep waiting."""

    name = "nothing"
    preempts = False

    def may_help(self, order: Order, running: Running, entry: Entry) -> bool:
        """False only if nobody could be pushed out for this pending job: a quick question before `candidates`."""
        return bool(running.entries) and running.entries[-1][0] > entry[0]

    def candidates(self, view: View, order: Order, running: Running, entry: Entry, missing: float) -> Iterable[JobView]:
        """Running jobs that may be stopped for this pending one, in the order in which to stop them.

        None need be named when all together hold less than the `missing` gpus.
        """
        lower = running.entries[bisect.bisect_left(running.entries, (entry[0] + 1,)) :]
        return (later[3] for later in reversed(lower) if later[3].state is JobState.RUNNING)


class Preempt(Nothing):
    """A pending job may push out running jobs that are ordered after it, the last first."""

    name = "preempt"
    preempts = True

    def may_help(self, order: Order, running: Running, entry: Entry) -> bool:
        if order.moves == RISES or not running.entries:
            return bool(running.entries)
        return running.entries[-1] > order.cutoff(entry[3], entry[1])

    def candidates(self, view: View, order: Order, running: Running, entry: Entry, missing: float) -> Iterable[JobView]:
        cutoff = order.cutoff(entry[3], entry[1])
        if order.moves == RISES:
            return self._risen(view, order, running, cutoff)
        # Keys that stand or fall are at most what they were: what is not beyond the cutoff now, never was.
        later = running.entries[bisect.bisect_right(running.entries, cutoff) :]
        for entry in later:
            missing -= entry[3].gpu_count
        if missing > 0:
            return ()
        later.reverse()
        if order.moves == FALLS:
            return self._fallen(view, order, running, later, cutoff)
        return (entry[3] for entry in later if entry[3].state is JobState.RUNNING)

    def _fallen(
        self, view: View, order: Order, running: Running, later: list[Entry], cutoff: tuple[object, ...]
    ) -> Iterator[JobView]:
        """The last by present key first. An entry's old key is at least its present one, so a job can be named as
        soon as no old key beyond its present one is left; entries below the cutoff sink to their place."""
        current: list[tuple[int, float, int, JobView]] = []
        for old in later:
            while current and (-current[0][0], -current[0][1], -current[0][2]) >= old[:3]:
                yield heapq.heappop(current)[3]
            job = old[3]
            entry = (job.rank, order.key(job, view.now_s), job.seq, job)
            if entry <= cutoff:
                running.remove(job)
                running.add(entry)
            elif job.state is JobState.RUNNING:
                heapq.heappush(current, (-job.rank, -entry[1], -job.seq, job))
        while current:
            yield heapq.heappop(current)[3]

    def _risen(self, view: View, order: Order, running: Running, cutoff: tuple[object, ...]) -> Iterator[JobView]:
        for entry in running.latest(order, view.now_s):
            if entry <= cutoff:
                return
            if entry[3].state is JobState.RUNNING:
                yield entry[3]
