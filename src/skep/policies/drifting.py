"""Running jobs whose keys rise and fall in any way, but not arbitrarily fast."""

from __future__ import annotations

import bisect
import heapq
import math
import operator
from collections.abc import Iterable, Iterator

from skep.core.view import JobView
from skep.policies.crossings import LineHead, Moving, Quiet
from skep.policies.lines import Entry, Pending, remove_entry
from skep.policies.order.base import Drift, Key, Order


class Drifter:
    """A running job, and what is known about its key as long as it continues unchanged."""

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


Item = tuple[int, Key, int, Drifter]
"""(rank, level, seq, drifter)."""

DRIFTER_OF = operator.itemgetter(3)


class Drifting(Moving):
    """Running jobs by levels, which are ranges of keys. A job is in the level of its key or in a higher one, so a
    search for those beyond a key leaves out most others; of the rest, the key is computed only if the bounds on its
    movement (`Order.drift`) do not tell."""

    def __init__(self, order: Order, pending: Pending, *, is_bounded: bool = True, may_settle: bool = True) -> None:
        super().__init__(order, pending, is_bounded=is_bounded and order.grain > 0, may_settle=may_settle)
        self.unplaced: dict[int, Entry] = {}
        self.drifters: dict[int, Drifter] = {}
        self.items: list[Item] = []
        """Sorted."""
        self.leaving: list[tuple[float, int]] = []
        """A heap of (when the job may leave its level, seq); outdated ones are skipped."""
        self.fresh: dict[int, Entry] = {}
        """Entries that were added since the last search for crossings."""
        self.present_s = -math.inf

    def add(self, entry: Entry) -> None:
        seq = entry[2]
        self.unplaced[seq] = self.fresh[seq] = entry
        self.has_added = True

    def remove(self, entry: Entry) -> None:
        self.has_removed = True
        seq = entry[2]
        self.fresh.pop(seq, None)
        if self.unplaced.pop(seq, None) is None:
            remove_entry(self.items, self.drifters.pop(seq).item)

    def refresh(self, started: Iterable[JobView]) -> None:
        self.present_s = -math.inf
        if not self.is_steady:
            self._forget()
        for drifter in [self.drifters[job.seq] for job in started if job.seq in self.drifters]:
            seq = drifter.entry[2]
            remove_entry(self.items, self.drifters.pop(seq).item)
            self.unplaced[seq] = drifter.entry

    def _forget(self) -> None:
        self.unplaced.update({seq: drifter.entry for seq, drifter in self.drifters.items()})
        self.drifters, self.items, self.leaving = {}, [], []

    def _update(self, now_s: float) -> None:
        """Move the jobs that may have risen to another level."""
        if not self.order.grain and self.present_s != now_s:
            self._forget()
        self.present_s = now_s
        leaving, drifters = self.leaving, self.drifters
        if len(leaving) > 100 + 4 * len(drifters):
            leaving[:] = sorted((drifter.leaves_s, seq) for seq, drifter in drifters.items())
        while leaving and leaving[0][0] < now_s:
            leaves_s, seq = heapq.heappop(leaving)
            if seq in drifters and drifters[seq].leaves_s == leaves_s:
                self._key(drifters[seq], now_s)
        for seq, entry in self.unplaced.items():
            drifters[seq] = drifter = Drifter(entry)
            self._set(drifter, now_s)
        self.unplaced.clear()

    def _key(self, drifter: Drifter, now_s: float) -> Key:
        """The present key. The job is moved to its level."""
        if drifter.at_s != now_s:
            remove_entry(self.items, drifter.item)
            self._set(drifter, now_s)
        return drifter.drift.key

    def _set(self, drifter: Drifter, now_s: float) -> None:
        order = self.order
        _, _, seq, job = drifter.entry
        drift = order.drift(job, now_s)
        level, leaves_s = level_of(order, drift.key), now_s
        if order.grain:
            leaves_s = max(drift.before(now_s, (level + 1) * order.grain - order.blur), now_s)
            if leaves_s < math.inf:
                heapq.heappush(self.leaving, (leaves_s, seq))
        drifter.set(drift, now_s, level, leaves_s)
        bisect.insort(self.items, drifter.item)

    def passed(self, entry: Entry, now_s: float) -> list[JobView]:
        self._update(now_s)
        _, key, _, job = entry
        cutoff = self.order.cutoff(job, key)
        first = bisect.bisect_left(self.items, (cutoff[0], level_of(self.order, cutoff[1])))
        drifters = [drifter for _, _, _, drifter in self.items[first:]]
        return [drifter.entry[3] for drifter in drifters if self._is_beyond(drifter, cutoff, now_s)]

    def lacks(self, head: LineHead, now_s: float) -> bool | None:
        return None

    def failed(self, head: LineHead, lacking: float) -> None:
        """Whether the line is quiet then, and until when, is set by the search that ends the decision."""
        self.quiets[head.line] = Quiet(head.entry, head.missing, max(lacking, 0.0))

    def _is_beyond(self, drifter: Drifter, cutoff: tuple[Key, ...], now_s: float) -> bool:
        rank, _, seq, _ = drifter.entry
        if rank != cutoff[0]:
            return bool(rank > cutoff[0])
        if drifter.at_s != now_s:
            key, rises, falls, until_s = drifter.drift[:4]
            passed_s, blur = now_s - drifter.at_s, self.order.blur
            if key - falls * passed_s - blur > cutoff[1]:
                return True
            if now_s <= until_s and key + rises * passed_s + blur < cutoff[1]:
                return False
        return (rank, self._key(drifter, now_s), seq) > cutoff

    def latest(self, cutoff: tuple[Key, ...], now_s: float) -> Iterator[Entry]:
        """Level by level, because most callers need few of them."""
        self._update(now_s)
        end = len(self.items)
        while end:
            start = bisect.bisect_left(self.items, self.items[end - 1][:2])
            level, found = self.items[start][1], []
            for item in self.items[start:end]:
                rank, _, seq, job = item[3].entry
                key = self._key(item[3], now_s)
                if item[3].item[1] == level:
                    found.append((rank, key, seq, job))
            end -= len(found)  # the others have fallen to lower levels
            yield from sorted(found, reverse=True)

    def search(self, heads: list[LineHead], now_s: float) -> float:
        """When the first job passes the next one of these pending jobs before it."""
        order = self.order
        self._update(now_s)
        drifters, keys = self._next_heads(heads, now_s)
        bounds = [now_s] * len(drifters)
        if order.grain:
            asked = zip(drifters, keys, strict=True)
            bounds = [
                drifter.behind_s if drifter.ceiling <= key else drifter.bound(key - order.blur)
                for drifter, key in asked
            ]
        first_s = sure_s = math.inf
        while bounds:
            soonest_s = min(bounds)
            if soonest_s >= first_s:
                break
            at = bounds.index(soonest_s)
            drifter, key = drifters[at], keys[at]
            if order.grain and drifter.ceiling < key - order.blur:
                bounds[at] = drifter.bound(key - order.blur)
                if bounds[at] > soonest_s:
                    continue
            bounds[at] = math.inf
            if drifter.ceiling != key or drifter.passes_s <= now_s:
                drifter.passes_s, drifter.behind_s = order.passes(drifter.entry[3], key, now_s)
                drifter.ceiling = key
            if drifter.passes_s < first_s:
                first_s = drifter.passes_s
            if drifter.behind_s < sure_s:
                sure_s = drifter.behind_s
        self._set_quiet(heads, min(first_s, sure_s), now_s)
        return first_s

    def _next_heads(self, heads: list[LineHead], now_s: float) -> tuple[list[Drifter], list[Key]]:
        """The jobs that have a pending one of their rank before them, and the keys that they pass next."""
        by_rank: dict[int, set[Key]] = {}
        for head in heads:
            rank, key, _, _ = head.entry
            by_rank.setdefault(rank, set()).add(key)
        drifters: list[Drifter] = []
        found: list[Key] = []
        for rank, among in by_rank.items():
            keys = sorted(among)
            first = bisect.bisect_left(self.items, (rank,))
            passing = bisect.bisect_left(self.items, (rank, level_of(self.order, keys[0])), first)
            after = bisect.bisect_left(self.items, (rank + 1,), passing)
            drifters += map(DRIFTER_OF, self.items[first:passing])
            found += [keys[0]] * (passing - first)
            for item in self.items[passing:after]:
                following = self._following(item[3], keys, now_s)
                if following < len(keys):
                    drifters.append(item[3])
                    found.append(keys[following])
        return drifters, found

    def _following(self, drifter: Drifter, keys: list[Key], now_s: float) -> int:
        """The position of the first of these keys that the job has not passed."""
        if drifter.at_s != now_s:
            key, rises, falls, until_s = drifter.drift[:4]
            passed_s, blur = now_s - drifter.at_s, self.order.blur
            following = bisect.bisect_left(keys, key - falls * passed_s - blur)
            if following == len(keys):
                return following
            if now_s <= until_s and key + rises * passed_s + blur < keys[following]:
                return following
        return bisect.bisect_left(keys, self._key(drifter, now_s))

    def _set_quiet(self, heads: list[LineHead], until_s: float, now_s: float) -> None:
        """No job passes any of these heads before this time. Other lines have other heads by now."""
        added = [self.drifters[seq] for seq in self.fresh]
        latest = max([(drifter.entry[0], self._key(drifter, now_s)) for drifter in added], default=None)
        before, self.quiets = self.quiets, {}
        for head in heads:
            line, entry = head.line, head.entry
            quiet = before.get(line)
            # If a job that was just started is beyond the head, it can be stopped when it runs.
            if quiet is not None and quiet.entry is entry and not (latest is not None and latest > entry[:2]):
                quiet.until_s = until_s
                self.quiets[line] = quiet
        self.fresh = {}


def level_of(order: Order, key: Key) -> Key:
    return key // order.grain if order.grain else key
