"""Running jobs in order, the last to be kept at the end, with keys that are fixed, fall or rise."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import operator
from collections.abc import Iterable, Iterator

from skep.core.job import JobState
from skep.core.view import JobView
from skep.policies.lines import Entry, Line, remove_entry
from skep.policies.order.base import Ceiling, Key, Order
from skep.policies.seats import Seats

Item = tuple[float, int, JobView]
"""(what a rising key would have been at time 0, seq, job)."""

JOB_OF = operator.itemgetter(3)
"""The job of an entry."""

Head = tuple[Line, Entry, int]
"""A line with its head, and how many GPUs that needs beyond the free ones."""

GRID = 2.0**20
"""Crossings are computed to about a microsecond (a power of two, so that whole seconds stay exact), so that a crossing
that coincides with an arrival or an end, except for rounding, is one decision with it."""


class Running:
    """The running jobs in order, the last to be kept at the end. Keys are as of when they were last set."""

    __slots__ = (
        "_asked",
        "_closed",
        "_floor",
        "_high",
        "_is_steady",
        "_open",
        "_present_s",
        "_rising",
        "by_seq",
        "entries",
        "fresh",
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
        self.fresh: list[Entry] | None = None
        """Entries that were added since the last search for crossings; None: there was none, as with most orders."""
        self._present_s = -math.inf
        self._open: dict[int, Entry] = {}
        """By seq: the jobs whose keys had to be computed for that time, with these keys."""
        self._closed: dict[int, Ceiling] = {}
        """The other jobs. Most jobs have not passed any pending one, and this is known until they do."""
        self._floor: tuple[int, Key] = (0, 0)
        """The lowest ceiling of these."""
        self._high: list[int] = []
        """The seqs of those with a higher ceiling."""
        self._asked: list[int] = []
        """The seqs of those for which a higher ceiling has become known since."""
        self._is_steady = False
        """True if all that was known at the last decision still holds."""
        self._rising: Rising | None = None
        """Created when first needed and updated from then on: most policies never need it."""

    def refresh(self, started: Iterable[JobView], *, is_steady: bool) -> None:
        """A decision begins: rising keys may have changed, even at the same time. `is_steady`: no job was added, and
        those that run progress as predicted, except the ones that have just started to."""
        self._present_s = -math.inf
        self._is_steady = is_steady
        for job in started:
            self._closed.pop(job.seq, None)

    def add(self, entry: Entry) -> None:
        bisect.insort(self.entries, entry)
        self.by_seq[entry[2]] = entry
        job = entry[3]
        held = job.allocation
        # With several shapes `gpu_count` is that of the first one until the job runs.
        self.gpus_added += job.gpu_count if held is None or len(job.spec.shapes) == 1 else held.gpu_count()
        if self._rising is not None:
            self._rising.add(entry)
        if self.fresh is not None:
            self.fresh.append(entry)
        if self.seats is not None:
            self.seats.add(job)

    def remove(self, job: JobView) -> None:
        entry = self.by_seq.pop(job.seq, None)
        if entry is not None:
            self._open.pop(job.seq, None)
            self._closed.pop(job.seq, None)
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

    def passed(self, order: Order, entry: Entry, now_s: float) -> Iterator[JobView]:
        """Jobs whose rising keys are now beyond this pending entry, in any order; possibly without some that are still
        launching."""
        if order.is_even:
            return self._evenly(order, now_s).passed(order, entry, now_s)
        cutoff = order.cutoff(entry[3], entry[1])
        return (each[3] for each in self._near(order, cutoff, now_s) if each > cutoff)

    def latest(self, order: Order, cutoff: tuple[Key, ...], now_s: float) -> Iterable[Entry]:
        """Jobs with rising keys beyond the cutoff, and possibly more, with their present keys, last first; possibly
        without some that are still launching."""
        if order.is_even:
            return self._evenly(order, now_s).latest(order, now_s)
        return sorted(self._near(order, cutoff, now_s), reverse=True)

    def _near(self, order: Order, cutoff: tuple[Key, ...], now_s: float) -> list[Entry]:
        """All jobs beyond the cutoff, and possibly more, with their present keys."""
        self._sort_out(order, now_s)
        closed, cut = self._closed, cutoff[:2]
        for seq in self._high if self._floor <= cut else list(closed):
            if seq in closed and closed[seq][0] > cut:
                self._work_out(order, seq, now_s)
        return list(self._open.values())

    def _sort_out(self, order: Order, now_s: float) -> None:
        """Divide the jobs by whether their present keys must be computed."""
        if self._present_s != now_s:
            self._closed = closed = self._ceilings(order, now_s)
            self._present_s, self._open, self._asked = now_s, {}, []
            self._floor = floor = min([known[0] for known in closed.values()], default=(0, 0))
            self._high = [seq for seq, known in closed.items() if known[0] != floor]
        if len(self._open) + len(self._closed) < len(self.by_seq):
            for seq in self.by_seq:
                if seq not in self._open and seq not in self._closed:
                    self._work_out(order, seq, now_s)

    def _ceilings(self, order: Order, now_s: float) -> dict[int, Ceiling]:
        if not self._is_steady:
            return order.ceilings(self.entries, now_s)
        closed = {seq: known for seq, known in self._closed.items() if known[2] > now_s}
        others = [self.by_seq[seq] for seq in (*self._open, *self._asked) if seq in self.by_seq]
        return closed | order.ceilings(others, now_s)

    def _work_out(self, order: Order, seq: int, now_s: float) -> None:
        rank, _, _, job = self.by_seq[seq]
        self._closed.pop(seq, None)
        self._open[seq] = (rank, order.running_key(job, now_s), seq, job)

    def next_crossing(self, order: Order, heads: list[Head], now_s: float) -> float:
        """The next time at which one of these pending jobs could preempt running jobs that it cannot preempt now."""
        at_s = math.inf
        if order.is_even:
            at_s = self._evenly(order, now_s).first_crossing(order, heads, now_s)
        else:
            at_s, sure_s = self._first_passing(order, heads, now_s)
            added = self.entries if self.fresh is None else self.fresh
            keys = [(entry[0], order.running_key(entry[3], now_s)) for entry in added if entry[2] in self.by_seq]
            latest = max(keys, default=None)
            for line, entry, _ in heads:
                # A job that was just started may be beyond it already, and can be stopped when it runs.
                line.quiet_until_s = sure_s if latest is None or latest <= entry[:2] else -math.inf
            self.fresh = []
        return at_s if at_s == math.inf else max(round(at_s * GRID), math.floor(now_s * GRID) + 1) / GRID

    def _first_passing(self, order: Order, heads: list[Head], now_s: float) -> tuple[float, float]:
        """When the first running job passes the next pending one before it, and a time before which certainly none
        does. Keys may change in any way here, so every job is examined."""
        by_rank: dict[int, set[Key]] = {}
        for _, entry, _ in heads:
            by_rank.setdefault(entry[0], set()).add(entry[1])
        keys = {rank: sorted(found) for rank, found in by_rank.items()}
        self._sort_out(order, now_s)
        first_s = sure_s = math.inf
        closed, floor = self._closed, self._floor
        if floor[0] in keys and floor[1] == keys[floor[0]][0]:
            # A job that has not passed the first pending job passes that one next.
            low = [known for known in closed.values() if known[0] == floor]
            first_s = min([known[1] for known in low], default=math.inf)
            sure_s = min([known[2] for known in low], default=math.inf)
            unclear = self._high
        else:
            unclear = list(closed)
        for seq in unclear:
            rank, ceiling = closed[seq][0] if seq in closed else (None, None)
            if rank not in keys:
                continue
            if ceiling <= keys[rank][0]:
                job = self.by_seq[seq][3]
                first_s = min(first_s, order.reaches(job, keys[rank][0], now_s))
                self._asked.append(seq)
                sure_s = min(sure_s, order.surely_behind(job))
            else:
                self._work_out(order, seq, now_s)
        for rank, key, _, job in self._open.values():
            if rank in keys and key <= keys[rank][-1]:
                following = bisect.bisect_left(keys[rank], key)
                at_s = order.reaches(job, keys[rank][following], now_s)
                if at_s < first_s:
                    first_s = at_s
                sure_s = min(sure_s, order.surely_behind(job))
        return first_s, sure_s

    def _evenly(self, order: Order, now_s: float) -> Rising:
        if self._rising is None:
            self._rising = Rising(self.entries)
        self._rising.file(order, now_s)
        return self._rising


class Rising:
    """Running jobs whose keys rise linearly. Two that rise at the same speed never overtake each other, so there is one
    list for each speed, sorted by the keys at time 0, and only the lists must be merged."""

    SLACK = 0.01
    """More than rounding can misplace a job in its list; close ones are compared by their exact keys."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.lists: dict[tuple[int, float], list[Item]] = {}
        """By rank and speed."""
        self.filed: dict[int, tuple[tuple[int, float], Item]] = {}
        self.unfiled = {entry[2]: entry[3] for entry in entries}
        """The key of a pending job does not change."""
        self.fresh: list[tuple[int, float, float]] = []
        """Jobs that were filed since the last search for crossings: (rank, key at time 0, speed)."""

    def add(self, entry: Entry) -> None:
        self.unfiled[entry[2]] = entry[3]

    def remove(self, entry: Entry) -> None:
        if self.unfiled.pop(entry[2], None) is None:
            kind, item = self.filed.pop(entry[2])
            remove_entry(self.lists[kind], item)
            if not self.lists[kind]:
                del self.lists[kind]

    def file(self, order: Order, now_s: float) -> None:
        for job in [job for job in self.unfiled.values() if job.state is JobState.RUNNING]:
            speed = order.speed(job)
            kind, item = (job.rank, speed), (order.running_key(job, now_s) - speed * now_s, job.seq, job)
            bisect.insort(self.lists.setdefault(kind, []), item)
            self.filed[job.seq] = (kind, item)
            self.fresh.append((job.rank, item[0], speed))
            del self.unfiled[job.seq]

    def latest(self, order: Order, now_s: float) -> Iterator[Entry]:
        """Running jobs, last first. A job is yielded as soon as no other job in a list can come after it."""
        heads = [self._head(kind, len(items) - 1, now_s) for kind, items in self.lists.items()]
        heapq.heapify(heads)
        found: list[tuple[int, float, int, JobView]] = []
        while heads:
            rank, most, at, speed = heads[0]
            while found and found[0][:2] < (rank, most):
                job = found[0][3]
                yield (job.rank, -heapq.heappop(found)[1], job.seq, job)
            job = self.lists[-rank, speed][at][2]
            heapq.heappush(found, (rank, -order.running_key(job, now_s), -job.seq, job))
            if at:
                heapq.heapreplace(heads, self._head((-rank, speed), at - 1, now_s))
            else:
                heapq.heappop(heads)
        while found:
            job = found[0][3]
            yield (job.rank, -heapq.heappop(found)[1], job.seq, job)

    def passed(self, order: Order, entry: Entry, now_s: float) -> Iterator[JobView]:
        """Running jobs that have passed this pending entry, in any order."""
        rank, key = entry[:2]
        cutoff = order.cutoff(entry[3], key)
        for (its_rank, speed), items in self.lists.items():
            if its_rank >= rank:
                last = self._last_behind(order, items, key - speed * now_s, cutoff, now_s) if its_rank == rank else -1
                for item in items[last + 1 :]:
                    yield item[2]

    def _head(self, kind: tuple[int, float], at: int, now_s: float) -> tuple[int, float, int, float]:
        """For a heap with the last on top: no key of this list from `at` down is beyond the second number."""
        rank, speed = kind
        return (-rank, -(self.lists[kind][at][0] + speed * now_s + self.SLACK), at, speed)

    def first_crossing(self, order: Order, heads: list[Head], now_s: float) -> float:
        """The earliest crossing of these heads. Most heads are known to have none before another one has."""
        for line, entry, missing in heads:
            is_known = line.quiet_seq == entry[2] and missing >= line.quiet_missing
            line.quiet_until_s = self._quiet_until(order, line, entry, now_s) if is_known else -math.inf
        self.fresh.clear()
        slack_s = self.SLACK / min([speed for _, speed in self.lists if 0 < speed < 1], default=1)
        first_s = math.inf
        for line, entry, missing in sorted(heads, key=lambda head: head[0].quiet_until_s):
            if line.quiet_until_s >= first_s:
                break
            first_s, line.quiet_lacks = self.next_crossing(order, entry, missing, now_s, first_s)
            line.quiet_until_s = first_s - slack_s
            line.quiet_seq, line.quiet_missing = entry[2], missing
        return first_s

    def _quiet_until(self, order: Order, line: Line, entry: Entry, now_s: float) -> float:
        """Until when the line is quiet, with the jobs that were started since this was last known."""
        until_s = line.quiet_until_s
        rank, key = entry[:2]
        for its_rank, level, speed in self.fresh:
            if its_rank > rank:
                return -math.inf
            if speed and its_rank == rank and key - level - self.SLACK < until_s * speed:
                until_s = (key - level - self.SLACK) / speed
        for job in self.unfiled.values():
            if job.rank == rank:
                until_s = min(until_s, order.reaches(job, key, now_s) - self.SLACK)
        return until_s

    def next_crossing(
        self, order: Order, entry: Entry, missing: int, now_s: float, before_s: float
    ) -> tuple[float, bool]:
        """When jobs that hold the missing GPUs have risen past this pending one, or the next job if enough of them have
        passed already; `before_s` if that is sooner. And whether GPUs are missing now."""
        rank, key = entry[:2]
        cutoff = order.cutoff(entry[3], key)
        ahead: list[tuple[float, int, int, list[Item]]] = []
        """The next job to pass in each list: (when, its seq, its position, the list). With a seq of -1 it is the list
        that is next, and the time is a little too early."""
        for (its_rank, speed), items in self.lists.items():
            if its_rank < rank:
                continue
            last = self._last_behind(order, items, key - speed * now_s, cutoff, now_s) if its_rank == rank else -1
            for item in items[last + 1 :] if missing > 0 else ():
                missing -= item[2].gpu_count
            if last >= 0 and speed:
                ahead.append(((key - items[last][0] - self.SLACK) / speed, -1, last, items))
        for job in self.unfiled.values():
            if job.rank == rank:
                ahead.append((order.reaches(job, key, now_s), job.seq, 0, [(0.0, job.seq, job)]))
        heapq.heapify(ahead)
        lacks = missing > 0
        while ahead and ahead[0][0] < before_s:
            at_s, seq, last, items = ahead[0]
            job = items[last][2]
            if seq < 0:
                heapq.heapreplace(ahead, (order.reaches(job, key, now_s), job.seq, last, items))
                continue
            missing -= job.gpu_count
            if missing <= 0:
                return at_s, lacks
            if last:
                job = items[last - 1][2]
                heapq.heapreplace(ahead, (order.reaches(job, key, now_s), job.seq, last - 1, items))
            else:
                heapq.heappop(ahead)
        return before_s, lacks

    def _last_behind(
        self, order: Order, items: list[Item], level: float, cutoff: tuple[object, ...], now_s: float
    ) -> int:
        """The position of the last job of a list that has not passed the pending one; -1 if all have."""
        last = bisect.bisect_left(items, (level + self.SLACK,)) - 1
        while last >= 0 and items[last][0] > level - self.SLACK:  # so close that rounding decides
            job = items[last][2]
            if (job.rank, order.running_key(job, now_s), job.seq) <= cutoff:
                break
            last -= 1
        return last
