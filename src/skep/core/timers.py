"""Timers: what will happen to jobs at a known time, unless something else happens first.

Timers are part of the state: a snapshot has them, a fork keeps them, and a restart need not set them again. An expired
timer becomes an event (`TimerDue`), so that a replay sees it at the same place of the log. The planner's own wake-up is
`State.wake_s`: it changes with every decision.
"""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Iterable

import msgspec


class TimerKind(enum.StrEnum):
    BACK_OFF = "back-off"
    """The back-off of a failed job ends; the job is released."""
    LEASE = "lease"
    """The end of a lease: the job is stopped as if preempted, and is pending again."""
    LIMIT = "limit"
    """The time limit of a job: the job ends."""
    DEADLINE = "deadline"
    """The deadline of a search, which ends."""
    BUDGET = "budget"
    """The GPU time of a search is spent; it ends."""
    PLAN = "plan"
    """The planner asked to be woken. Used in events only; the state has it as `wake_s`."""


BACK_OFF, LEASE, LIMIT, PLAN = TimerKind.BACK_OFF, TimerKind.LEASE, TimerKind.LIMIT, TimerKind.PLAN
DEADLINE, BUDGET = TimerKind.DEADLINE, TimerKind.BUDGET
OF_SEARCHES = (DEADLINE, BUDGET)


class Timer(msgspec.Struct, frozen=True, order=True, array_like=True):
    at_s: float
    kind: TimerKind
    job_id: str = ""
    """The id of a group for timers of searches."""


class Timers:
    """At most one of each kind for a job."""

    def __init__(self, timers: Iterable[Timer] = ()) -> None:
        self.by_job: dict[tuple[TimerKind, str], Timer] = {}
        """By kind and job."""
        self._heap: list[Timer] = []
        """A heap that may contain dropped timers; these are removed when they come to the front."""
        for timer in timers:
            self.set(timer.kind, timer.job_id, timer.at_s)

    def __len__(self) -> int:
        return len(self.by_job)

    def set(self, kind: TimerKind, job_id: str, at_s: float) -> None:
        timer = self.by_job[kind, job_id] = Timer(at_s, kind, job_id)
        heapq.heappush(self._heap, timer)

    def drop(self, kind: TimerKind, job_id: str) -> bool:
        """Drop a timer. True if there was one."""
        return self.by_job.pop((kind, job_id), None) is not None

    def drop_all(self, job_id: str) -> None:
        for kind in (LIMIT, LEASE, BACK_OFF):
            self.by_job.pop((kind, job_id), None)

    def at_s(self, kind: TimerKind, job_id: str) -> float | None:
        timer = self.by_job.get((kind, job_id))
        return None if timer is None else timer.at_s

    @property
    def next_s(self) -> float:
        heap = self._heap
        while heap and self.by_job.get((heap[0].kind, heap[0].job_id)) != heap[0]:
            heapq.heappop(heap)
        return heap[0].at_s if heap else math.inf

    def due(self, now_s: float) -> list[Timer]:
        """The timers that are due, in order; they stay until they are dropped."""
        found: list[Timer] = []
        while self.next_s <= now_s:
            found.append(heapq.heappop(self._heap))
        for timer in found:
            heapq.heappush(self._heap, timer)
        return list(dict.fromkeys(found))

    def all(self) -> list[Timer]:
        return sorted(self.by_job.values())

    def shifted(self, by_s: float) -> Timers:
        """The clock was set: remaining times stay the same."""
        return Timers(Timer(each.at_s + by_s, each.kind, each.job_id) for each in self.all())
