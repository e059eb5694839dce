"""Preempted jobs that have not exited yet. In a strict line no job passes them before they are back in it."""

from __future__ import annotations

from collections.abc import Hashable

from skep.core.job import JobState
from skep.core.view import JobView
from skep.policies.lines import Entry
from skep.policies.order.base import Key, Order


class Leaving:
    __slots__ = ("_first", "_jobs", "_order")

    def __init__(self, order: Order) -> None:
        self._order = order
        self._jobs: list[JobView] = []
        self._first: dict[Hashable, tuple[int, Key, int]] = {}
        """The first of them in each group: (rank, key, seq)."""

    def add(self, job: JobView, now_s: float) -> None:
        self._jobs.append(job)
        self._note(job, now_s)

    def refresh(self, now_s: float) -> None:
        """Remove the jobs that have exited."""
        if self._jobs:
            self._jobs = [job for job in self._jobs if job.state is JobState.STOPPING and not job.is_ending]
            self._first = {}
            for job in self._jobs:
                self._note(job, now_s)

    def _note(self, job: JobView, now_s: float) -> None:
        group, place = self._order.group(job), (job.rank, self._order.key(job, now_s), job.seq)
        if group not in self._first or place < self._first[group]:
            self._first[group] = place

    def holds_up(self, group: Hashable, entry: Entry) -> bool:
        """True if the entry at the head of its group's line must wait for one of them."""
        return bool(self._jobs) and self._first.get(group, entry[:3]) < entry[:3]
