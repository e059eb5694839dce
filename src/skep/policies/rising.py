"""Running jobs whose keys rise linearly, as attained service does."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from skep.core.job import JobState
from skep.core.view import JobView
from skep.policies.lines import Entry, Head, Line, remove_entry
from skep.policies.order.base import Order

RUNNING = JobState.RUNNING

Item = tuple[float, int, JobView]
"""(what a rising key would have been at time 0, seq, job)."""


Kind = tuple[int, float, int]
"""(rank, growth of the key per second, number of GPUs)."""


Divided = tuple[Kind, list[Item], int]
"""Jobs of one kind, and the position of the last one that has not passed a pending job; -1 if all have."""

Launching = tuple[JobView, Kind, float]
"""A job that does not run yet, its kind, and what its key at time 0 would be if it ran from now on."""

SLACK = 0.01
"""More than rounding can misplace a job in its list; close ones are compared by their exact keys."""

FAR_S = 1.0
"""Bounds on crossings that are as far too early as this are computed again."""

NEAR_S = 0.1
"""More than rounding can change of a time."""


class First(NamedTuple):
    """The earliest crossing of all heads."""

    head: Head
    at_s: float
    now_s: float
    """When it was computed."""
    sole: JobView | None
    """The job that crosses then, if no other one does at about that time."""

    def depends_on(self, kind: Kind, level: float) -> bool:
        """True if a job of this kind, with this key at time 0, may pass the head by then."""
        rank, key = self.head[1][:2]
        if self.sole is None or kind[0] > rank:
            return True
        return bool(kind[0] == rank and key - level <= (self.at_s + NEAR_S) * kind[1])

    def at(self, order: Order, now_s: float) -> First | None:
        """The same computed at this time, when rounding may be different."""
        if now_s == self.now_s:
            return self
        if self.sole is None or now_s > self.at_s - NEAR_S:
            return None
        return First(self.head, order.reaches(self.sole, self.head[1][1], now_s), now_s, self.sole)


class Rising:
    """Running jobs whose keys rise linearly. Two that rise at the same speed never overtake each other, so there is one
    list for each kind, sorted by the keys at time 0, and only the lists must be merged."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.lists: dict[Kind, list[Item]] = {}
        self.filed: dict[int, tuple[Kind, Item]] = {}
        self.unfiled = {entry[2]: entry[3] for entry in entries}
        """Jobs that do not run yet: until then their keys do not change."""
        self.fresh = dict(self.unfiled)
        """Jobs that were added since the last search for crossings."""
        self.has_started = True
        """True if some of the unfiled jobs may run by now."""
        self.first: First | None = None
        """What the last search found, as long as it holds."""

    def add(self, entry: Entry) -> None:
        self.unfiled[entry[2]] = self.fresh[entry[2]] = entry[3]
        self.has_started = True

    def remove(self, entry: Entry) -> None:
        self.fresh.pop(entry[2], None)
        if self.unfiled.pop(entry[2], None) is not None:
            self.first = None
        else:
            self._take_out(entry[2])

    def _take_out(self, seq: int) -> None:
        kind, item = self.filed.pop(seq)
        self._change(kind, item[0])
        remove_entry(self.lists[kind], item)
        if not self.lists[kind]:
            del self.lists[kind]

    def refresh(self, started: Iterable[JobView], *, is_steady: bool) -> None:
        """A decision begins, see `Running.refresh`. Reports do not change how keys rise, but jobs may have got other
        numbers of GPUs."""
        if not is_steady:
            for seq, job in [
                (seq, item[2]) for seq, (kind, item) in self.filed.items() if item[2].gpu_count != kind[2]
            ]:
                self._take_out(seq)
                self.unfiled[seq] = self.fresh[seq] = job
        self.has_started = bool(self.unfiled)

    def _file(self, order: Order, now_s: float) -> None:
        """File the jobs that run by now."""
        self.has_started = False
        for job in [job for job in self.unfiled.values() if job.state is RUNNING]:
            kind, level = self._kind(order, job, now_s)
            item = (level, job.seq, job)
            bisect.insort(self.lists.setdefault(kind, []), item)
            self.filed[job.seq] = (kind, item)
            del self.unfiled[job.seq]
            self._change(kind, level)

    def _change(self, kind: Kind, level: float) -> None:
        """A job has come or gone. Forget the first crossing if it may depend on the job."""
        if self.first is not None and self.first.depends_on(kind, level + SLACK):
            self.first = None

    def _kind(self, order: Order, job: JobView, now_s: float) -> tuple[Kind, float]:
        """The kind of a job, and its key at time 0 if it runs from now on."""
        speed = order.speed(job)
        return (job.rank, speed, job.gpu_count), order.running_key(job, now_s) - speed * now_s

    def latest(self, order: Order, now_s: float) -> Iterator[Entry]:
        """Running jobs, last first. A job is yielded as soon as no other job in a list can come after it."""
        if self.has_started:
            self._file(order, now_s)
        heads = [self._head(kind, len(items) - 1, now_s) for kind, items in self.lists.items()]
        heapq.heapify(heads)
        found: list[tuple[int, float, int, JobView]] = []
        while heads:
            rank, most, at, kind = heads[0]
            while found and found[0][:2] < (rank, most):
                job = found[0][3]
                yield (job.rank, -heapq.heappop(found)[1], job.seq, job)
            job = self.lists[kind][at][2]
            heapq.heappush(found, (rank, -order.running_key(job, now_s), -job.seq, job))
            if at:
                heapq.heapreplace(heads, self._head(kind, at - 1, now_s))
            else:
                heapq.heappop(heads)
        while found:
            job = found[0][3]
            yield (job.rank, -heapq.heappop(found)[1], job.seq, job)

    def _head(self, kind: Kind, at: int, now_s: float) -> tuple[int, float, int, Kind]:
        """For a heap with the last on top: no key of this list from `at` down is beyond the second number."""
        return (-kind[0], -(self.lists[kind][at][0] + kind[1] * now_s + SLACK), at, kind)

    def passed(self, order: Order, entry: Entry, now_s: float) -> Iterator[JobView]:
        """Running jobs that have passed this pending entry, in any order."""
        for _, items, last in self._divided(order, entry, 0, now_s)[0]:
            for item in items[last + 1 :]:
                yield item[2]

    def lacks(self, order: Order, entry: Entry, missing: int, now_s: float) -> bool:
        """True if the jobs that have passed this pending entry have less than the missing GPUs."""
        return self._divided(order, entry, missing, now_s)[1] > 0

    def _divided(self, order: Order, entry: Entry, missing: int, now_s: float) -> tuple[list[Divided], int]:
        """The lists of jobs that this pending entry may pass or has passed; and how many of the missing GPUs the passed
        ones do not have."""
        if self.has_started:
            self._file(order, now_s)
        rank, key = entry[:2]
        cutoff = order.cutoff(entry[3], key)
        found = []
        for kind, items in self.lists.items():
            its_rank, speed, gpus = kind
            if its_rank < rank:
                continue
            last = -1
            if its_rank == rank:
                level = key - speed * now_s
                last = bisect.bisect_left(items, (level + SLACK,)) - 1
                if last >= 0 and items[last][0] > level - SLACK:  # so close that rounding decides
                    last = last_behind(order, items, last, cutoff, now_s)
            missing -= gpus * (len(items) - last - 1)
            found.append((kind, items, last))
        return found, missing

    def first_crossing(self, order: Order, heads: list[Head], now_s: float) -> float:
        """The earliest crossing of these heads. Most heads are known to have none before another one has."""
        if self.has_started:
            self._file(order, now_s)
        launching = [(job, *self._kind(order, job, now_s)) for job in self.unfiled.values()]
        known = {job.seq: (kind, level) for job, kind, level in launching}
        fresh = [known.get(job.seq) or self._kind(order, job, now_s) for job in self.fresh.values()]
        self.fresh = {}
        for kind, level in fresh:
            self._change(kind, level)
        before, self.first = self.first, None
        for line, entry, missing in heads:
            if line.quiet_seq != entry[2] or missing < line.quiet_missing:
                soonest_s = self._soonest(entry, launching, now_s)
                set_quiet(line, entry, missing, missing, [(soonest_s, max(missing, 0))])
            else:
                for kind, level in fresh:
                    self._expect(line, entry, kind, level)
            if before is not None and before.head == (line, entry, missing):
                self.first = before.at(order, now_s)
        for head in sorted(heads, key=lambda head: head[0].quiet_until_s):
            first_s = math.inf if self.first is None else self.first.at_s
            if head[0].quiet_until_s >= first_s:
                break
            if self.first is None or head != self.first.head:
                at_s, sole = self._look_at(order, head, launching, now_s, first_s)
                if at_s < first_s:
                    self.first = First(head, at_s, now_s, sole)
        return math.inf if self.first is None else self.first.at_s

    def _look_at(
        self, order: Order, head: Head, launching: list[Launching], now_s: float, before_s: float
    ) -> tuple[float, JobView | None]:
        """The first crossing of this head (`_crossing`). Sets until when the line is quiet, unless that is known well
        enough."""
        line, (rank, key, _, _), missing = head
        divided, lacking = self._divided(order, head[1], missing, now_s)
        divided += [(kind, [(level, job.seq, job)], 0) for job, kind, level in launching if kind[0] == rank]
        if line.quiet_until_s > -math.inf:
            found = self._crossing(order, key, divided, lacking, now_s, before_s)
            if found[0] >= line.quiet_until_s + FAR_S:
                set_quiet(line, head[1], missing, lacking, self._coming(key, divided, lacking))
            return found
        set_quiet(line, head[1], missing, lacking, self._coming(key, divided, lacking))
        if line.quiet_until_s >= before_s:
            return before_s, None
        return self._crossing(order, key, divided, lacking, now_s, before_s)

    def _soonest(self, entry: Entry, launching: list[Launching], now_s: float) -> float:
        """A time before which no job passes this pending one; in the past if one has, or almost."""
        rank, key = entry[:2]
        soonest_s = math.inf
        tops = [(kind, items[-1][0]) for kind, items in self.lists.items()]
        for (its_rank, speed, _), level in tops + [(kind, level) for _, kind, level in launching]:
            ahead = key - level - SLACK
            if its_rank > rank or (its_rank == rank and ahead <= speed * now_s):
                return -math.inf
            if its_rank == rank and speed and ahead < soonest_s * speed:
                soonest_s = ahead / speed
        return soonest_s

    def _expect(self, line: Line, entry: Entry, kind: Kind, level: float) -> None:
        """A job was started that may pass the head of this line."""
        rank, speed, gpus = kind
        ahead = entry[1] - level - SLACK
        if rank > entry[0]:
            line.quiet_until_s = -math.inf
        elif rank == entry[0] and speed and ahead < line.quiet_until_s * speed:
            bisect.insort(line.quiet_coming, (ahead / speed, gpus))
            line.quiet_until_s = until(line.quiet_coming, line.quiet_lacks)

    def _coming(self, key: float, divided: list[Divided], missing: int) -> list[tuple[float, int]]:
        """The jobs that pass this key next, in order, until they have the missing GPUs: (a little before, GPUs)."""
        coming = []
        for (_, speed, gpus), items, last in divided:
            if last >= 0 and speed and (gpus or missing <= 0):
                first = max(last - missing // gpus, 0) if missing > gpus else last
                coming += [((key - item[0] - SLACK) / speed, gpus) for item in items[first : last + 1]]
        coming.sort()
        return coming

    def _crossing(
        self, order: Order, key: float, divided: list[Divided], missing: int, now_s: float, before_s: float
    ) -> tuple[float, JobView | None]:
        """When jobs with the missing GPUs have risen past this key, or the next job if none are missing; `before_s` if
        that is sooner. And the last of these jobs, if it runs and no other one passes at about that time."""
        ahead: list[tuple[float, int, int, list[Item], float]] = []
        """The next job to pass in each list: (when, its seq, its position, the list, its speed). With a seq of -1 it is
        the list that is next, and the time is a little too early."""
        for (_, speed, _), items, last in divided:
            if last >= 0 and speed:
                ahead.append(((key - items[last][0] - SLACK) / speed, -1, last, items, speed))
        heapq.heapify(ahead)
        is_sole, previous_s = True, -math.inf
        while ahead and ahead[0][0] < before_s:
            at_s, seq, last, items, speed = ahead[0]
            job = items[last][2]
            if seq < 0:
                heapq.heapreplace(ahead, (order.reaches(job, key, now_s), job.seq, last, items, speed))
                continue
            missing -= job.gpu_count
            is_sole = is_sole and job.state is RUNNING
            if missing <= 0:
                others_s = [each[0] for each in ahead[1:3]]
                if last:
                    others_s.append((key - items[last - 1][0] - SLACK) / speed)
                is_sole = is_sole and previous_s < at_s - NEAR_S and at_s + NEAR_S < min(others_s, default=math.inf)
                return at_s, job if is_sole else None
            previous_s = at_s
            if last:
                job = items[last - 1][2]
                heapq.heapreplace(ahead, (order.reaches(job, key, now_s), job.seq, last - 1, items, speed))
            else:
                heapq.heappop(ahead)
        return before_s, None


def set_quiet(line: Line, entry: Entry, missing: int, lacking: int, coming: list[tuple[float, int]]) -> None:
    line.quiet_seq, line.quiet_missing = entry[2], missing
    line.quiet_lacks, line.quiet_coming = max(lacking, 0), coming
    line.quiet_until_s = until(coming, lacking)


def until(coming: list[tuple[float, int]], missing: float) -> float:
    """When these jobs have the missing GPUs."""
    for at_s, gpus in coming:
        missing -= gpus
        if missing <= 0:
            return at_s
    return math.inf


def last_behind(order: Order, items: list[Item], last: int, cutoff: tuple[object, ...], now_s: float) -> int:
    """The position of the last of these jobs from `last` down that is not beyond the cutoff by its exact key."""
    while last >= 0:
        job = items[last][2]
        if (job.rank, order.running_key(job, now_s), job.seq) <= cutoff:
            break
        last -= 1
    return last
