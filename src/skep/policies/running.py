"""Running jobs in order, the last to be kept at the end, with keys that are fixed, fall or rise."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Hashable, Iterable, Iterator

from skep.core.job import JobState
from skep.core.view import JobView
from skep.policies.drifting import Drifting
from skep.policies.lines import Entry, Head, insert_entry, remove_entry
from skep.policies.order.base import TICKS, Key, Order
from skep.policies.rising import Rising
from skep.policies.seats import Seats

JOB_OF = operator.itemgetter(3)
"""The job of an entry."""

EARLY = 0.05
"""A crossing that is so many ticks after one, and mostly less, may be at that one except for rounding. If it is not, it
is found again at the next."""


class Running:
    """The running jobs in order, the last to be kept at the end. Keys are as of when they were last set."""

    __slots__ = (
        "_rising",
        "by_seq",
        "entries",
        "gpus_added",
        "has_spared",
        "seats",
    )

    def __init__(self, seats: Seats | None = None) -> None:
        self.seats = seats
        """The seats of running jobs, for pipelines with adjusters."""
        self.entries: list[Entry] = []
        self.by_seq: dict[int, Entry] = {}
        self.gpus_added = 0
        """The GPUs of all jobs that were ever entered, or entered again with a later key: what stopping jobs beyond an
        entry could free grows by no more than this does."""
        self.has_spared = False
        """True if a job of this instant was not stopped for another one because it is still launching."""
        self._rising: Rising | Drifting | None = None
        """Created when first needed and updated from then on: most policies never need it."""

    def refresh(self, started: Iterable[JobView], *, is_steady: bool) -> None:
        """A decision begins: rising keys may have changed, even at the same time. `is_steady`: no job was added, and
        those that run progress as predicted, except the ones that have just started to."""
        if self._rising is not None:
            self._rising.refresh(started, is_steady=is_steady)

    def add(self, entry: Entry) -> None:
        insert_entry(self.entries, entry)
        self.by_seq[entry[2]] = entry
        job = entry[3]
        held = job.allocation
        # With several shapes `gpu_count` is that of the first one until the job runs.
        self.gpus_added += job.gpu_count if held is None or len(job.shapes) == 1 else held.gpu_count()
        if self._rising is not None:
            self._rising.add(entry)
        if self.seats is not None:
            self.seats.add(job)

    def remove(self, job: JobView) -> None:
        entry = self.by_seq.pop(job.seq, None)
        if entry is not None:
            remove_entry(self.entries, entry)
            if self._rising is not None:
                self._rising.remove(entry)
            if self.seats is not None:
                self.seats.remove(job)

    def rekey(self, at: int, key: Key) -> None:
        """Update the key of the entry at this position (orders whose keys fall, unless a report corrects one)."""
        rank, before, seq, job = self.entries.pop(at)
        if key > before:
            self.gpus_added += job.gpu_count
        self.by_seq[seq] = entry = (rank, key, seq, job)
        bisect.insort(self.entries, entry)

    def beyond(self, cutoff: tuple[Key, ...]) -> Iterator[JobView]:
        """The jobs with entries after this one, last first."""
        return map(JOB_OF, itertools.takewhile(cutoff.__lt__, reversed(self.entries)))

    def passed(self, order: Order, entry: Entry, now_s: float) -> Iterable[JobView]:
        """Jobs whose rising keys are now beyond this pending entry, in any order; possibly without some that are still
        launching."""
        return self._moving(order).passed(order, entry, now_s)

    def lacks(self, order: Order, head: Head, now_s: float) -> bool:
        """True if it is certain that jobs whose rising keys are beyond this head have less than the missing GPUs."""
        return self._moving(order).lacks(order, head, now_s)

    def latest(self, order: Order, now_s: float, cutoff: tuple[Key, ...]) -> Iterator[Entry]:
        """Jobs with rising keys, with their present keys, last first, at least those beyond the cutoff; possibly
        without some that are still launching."""
        return self._moving(order).latest(order, now_s, cutoff)

    def next_crossing(self, order: Order, heads: list[Head], now_s: float) -> float:
        """The next time at which one of these pending jobs could preempt running jobs that it cannot preempt now."""
        at_s = self._moving(order).first_crossing(order, heads, now_s)
        return at_s if at_s == math.inf else max(math.ceil(at_s * TICKS - EARLY), math.floor(now_s * TICKS) + 1) / TICKS

    def _moving(self, order: Order) -> Rising | Drifting:
        if self._rising is None:
            self._rising = Rising(self.entries) if order.is_even else Drifting(self.entries)
        return self._rising


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
