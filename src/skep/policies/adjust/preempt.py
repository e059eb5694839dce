"""Preemption by priority, which every policy has, and by order: later jobs may be stopped with their checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from skep.core.job import JobState
from skep.core.view import JobView, View
from skep.policies.lines import Entry
from skep.policies.order.base import FALLS, RISES, Key, Order
from skep.policies.running import Running

LAUNCHING, RUNNING = JobState.LAUNCHING, JobState.RUNNING

FIRST: tuple[Key, ...] = ()
"""Before every entry."""

LAST: tuple[Key, ...] = (math.inf,)
"""After every entry."""


class ByPriority:
    """Only jobs of a lower priority are stopped."""

    name = "by-priority"
    preempts = False
    is_by_order = True

    def edge(self, order: Order, running: Running) -> tuple[Key, ...]:
        return running.entries[-1][:1] if running.entries else FIRST

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        return self.candidates(view, order, running, entry)

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        return (job for job in running.beyond((entry[0] + 1,)) if may_stop(view, running, job))


class Preempt:
    """A pending job may stop running jobs that are ordered after it, the last first."""

    name = "preempt"
    preempts = True
    is_by_order = True

    def edge(self, order: Order, running: Running) -> tuple[Key, ...]:
        if not running.entries:
            return FIRST
        return LAST if order.moves == RISES else running.entries[-1]

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        if order.moves == RISES:
            return running.crossings.passed(entry, view.now_s)
        # Keys that are fixed or fall never exceed their earlier values: a key that is not beyond the cutoff now never
        # was.
        return running.beyond(entry[:3])

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        if order.moves == RISES:
            return self._risen(view, running, order.cutoff(entry[3], entry[1]))
        if order.moves == FALLS:
            return self._fallen(view, order, running, entry[:3])
        jobs: Iterable[JobView] = running.beyond(entry[:3])
        if order.ages:
            jobs = sorted(jobs, key=lambda job: (job.rank, order.key(job, view.now_s), job.seq), reverse=True)
        return (job for job in jobs if may_stop(view, running, job))

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

    def _risen(self, view: View, running: Running, cutoff: tuple[Key, ...]) -> Iterator[JobView]:
        for entry in running.crossings.latest(cutoff, view.now_s):
            if entry <= cutoff:
                return
            job = entry[3]
            if may_stop(view, running, job):
                yield job
            elif is_of_now(job, view.now_s):
                return  # it is the next to go, as soon as it runs, and not one before it


def may_stop(view: View, running: Running, job: JobView) -> bool:
    """A launching job cannot be stopped. If it was started at this instant, no event says when it can be."""
    if job.state is RUNNING:
        return True
    if is_of_now(job, view.now_s):
        running.has_spared = True
    return False


def is_of_now(job: JobView, now_s: float) -> bool:
    """True if it was started at this instant: by an earlier plan, or by this one, which is not committed yet."""
    return job.state is LAUNCHING and (job.decided_s == now_s or job.bound is None)
