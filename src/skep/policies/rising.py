"""Running jobs whose keys rise linearly, as attained service does."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Iterator

import msgspec

from skep.core.job import JobState
from skep.core.view import JobView
from skep.policies.lines import Entry, Head, Line, remove_entry
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

    head: Head
    at_s: float
    now_s: float
    """When it was computed."""
    sole: JobView | None
    """The job that crosses then, if no other one does at about that time."""
    is_sure: bool
    """False if it depends on when jobs begin to run that do not yet."""

    def depends_on(self, kind: Kind, level: float) -> bool:
        """True if a job of this kind, with this key at time 0, may pass the head by then."""
        rank, key = self.head[1][:2]
        if self.sole is None or kind[0] > rank:
            return True
        return bool(kind[0] == rank and key - level <= (self.at_s + NEAR_S) * kind[1])

    def at(self, order: Order, now_s: float, *, is_all_running: bool) -> First | None:
        """The same computed at this time, when rounding may be different. `is_all_running`: no job that it may depend
        on has still to begin to run."""
        if self.at_s <= now_s:
            return None  # by a job that does not run yet: when it does, that is no crossing any more
        if now_s == self.now_s:
            return self
        if self.sole is None or now_s > self.at_s - NEAR_S or not (self.is_sure or is_all_running):
            return None
        return First(self.head, order.reaches(self.sole, self.head[1][1], now_s), now_s, self.sole, is_sure=True)


class Rising:
    """Running jobs whose keys rise linearly. Two that rise at the same speed never overtake each other, so there is one
    list for each kind, sorted by the keys at time 0, and only the lists must be merged."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.lists: dict[Kind, list[Item]] = {}
        self.filed: dict[int, tuple[Kind, Item]] = {}
        self.unfiled = {entry[2]: entry[3] for entry in entries}
        """Jobs that do not run yet: until then their keys do not change."""
        self.expected: dict[int, tuple[Kind, Item]] = {}
        """How these would be filed if they ran from the last search for crossings on."""
        self.fresh = set(self.unfiled)
        """Jobs that were added since then."""
        self.has_started = True
        """True if some of the unfiled jobs may run by now."""
        self.searched_s = -math.inf
        self.first: First | None = None
        """What the last search found, as long as it holds."""

    def add(self, entry: Entry) -> None:
        self.unfiled[entry[2]] = entry[3]
        self.fresh.add(entry[2])
        self.has_started = True

    def remove(self, entry: Entry) -> None:
        self.fresh.discard(entry[2])
        if self.unfiled.pop(entry[2], None) is not None:
            self.expected.pop(entry[2], None)
            self.first = None
        else:
            self._take_out(entry[2])

    def _take_out(self, seq: int) -> None:
        kind, item = self.filed.pop(seq)
        self._change(kind, item)
        items = self.lists[kind]
        remove_entry(items, item)
        if not items:
            del self.lists[kind]

    def refresh(self, started: Iterable[JobView], *, is_steady: bool) -> None:
        """A decision begins, see `Running.refresh`. Reports do not change how keys rise, but jobs may have got other
        numbers of GPUs."""
        if not is_steady:
            self.first, self.searched_s = None, -math.inf
            for seq, job in [
                (seq, item[2]) for seq, (kind, item) in self.filed.items() if item[2].gpu_count != kind[2]
            ]:
                self._take_out(seq)
                self.unfiled[seq] = job
                self.fresh.add(seq)
        self.has_started = bool(self.unfiled)

    def _file(self, order: Order, now_s: float) -> None:
        """File the jobs that run by now."""
        self.has_started = False
        for job in [job for job in self.unfiled.values() if job.state is RUNNING]:
            expected = self.expected.pop(job.seq, None)
            if expected is None or job.held_since_s != self.searched_s:
                filing = self._filing(order, job, now_s)
                self._change(*filing)
                self._change(*(expected or filing))
            else:
                filing = expected
                if self.first is not None and self.first.head[1][0] < filing[0][0]:
                    self.first = None  # jobs of later ranks count only when they run
            kind, item = self.filed[job.seq] = filing
            bisect.insort(self.lists.setdefault(kind, []), item)
            del self.unfiled[job.seq]

    def _change(self, kind: Kind, item: Item) -> None:
        """A job has come or gone. Forget the first crossing if it may depend on the job."""
        if self.first is not None and self.first.depends_on(kind, item[0] + SLACK):
            self.first = None

    def _filing(self, order: Order, job: JobView, now_s: float) -> tuple[Kind, Item]:
        """The kind of a job, and its key at time 0 if it runs from now on."""
        speed = order.speed(job)
        level = order.running_key(job, now_s) - speed * now_s
        return (job.rank, speed, job.gpu_count), (level, job.seq, job)

    def latest(self, order: Order, now_s: float, cutoff: tuple[Key, ...]) -> Iterator[Entry]:
        """Running jobs, last first, at least those beyond the cutoff. A job is yielded as soon as no other job in a
        list can come after it."""
        if self.has_started:
            self._file(order, now_s)
        rank, key = cutoff[:2]
        heads: list[tuple[int, float, int, Kind, list[Item]]] = []
        for kind, items in self.lists.items():
            most = items[-1][0] + kind[1] * now_s + SLACK
            if kind[0] > rank or (kind[0] == rank and most > key):
                heads.append((-kind[0], -most, len(items) - 1, kind, items))
        heapq.heapify(heads)
        found: list[tuple[int, float, int, JobView]] = []
        while heads:
            its_rank, least, at, kind, items = heads[0]
            while found and found[0][:2] < (its_rank, least):
                yield entry_of(heapq.heappop(found))
            job = items[at][2]
            heapq.heappush(found, (its_rank, -order.running_key(job, now_s), -job.seq, job))
            if at:
                least = -(items[at - 1][0] + kind[1] * now_s + SLACK)
                heapq.heapreplace(heads, (its_rank, least, at - 1, kind, items))
            else:
                heapq.heappop(heads)
        while found:
            yield entry_of(heapq.heappop(found))

    def passed(self, order: Order, entry: Entry, now_s: float) -> Iterator[JobView]:
        """Running jobs that have passed this pending entry, in any order."""
        if self.has_started:
            self._file(order, now_s)
        for kind, items in self.lists.items():
            if kind[0] >= entry[0]:
                last = last_behind(order, kind, items, entry, now_s) if kind[0] == entry[0] else -1
                for item in items[last + 1 :]:
                    yield item[2]

    def lacks(self, order: Order, head: Head, now_s: float) -> bool:
        """True if the jobs that have passed this head have less than the missing GPUs. If so, this sets until when the
        line is quiet: until the next one passes."""
        if self.has_started:
            self._file(order, now_s)
        line, entry, missing = head
        rank, key, _, _ = entry
        lacking, soonest_s = missing, math.inf
        for kind, items in self.lists.items():
            if kind[0] == rank:
                ahead, speed = key - items[-1][0] - SLACK, kind[1]
                if ahead <= speed * now_s:  # else no one has passed it
                    last = last_behind(order, kind, items, entry, now_s)
                    lacking -= kind[2] * (len(items) - 1 - last)
                    ahead = key - items[last][0] - SLACK if last >= 0 else math.inf
                if speed and ahead < soonest_s * speed:
                    soonest_s = ahead / speed
            elif kind[0] > rank:
                lacking -= kind[2] * len(items)
        if lacking > 0:
            set_quiet(line, entry, missing, lacking, [(soonest_s, lacking)], soonest_s)
            expect(line, entry, self.expected.values())
        return lacking > 0

    def first_crossing(self, order: Order, heads: list[Head], now_s: float) -> float:
        """The earliest crossing of these heads. Most heads are known to have none before another one has."""
        if self.has_started:
            self._file(order, now_s)
        is_all_running = not self.expected
        came = self._came(order, now_s)
        before, self.first = self.first, None
        for head in heads:
            line, entry, missing = head
            if line.quiet_seq != entry[2] or missing < line.quiet_missing:
                line.quiet_seq, line.quiet_missing, line.quiet_until_s = entry[2], missing, -math.inf
            elif came:
                expect(line, entry, came)
            if before is not None and before.head[0] is line and before.head == head:
                self.first = before.at(order, now_s, is_all_running=is_all_running)
        return self._search(order, heads, now_s)

    def _came(self, order: Order, now_s: float) -> list[tuple[Kind, Item]]:
        """The jobs that were added since the last search. The others that do not run yet will do so later than was
        expected."""
        unfiled = self.unfiled if now_s != self.searched_s else self.fresh & self.unfiled.keys()
        for seq in unfiled:
            self.expected[seq] = self._filing(order, self.unfiled[seq], now_s)
        self.searched_s = now_s
        came = [self.filed.get(seq) or self.expected[seq] for seq in self.fresh]
        self.fresh = set()
        for kind, item in came:
            self._change(kind, item)
        return came

    def _search(self, order: Order, heads: list[Head], now_s: float) -> float:
        """Look at the heads that may have a crossing before the first one that is known."""
        first_s = math.inf if self.first is None else self.first.at_s
        soon = [head for head in heads if head[0].quiet_until_s < first_s]
        if len(soon) > 1:
            soon.sort(key=quiet_until)
        for head in soon:
            if head[0].quiet_until_s >= first_s:
                break
            if self.first is None or head != self.first.head:
                found = self._look_at(order, head, now_s, first_s)
                if found.at_s < first_s:
                    self.first, first_s = found, found.at_s
        return first_s

    def _look_at(self, order: Order, head: Head, now_s: float, before_s: float) -> First:
        """When jobs with the missing GPUs have risen past this head, or the next job if none are missing. If that is
        not before `before_s`, the time may be a little too early. Sets until when the line is quiet."""
        line, entry, missing = head
        key = entry[1]
        ahead, lacking = self._ahead(order, entry, missing, now_s)
        coming: list[tuple[float, int]] = []
        left, is_sure, previous_s = lacking, True, -math.inf
        while ahead:
            at_s, seq, last, kind, items = ahead[0]
            job = items[last][2]
            if seq < 0 and at_s < before_s:
                heapq.heapreplace(ahead, (order.reaches(job, key, now_s), job.seq, last, kind, items))
                continue
            left -= kind[2]
            is_sure = is_sure and job.state is RUNNING
            coming.append((at_s - NEAR_S, kind[2]))
            following_s = (key - items[last - 1][0] - SLACK) / kind[1] if last else math.inf
            if left <= 0:
                set_quiet(line, entry, missing, lacking, coming, at_s - NEAR_S)
                next_s = min([following_s, *[each[0] for each in ahead[1:3]]])
                is_sole = previous_s < at_s - NEAR_S and at_s + NEAR_S < next_s
                return First(head, at_s, now_s, job if is_sole else None, is_sure)
            previous_s = at_s
            if last:
                heapq.heapreplace(ahead, (following_s, -1, last - 1, kind, items))
            else:
                heapq.heappop(ahead)
        set_quiet(line, entry, missing, lacking, coming, math.inf)
        return First(head, math.inf, now_s, None, is_sure)

    def _ahead(self, order: Order, entry: Entry, missing: int, now_s: float) -> tuple[list[Ahead], int]:
        """A heap of the next job to pass this pending entry in each list; and how many of the missing GPUs those do not
        have that have passed it."""
        rank, key, _, _ = entry
        ahead: list[Ahead] = []
        for kind, items in self.lists.items():
            if kind[0] == rank:
                last, speed = len(items) - 1, kind[1]
                distance = key - items[last][0] - SLACK
                if distance <= speed * now_s:  # else no one has passed it
                    last = last_behind(order, kind, items, entry, now_s)
                    missing -= kind[2] * (len(items) - 1 - last)
                    distance = key - items[last][0] - SLACK
                if last >= 0 and speed:
                    ahead.append((distance / speed, -1, last, kind, items))
            elif kind[0] > rank:
                missing -= kind[2] * len(items)
        for kind, item in self.expected.values():
            if kind[0] == rank and kind[1]:
                ahead.append(((key - item[0] - SLACK) / kind[1], -1, 0, kind, [item]))
        heapq.heapify(ahead)
        return ahead, missing


def quiet_until(head: Head) -> float:
    return head[0].quiet_until_s


def entry_of(found: tuple[int, float, int, JobView]) -> Entry:
    return (-found[0], -found[1], -found[2], found[3])


def expect(line: Line, entry: Entry, came: Iterable[tuple[Kind, Item]]) -> None:
    """Jobs were started that may pass the head of this line."""
    for (rank, speed, gpus), item in came:
        if rank == entry[0]:
            ahead = entry[1] - item[0] - SLACK
            if speed and ahead < line.quiet_until_s * speed:
                bisect.insort(line.quiet_coming, (ahead / speed, gpus))
                line.quiet_until_s = until(line.quiet_coming, line.quiet_lacks)
        elif rank > entry[0]:
            line.quiet_until_s = -math.inf


def set_quiet(
    line: Line, entry: Entry, missing: int, lacking: int, coming: list[tuple[float, int]], until_s: float
) -> None:
    line.quiet_seq, line.quiet_missing = entry[2], missing
    line.quiet_lacks, line.quiet_coming = max(lacking, 0), coming
    line.quiet_until_s = until_s


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
