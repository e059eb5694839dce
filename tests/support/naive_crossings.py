"""Crossings by looking at every running job whenever one is asked for: no head is ever left out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from skep.core.job import JobState
from skep.core.view import JobView, Trigger, View
from skep.policies import roster
from skep.policies.adjust.base import Preemption
from skep.policies.crossings import EARLY, Crossings, LineHead, NoCrossings
from skep.policies.lines import Entry, Line, Pending
from skep.policies.order.base import RISES, TICKS, Key, Order


class NaiveCrossings:
    moves = True
    is_settled = False

    def __init__(self, order: Order) -> None:
        self.order = order
        self.jobs: dict[int, JobView] = {}

    def add(self, entry: Entry) -> None:
        self.jobs[entry[2]] = entry[3]

    def remove(self, entry: Entry) -> None:
        del self.jobs[entry[2]]

    def begin(self, view: View, trigger: Trigger) -> None: ...

    def may_try(self, line: Line, entry: Entry, free: int, now_s: float) -> bool:
        return True

    def lacks(self, head: LineHead, now_s: float) -> bool | None:
        return None

    def passed(self, entry: Entry, now_s: float) -> list[JobView]:
        _, key, _, job = entry
        return [entry[3] for entry in self.latest(self.order.cutoff(job, key), now_s)]

    def latest(self, cutoff: tuple[Key, ...], now_s: float) -> Iterator[Entry]:
        # `Rising` leaves out jobs that are launching, `Drifting` does not.
        running = [job for job in self.jobs.values() if job.state is JobState.RUNNING or not self.order.is_even]
        entries = [(job.rank, self.order.running_key(job, now_s), job.seq, job) for job in running]
        yield from sorted([entry for entry in entries if entry > cutoff], reverse=True)

    def failed(self, head: LineHead, lacking: float) -> None: ...

    def known_s(self) -> float | None:
        return None

    def next_s(self, heads: list[LineHead], view: View) -> float:
        """When any job passes any head, whether that has enough GPUs or not."""
        order, now_s, found = self.order, view.now_s, [math.inf]
        for head in heads:
            rank, key, _, pending = head.entry
            cutoff = order.cutoff(pending, key)
            for job in self.jobs.values():
                has_passed = job.state is JobState.RUNNING and (rank, order.running_key(job, now_s), job.seq) > cutoff
                if job.rank == rank and not has_passed:
                    found.append(order.reaches(job, key, now_s))
        at_s = min(found)
        return at_s if at_s == math.inf else max(math.ceil(at_s * TICKS - EARLY), math.floor(now_s * TICKS) + 1) / TICKS


def make_naive(order: Order, preempt: Preemption, pending: Pending, *, may_settle: bool) -> Crossings:
    has_crossings = order.moves == RISES and preempt.preempts
    return NaiveCrossings(order) if has_crossings else NoCrossings(pending)


@contextmanager
def naive() -> Iterator[None]:
    """Planners that are attached inside look at every job."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(roster, "make_crossings", make_naive)
        yield
