"""Running jobs whose keys rise linearly, as attained service does."""

from __future__ import annotations

import bisect
import heapq
import math
import operator
from collections.abc import Iterable, Iterator

import msgspec

from skep.core.job import JobState
from skep.core.view import JobView
from skep.policies.crossings import LineHead, Moving, Quiet
from skep.policies.lines import Entry, Pending, remove_entry
from skep.policies.order.base import Key, Order

RUNNING = JobState.RUNNING

Item = tuple[float, int, JobView]
"""(what a rising key would have been at time 0, seq, job)."""


Kind = tuple[int, float, int]
"""(rank, growth of the key per second, number of GPUs)."""


Ahead = tuple[float, int, int, Kind, list[Item]]
"""The next job of a list that passes a pending one: (when, seq, position, kind, list). With a seq of -1 the time is a
little too early."""

SLACK = 0.01
"""More than rounding can misplace a job in its list; close ones are compared by their exact keys."""

NEAR_S = 0.1
"""More than rounding can change of a time."""


class First(msgspec.Struct):
    """The earliest crossing of all heads."""

    head: LineHead
    at_s: float
    now_s: float
    """When it was computed."""
    sole: JobView | None
    """The job that crosses then, if no other one does at about that time."""
    is_sure: bool
    """False if it depends on when jobs begin to run that do not yet."""

    def depends_on(self, kind: Kind, level: float) -> bool:
        """True if a job of this kind, with this key at time 0, may pass the head by then."""
        rank, key, _, _ = self.head.entry
        its_rank, speed, _ = kind
        if self.sole is None or its_rank > rank:
            return True
        return bool(its_rank == rank and key - level <= (self.at_s + NEAR_S) * speed)

    def at(self, order: Order, now_s: float, *, is_all_running: bool) -> First | None:
        """The same computed at this time, when rounding may be different. `is_all_running`: no job that it may depend
        on has still to begin to run."""
        if self.at_s <= now_s:
            return None  # by a job that does not run yet: when it does, that is no crossing any more
        if now_s == self.now_s:
            return self
        if self.sole is None or now_s > self.at_s - NEAR_S or not (self.is_sure or is_all_running):
            return None
        _, key, _, _ = self.head.entry
        return First(self.head, order.reaches(self.sole, key, now_s), now_s, self.sole, is_sure=True)


