"""Preemption by priority, which every policy has, and by order: later jobs may be stopped with their checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skep.core.job import JobState
from skep.core.view import JobView, View
from skep.policies.lines import Entry
from skep.policies.order.base import FALLS, RISES, Order
from skep.policies.running import Running


class ByPriority:
    """Only jobs of a lower priority are stopped."""

    name = "by-priority"
    preempts = False

    def may_help(self, order: Order, running: Running, entry: Entry) -> bool:
        return bool(running.entries) and running.entries[-1][0] > entry[0]

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        return self.candidates(view, order, running, entry)

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        later = (other[3] for other in running.beyond((entry[0] + 1,)))
        return (job for job in later if may_stop(view, running, job))


class Preempt:
    """A pending job may stop running jobs that are ordered after it, the last first."""

    name = "preempt"
    preempts = True

    def may_help(self, order: Order, running: Running, entry: Entry) -> bool:
        if order.moves == RISES or not running.entries:
            return bool(running.entries)
        return running.entries[-1] > entry

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        if order.moves == RISES:
            return running.passed(order, entry, view.now_s)
        # Keys that are fixed or fall never exceed their earlier values: a key that is not beyond the cutoff now never
        # was.
        return (later[3] for later in running.beyond(order.cutoff(entry[3], entry[1])))

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        cutoff = order.cutoff(entry[3], entry[1])
        if order.moves == RISES:
            return self._risen(view, order, running, cutoff)
        if order.moves == FALLS:
            return self._fallen(view, order, running, cutoff)
        later = (other[3] for other in running.beyond(cutoff))
        return (job for job in later if may_stop(view, running, job))

    def _fallen(self, view: View, order: Order, running: Running, cutoff: tuple[object, ...]) -> Iterator[JobView]:
        """Last by present key first. Each examined job is entered again with its present key, which is at most the
        previous one. If it is then still the last entry, it is the last by present keys. No job is entered twice at one
        time."""
        at = len(running.entries) - 1
        while at >= 0:
            rank, before, seq, job = running.entries[at]
            key = order.key(job, view.now_s)
            if key != before:
                running.rekey(at, key)
                if key < before and running.entries[at][3] is not job:
                    continue
            if (rank, key, seq) <= cutoff:
                return
            if may_stop(view, running, job):
                yield job
            at -= 1

    def _risen(self, view: View, order: Order, running: Running, cutoff: tuple[object, ...]) -> Iterator[JobView]:
        for entry in running.latest(order, view.now_s):
            if entry <= cutoff:
                return
            if entry[3].state is JobState.RUNNING:
                yield entry[3]


def may_stop(view: View, running: Running, job: JobView) -> bool:
    """A launching job cannot be stopped. If it was started at this instant, no event says when it can be."""
    if job.state is JobState.RUNNING:
        return True
    if job.state is JobState.LAUNCHING and job.decided_s == view.now_s:
        running.has_spared = True
    return False
