"""Running jobs whose keys rise and fall in any way, but not arbitrarily fast."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Iterator

from skep.core.view import JobView
from skep.policies.lines import Entry, Head, remove_entry
from skep.policies.order.base import Drift, Key, Order


class Mark:
    """What is known about the key of a job that continues unchanged."""

    __slots__ = ("at_s", "behind_s", "ceiling", "drift", "entry", "item", "leaves_s", "passes_s")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.ceiling: Key = math.inf
        """A key that it has not passed before `behind_s`; and it passes it at `passes_s`, if that was computed."""
        self.behind_s = self.passes_s = -math.inf

    def set(self, drift: Drift, at_s: float, level: Key, leaves_s: float) -> None:
        self.drift = drift
        self.at_s = at_s
        """When its key was last computed."""
        self.item: Item = (self.entry[0], level, self.entry[2], self)
        self.leaves_s = leaves_s
        """It does not rise to a higher level before."""

    def bound(self, key: Key) -> float:
        """A time before which the job certainly does not pass this key, which is its ceiling from now on."""
        self.ceiling, self.passes_s = key, -math.inf
        self.behind_s = self.drift.before(self.at_s, key)
        return self.behind_s


Item = tuple[int, Key, int, Mark]
"""(rank, level, seq, mark)."""


class Drifting:
    """Running jobs by levels, which are ranges of keys. A job is in the level of its key or in a higher one, so a
    search for those beyond a key leaves out most others; of the rest, the key is computed only if the bounds on its
    movement (`Order.drift`) do not tell."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.unmarked = {entry[2]: entry for entry in entries}
        self.marks: dict[int, Mark] = {}
        self.items: list[Item] = []
        """Sorted."""
        self.leaving: list[tuple[float, int]] = []
        """A heap of (when the job may leave its level, seq); outdated ones are skipped."""
        self.fresh = dict(self.unmarked)
        """Entries that were added since the last search for crossings."""
        self.present_s = -math.inf

    def add(self, entry: Entry) -> None:
        self.unmarked[entry[2]] = self.fresh[entry[2]] = entry

    def remove(self, entry: Entry) -> None:
        self.fresh.pop(entry[2], None)
        if self.unmarked.pop(entry[2], None) is None:
            remove_entry(self.items, self.marks.pop(entry[2]).item)

    def refresh(self, started: Iterable[JobView], *, is_steady: bool) -> None:
        """A decision begins, see `Running.refresh`."""
        self.present_s = -math.inf
        for mark in [self.marks[job.seq] for job in started if job.seq in self.marks] if is_steady else ():
            self.remove(mark.entry)
            self.unmarked[mark.entry[2]] = mark.entry
        if not is_steady:
            self._forget()

    def _forget(self) -> None:
        self.unmarked.update({seq: mark.entry for seq, mark in self.marks.items()})
        self.marks, self.items, self.leaving = {}, [], []

    def _update(self, order: Order, now_s: float) -> None:
        """Move the jobs that may have risen to another level."""
        if not order.grain and self.present_s != now_s:
            self._forget()
        self.present_s = now_s
        leaving, marks = self.leaving, self.marks
        if len(leaving) > 100 + 4 * len(marks):
            leaving[:] = sorted((mark.leaves_s, seq) for seq, mark in marks.items())
        while leaving and leaving[0][0] < now_s:
            leaves_s, seq = heapq.heappop(leaving)
            if seq in marks and marks[seq].leaves_s == leaves_s:
                self._key(order, marks[seq], now_s)
        for seq, entry in self.unmarked.items():
            marks[seq] = mark = Mark(entry)
            self._set(order, mark, now_s)
        self.unmarked.clear()

    def _key(self, order: Order, mark: Mark, now_s: float) -> Key:
        """The present key. The job is moved to its level."""
        if mark.at_s != now_s:
            remove_entry(self.items, mark.item)
            self._set(order, mark, now_s)
        return mark.drift.key

    def _set(self, order: Order, mark: Mark, now_s: float) -> None:
        seq, job = mark.entry[2:]
        drift = order.drift(job, now_s)
        level, leaves_s = level_of(order, drift.key), now_s
        if order.grain:
            leaves_s = max(drift.before(now_s, (level + 1) * order.grain - order.blur), now_s)
            if leaves_s < math.inf:
                heapq.heappush(self.leaving, (leaves_s, seq))
        mark.set(drift, now_s, level, leaves_s)
        bisect.insort(self.items, mark.item)

    def passed(self, order: Order, entry: Entry, now_s: float) -> list[JobView]:
        """Jobs that have passed this pending entry, in any order."""
        self._update(order, now_s)
        cutoff = order.cutoff(entry[3], entry[1])
        items = self.items[bisect.bisect_left(self.items, (cutoff[0], level_of(order, cutoff[1]))) :]
        return [item[3].entry[3] for item in items if self._is_beyond(order, item[3], cutoff, now_s)]

    def lacks(self, order: Order, entry: Entry, missing: int, now_s: float) -> bool:
        """Counting them takes as long as listing them."""
        return False

    def _is_beyond(self, order: Order, mark: Mark, cutoff: tuple[Key, ...], now_s: float) -> bool:
        rank, _, seq, _ = mark.entry
        if rank != cutoff[0]:
            return bool(rank > cutoff[0])
        if mark.at_s != now_s:
            key, rises, falls, until_s = mark.drift[:4]
            passed_s = now_s - mark.at_s
            if key - falls * passed_s - order.blur > cutoff[1]:
                return True
            if now_s <= until_s and key + rises * passed_s + order.blur < cutoff[1]:
                return False
        return (rank, self._key(order, mark, now_s), seq) > cutoff

    def latest(self, order: Order, now_s: float) -> Iterator[Entry]:
        """Jobs, last first, with their present keys; level by level, because most callers need few of them."""
        self._update(order, now_s)
        end = len(self.items)
        while end:
            start = bisect.bisect_left(self.items, self.items[end - 1][:2])
            level, found = self.items[start][1], []
            for item in self.items[start:end]:
                rank, _, seq, job = item[3].entry
                key = self._key(order, item[3], now_s)
                if item[3].item[1] == level:
                    found.append((rank, key, seq, job))
            end -= len(found)  # the others have fallen to lower levels
            yield from sorted(found, reverse=True)

    def first_crossing(self, order: Order, heads: list[Head], now_s: float) -> float:
        """When the first job passes the next one of these pending jobs before it."""
        self._update(order, now_s)
        marks, keys = self._next_heads(order, heads, now_s)
        bounds = [now_s] * len(marks)
        if order.grain:
            asked = zip(marks, keys, strict=True)
            bounds = [mark.behind_s if mark.ceiling <= key else mark.bound(key - order.blur) for mark, key in asked]
        first_s = sure_s = math.inf
        while bounds:
            soonest_s = min(bounds)
            if soonest_s >= first_s:
                break
            at = bounds.index(soonest_s)
            mark, key = marks[at], keys[at]
            if order.grain and mark.ceiling < key - order.blur:
                bounds[at] = mark.bound(key - order.blur)
                if bounds[at] > soonest_s:
                    continue
            bounds[at] = math.inf
            if mark.ceiling != key or mark.passes_s <= now_s:
                mark.passes_s, mark.behind_s = order.passes(mark.entry[3], key, now_s)
                mark.ceiling = key
            first_s = min(first_s, mark.passes_s)
            sure_s = min(sure_s, mark.behind_s)
        self._set_quiet(order, heads, min(first_s, sure_s), now_s)
        return first_s

    def _next_heads(self, order: Order, heads: list[Head], now_s: float) -> tuple[list[Mark], list[Key]]:
        """The jobs that have a pending one of their rank before them, and the keys that they pass next."""
        by_rank: dict[int, set[Key]] = {}
        for _, entry, _ in heads:
            by_rank.setdefault(entry[0], set()).add(entry[1])
        marks: list[Mark] = []
        found: list[Key] = []
        for rank, among in by_rank.items():
            keys = sorted(among)
            first = bisect.bisect_left(self.items, (rank,))
            passing = bisect.bisect_left(self.items, (rank, level_of(order, keys[0])), first)
            after = bisect.bisect_left(self.items, (rank + 1,), passing)
            marks += [item[3] for item in self.items[first:passing]]
            found += [keys[0]] * (passing - first)
            for item in self.items[passing:after]:
                following = self._following(order, item[3], keys, now_s)
                if following < len(keys):
                    marks.append(item[3])
                    found.append(keys[following])
        return marks, found

    def _following(self, order: Order, mark: Mark, keys: list[Key], now_s: float) -> int:
        """The position of the first of these keys that the job has not passed."""
        if mark.at_s != now_s:
            key, rises, falls, until_s = mark.drift[:4]
            passed_s = now_s - mark.at_s
            following = bisect.bisect_left(keys, key - falls * passed_s - order.blur)
            if following == len(keys):
                return following
            if now_s <= until_s and key + rises * passed_s + order.blur < keys[following]:
                return following
        return bisect.bisect_left(keys, self._key(order, mark, now_s))

    def _set_quiet(self, order: Order, heads: list[Head], until_s: float, now_s: float) -> None:
        added = [self.marks[seq] for seq in self.fresh]
        latest = max([(mark.entry[0], self._key(order, mark, now_s)) for mark in added], default=None)
        for line, entry, _ in heads:
            # A job that was just started may be beyond it already, and can be stopped when it runs.
            line.quiet_until_s = until_s if latest is None or latest <= entry[:2] else -math.inf
        self.fresh = {}


def level_of(order: Order, key: Key) -> Key:
    return key // order.grain if order.grain else key