class Rising(Moving):
    """Running jobs whose keys rise linearly. Two that rise at the same speed never overtake each other, so there is one
    list for each kind, sorted by the keys at time 0, and only the lists must be merged."""

    def __init__(self, order: Order, pending: Pending, *, is_bounded: bool = True, may_settle: bool = True) -> None:
        super().__init__(order, pending, is_bounded=is_bounded, may_settle=may_settle)
        self.lists: dict[Kind, list[Item]] = {}
        self.filed: dict[int, tuple[Kind, Item]] = {}
        self.unfiled: dict[int, JobView] = {}
        """Jobs that do not run yet: until then their keys do not change."""
        self.expected: dict[int, tuple[Kind, Item]] = {}
        """How these would be filed if they ran from the last search for crossings on."""
        self.fresh: set[int] = set()
        """Jobs that were added since then."""
        self.has_started = True
        """True if some of the unfiled jobs may run by now."""
        self.searched_s = -math.inf
        self.first: First | None = None
        """What the last search found, as long as it holds."""

    def add(self, entry: Entry) -> None:
        _, _, seq, job = entry
        self.unfiled[seq] = job
        self.fresh.add(seq)
        self.has_added = self.has_started = True

    def remove(self, entry: Entry) -> None:
        seq = entry[2]
        self.has_removed = True
        self.fresh.discard(seq)
        if self.unfiled.pop(seq, None) is not None:
            self.expected.pop(seq, None)
            self.first = None
        else:
            self._take_out(seq)

    def _take_out(self, seq: int) -> None:
        kind, item = self.filed.pop(seq)
        self._change(kind, item)
        items = self.lists[kind]
        remove_entry(items, item)
        if not items:
            del self.lists[kind]

    def refresh(self, started: Iterable[JobView]) -> None:
        """Reports do not change how keys rise, but jobs may have got other numbers of GPUs."""
        if not self.is_steady:
            self.first, self.searched_s = None, -math.inf
            resized = [(seq, job) for seq, ((_, _, gpus), (_, _, job)) in self.filed.items() if job.gpu_count != gpus]
            for seq, job in resized:
                self._take_out(seq)
                self.unfiled[seq] = job
                self.fresh.add(seq)
        self.has_started = bool(self.unfiled)

    def _file(self, now_s: float) -> None:
        """File the jobs that run by now."""
        self.has_started = False
        for job in [job for job in self.unfiled.values() if job.state is RUNNING]:
            expected = self.expected.pop(job.seq, None)
            if expected is None or job.held_since_s != self.searched_s:
                filing = self._filing(job, now_s)
                self._change(*filing)
                self._change(*(expected or filing))
            else:
                filing = expected
                if self.first is not None and self.first.head.entry[0] < job.rank:
                    self.first = None  # jobs of later ranks count only when they run
            kind, item = self.filed[job.seq] = filing
            bisect.insort(self.lists.setdefault(kind, []), item)
            del self.unfiled[job.seq]

    def _change(self, kind: Kind, item: Item) -> None:
        """A job has come or gone. Forget the first crossing if it may depend on the job."""
        if self.first is not None and self.first.depends_on(kind, item[0] + SLACK):
            self.first = None

    def _filing(self, job: JobView, now_s: float) -> tuple[Kind, Item]:
        """The kind of a job, and its key at time 0 if it runs from now on."""
        speed = self.order.speed(job)
        level = self.order.running_key(job, now_s) - speed * now_s
        return (job.rank, speed, job.gpu_count), (level, job.seq, job)

    def latest(self, cutoff: tuple[Key, ...], now_s: float) -> Iterator[Entry]:
        """A job is yielded as soon as no other job in a list can come after it."""
        if self.has_started:
            self._file(now_s)
        running_key = self.order.running_key
        rank, key = cutoff[:2]
        heads: list[tuple[int, float, int, float, list[Item]]] = []
        for (its_rank, speed, _), items in self.lists.items():
            most = items[-1][0] + speed * now_s + SLACK
            if its_rank > rank or (its_rank == rank and most > key):
                heads.append((-its_rank, -most, len(items) - 1, speed, items))
        heapq.heapify(heads)
        found: list[tuple[int, float, int, JobView]] = []
        while heads:
            its_rank, least, at, speed, items = heads[0]
            while found and found[0][:2] < (its_rank, least):
                yield entry_of(heapq.heappop(found))
            job = items[at][2]
            heapq.heappush(found, (its_rank, -running_key(job, now_s), -job.seq, job))
            if at:
                least = -(items[at - 1][0] + speed * now_s + SLACK)
                heapq.heapreplace(heads, (its_rank, least, at - 1, speed, items))
            else:
                heapq.heappop(heads)
        while found:
            yield entry_of(heapq.heappop(found))

    def passed(self, entry: Entry, now_s: float) -> Iterator[JobView]:
        if self.has_started:
            self._file(now_s)
        for kind, items in self.lists.items():
            if kind[0] >= entry[0]:
                last = last_behind(self.order, kind, items, entry, now_s) if kind[0] == entry[0] else -1
                for _, _, job in items[last + 1 :]:
                    yield job

    def lacks(self, head: LineHead, now_s: float) -> bool | None:
        """Counted list by list. If they are too few, the line is quiet until the next one passes."""
        if not self.is_bounded:
            return None
        if self.has_started:
            self._file(now_s)
        line, entry, missing = head.line, head.entry, head.missing
        rank, key, _, _ = entry
        lacking, soonest_s = missing, math.inf
        for kind, items in self.lists.items():
            its_rank, speed, gpus = kind
            if its_rank == rank:
                ahead = key - items[-1][0] - SLACK
                if ahead <= speed * now_s:  # else no one has passed it
                    last = last_behind(self.order, kind, items, entry, now_s)
                    lacking -= gpus * (len(items) - 1 - last)
                    ahead = key - items[last][0] - SLACK if last >= 0 else math.inf
                if speed and ahead < soonest_s * speed:
                    soonest_s = ahead / speed
            elif its_rank > rank:
                lacking -= gpus * len(items)
        if lacking > 0:
            quiet = Quiet(entry, missing, lacking, [(soonest_s, lacking)], soonest_s)
            expect(quiet, self.expected.values())
            self.quiets[line] = quiet
        return lacking > 0

    def failed(self, head: LineHead, lacking: float) -> None:
        """`lacks` has counted before."""

    def search(self, heads: list[LineHead], now_s: float) -> float:
        """Most heads are known to have no crossing before another one has."""
        if self.has_started:
            self._file(now_s)
        is_all_running = not self.expected
        came = self._came(now_s)
        before, self.first = self.first, None
        for head in heads:
            line, entry, missing = head.line, head.entry, head.missing
            quiet = self.quiets.get(line)
            if quiet is None or quiet.entry is not entry or missing < quiet.missing:
                self.quiets[line] = Quiet(entry, missing)
            elif came:
                expect(quiet, came)
            if before is not None and before.head.line is line and before.head == head:
                self.first = before.at(self.order, now_s, is_all_running=is_all_running)
        return self._search(heads, now_s)

    def _came(self, now_s: float) -> list[tuple[Kind, Item]]:
        """The jobs that were added since the last search. The others that do not run yet will do so later than was
        expected."""
        unfiled = self.unfiled if now_s != self.searched_s else self.fresh & self.unfiled.keys()
        for seq in unfiled:
            self.expected[seq] = self._filing(self.unfiled[seq], now_s)
        self.searched_s = now_s
        came = [self.filed.get(seq) or self.expected[seq] for seq in self.fresh]
        self.fresh = set()
        for kind, item in came:
            self._change(kind, item)
        return came

    def _search(self, heads: list[LineHead], now_s: float) -> float:
        """Look at the heads that may have a crossing before the first one that is known."""
        first_s = math.inf if self.first is None else self.first.at_s
        quiets = self.quiets
        soon = [(until_s, head) for head in heads if (until_s := quiets[head.line].until_s) < first_s]
        if len(soon) > 1:
            soon.sort(key=UNTIL)
        for until_s, head in soon:
            if until_s >= first_s:
                break
            if self.first is None or head != self.first.head:
                found = self._look_at(head, now_s, first_s)
                if found.at_s < first_s:
                    self.first, first_s = found, found.at_s
        return first_s

    def _look_at(self, head: LineHead, now_s: float, before_s: float) -> First:
        """When jobs with the missing GPUs have risen past this head, or the next job if none are missing. If that is
        not before `before_s`, the time may be a little too early. Sets until when the line is quiet."""
        line, entry, missing = head.line, head.entry, head.missing
        key = entry[1]
        ahead, lacking, launching = self._ahead(entry, missing, now_s)
        coming: list[tuple[float, int]] = []
        quiet = self.quiets[line] = Quiet(entry, missing, lacking - launching, coming, math.inf)
        left, is_sure, previous_s = lacking, True, -math.inf
        while ahead:
            at_s, seq, last, (_, speed, gpus), items = ahead[0]
            job = items[last][2]
            if seq < 0 and at_s < before_s:
                heapq.heapreplace(ahead, (self.order.reaches(job, key, now_s), job.seq, last, ahead[0][3], items))
                continue
            left -= gpus
            is_sure = is_sure and job.state is RUNNING
            coming.append((at_s - NEAR_S, gpus))
            following_s = (key - items[last - 1][0] - SLACK) / speed if last else math.inf
            if left <= 0:
                quiet.until_s = at_s - NEAR_S
                next_s = min([following_s, *[each[0] for each in ahead[1:3]]])
                is_sole = previous_s < at_s - NEAR_S and at_s + NEAR_S < next_s
                return First(head, at_s, now_s, job if is_sole else None, is_sure)
            previous_s = at_s
            if last:
                heapq.heapreplace(ahead, (following_s, -1, last - 1, ahead[0][3], items))
            else:
                heapq.heappop(ahead)
        return First(head, math.inf, now_s, None, is_sure)

    def _ahead(self, entry: Entry, missing: int, now_s: float) -> tuple[list[Ahead], int, int]:
        """A heap of the next job to pass this pending entry in each list; how many of the missing GPUs those do not
        have that have passed it; and how many of these are with jobs of later ranks that are still launching."""
        rank, key, _, _ = entry
        ahead: list[Ahead] = []
        launching = 0
        for kind, items in self.lists.items():
            its_rank, speed, gpus = kind
            if its_rank == rank:
                last = len(items) - 1
                distance = key - items[last][0] - SLACK
                if distance <= speed * now_s:  # else no one has passed it
                    last = last_behind(self.order, kind, items, entry, now_s)
                    missing -= gpus * (len(items) - 1 - last)
                    distance = key - items[last][0] - SLACK
                if last >= 0 and speed:
                    ahead.append((distance / speed, -1, last, kind, items))
            elif its_rank > rank:
                missing -= gpus * len(items)
        for kind, item in self.expected.values():
            its_rank, speed, gpus = kind
            if its_rank > rank:
                launching += gpus
            elif its_rank == rank and speed:
                ahead.append(((key - item[0] - SLACK) / speed, -1, 0, kind, [item]))
        heapq.heapify(ahead)
        return ahead, missing, launching


