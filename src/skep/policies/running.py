"""Running jobs in order, the last to be kept at the end, with keys that are fixed, fall or rise."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Hashable, Iterator

from skep.core.job import JobState
from skep.core.view import JobView
from skep.policies.crossings import Crossings
from skep.policies.lines import Entry, insert_entry, remove_entry
from skep.policies.order.base import Key, Order
from skep.policies.seats import Seats

JOB_OF = operator.itemgetter(3)
"""The job of an entry."""


class Running:
    """The running jobs in order, the last to be kept at the end. Keys are as of when they were last set."""

    __slots__ = (
        "by_seq",
        "crossings",
        "entries",
        "has_spared",
        "seats",
    )

    def __init__(self, crossings: Crossings, seats: Seats | None = None) -> None:
        self.crossings = crossings
        self.seats = seats
        """The seats of running jobs, for pipelines with adjusters."""
        self.entries: list[Entry] = []
        self.by_seq: dict[int, Entry] = {}
        self.has_spared = False
        """True if a job of this instant was not stopped for another one because it is still launching."""

    def add(self, entry: Entry) -> None:
        insert_entry(self.entries, entry)
        self.by_seq[entry[2]] = entry
        self.crossings.add(entry)
        if self.seats is not None:
            self.seats.add(entry[3])

    def remove(self, job: JobView) -> None:
        entry = self.by_seq.pop(job.seq, None)
        if entry is not None:
            remove_entry(self.entries, entry)
            self.crossings.remove(entry)
            if self.seats is not None:
                self.seats.remove(job)

    def rekey(self, at: int, key: Key) -> None:
        """Update the key of the entry at this position (orders whose keys fall, unless a report corrects one)."""
        rank, _, seq, job = self.entries.pop(at)
        self.by_seq[seq] = entry = (rank, key, seq, job)
        bisect.insort(self.entries, entry)

    def beyond(self, cutoff: tuple[Key, ...]) -> Iterator[JobView]:
        """The jobs with entries after this one, last first."""
        return map(JOB_OF, itertools.takewhile(cutoff.__lt__, reversed(self.entries)))


class Leaving:
    """Preempted jobs that have not exited yet. In a strict line no job passes them before they are back in it."""

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