UNTIL = operator.itemgetter(0)


def entry_of(found: tuple[int, float, int, JobView]) -> Entry:
    rank, key, seq, job = found
    return (-rank, -key, -seq, job)


def expect(quiet: Quiet, came: Iterable[tuple[Kind, Item]]) -> None:
    """Jobs were started that may pass this head: those of its rank at a known time, those of later ranks as soon as
    they run."""
    its_rank, key, _, _ = quiet.entry
    for (rank, speed, gpus), (level, _, _) in came:
        if rank == its_rank:
            ahead = key - level - SLACK
            if speed and ahead < quiet.until_s * speed:
                bisect.insort(quiet.coming, (ahead / speed, gpus))
                quiet.until_s = until(quiet.coming, quiet.lacks)
        elif rank > its_rank:
            quiet.lacks -= gpus


def until(coming: list[tuple[float, int]], missing: float) -> float:
    """When these jobs have the missing GPUs."""
    for at_s, gpus in coming:
        missing -= gpus
        if missing <= 0:
            return at_s
    return math.inf


def last_behind(order: Order, kind: Kind, items: list[Item], entry: Entry, now_s: float) -> int:
    """The position of the last of these jobs that has not passed this pending entry."""
    level = entry[1] - kind[1] * now_s
    last = bisect.bisect_left(items, (level + SLACK,)) - 1
    if last >= 0 and items[last][0] > level - SLACK:  # so close that rounding decides
        cutoff = order.cutoff(entry[3], entry[1])
        while last >= 0:
            job = items[last][2]
            if (job.rank, order.running_key(job, now_s), job.seq) <= cutoff:
                break
            last -= 1
    return last
