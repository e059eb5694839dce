"""Why a head of a line is not tried again, and when it is.

The head of a line has failed. Whether it fails again depends on what is free, which events change (the *epoch* counts
them), and on the running jobs that it may stop. If keys of running jobs stand or fall, those are never more without an
event (`NoCrossings`). If keys rise, running jobs cross the key of the head as time goes by. A `Crossings` knows which
jobs have crossed it (`passed`, `latest`), whether these are enough (`lacks`, `may_try`), and when the next ones cross
(`next_s`): the planner wants to be called then.

`Rising` (keys that rise linearly) and `Drifting` (keys that rise and fall) answer without a look at every job. A naive
one in `tests/support/naive_crossings.py` looks at all of them; `tests/properties/test_crossings.py` compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

import msgspec

from skep.core.view import JobView, Trigger, View
from skep.policies.lines import Entry, Line, Pending
from skep.policies.order.base import TICKS, Key, Order

EARLY = 0.05
"""A crossing that is so many ticks after one, and mostly less, may be at that one except for rounding. If it is not, it
is found again at the next."""


class LineHead(msgspec.Struct, frozen=True):
    """A line with its first entry."""

    line: Line
    entry: Entry
    missing: int
    """How many GPUs it needs beyond the free ones."""


class Crossings(Protocol):
    """The running jobs, as the heads of the lines see them."""

    moves: ClassVar[bool]
    """False: no running job crosses a head by itself, so `begin` and `next_s` need not be called."""
    is_settled: bool
    """True: a head that failed in this epoch fails again, so only lines with new heads are tried."""

    def add(self, entry: Entry) -> None:
        """A job got cells, or has others."""
        ...

    def remove(self, entry: Entry) -> None: ...

    def begin(self, view: View, trigger: Trigger) -> None:
        """A decision begins."""
        ...

    def may_try(self, line: Line, entry: Entry, free: int, now_s: float) -> bool:
        """False if it is certain that this head fails as it did."""
        ...

    def lacks(self, head: LineHead, now_s: float) -> bool | None:
        """Whether the running jobs that have passed this head of a plain line have less than the missing GPUs. None: to
        count them takes as long as to list them."""
        ...

    def passed(self, entry: Entry, now_s: float) -> Iterable[JobView]:
        """Jobs that have passed this pending entry, in any order; possibly without some that are launching."""
        ...

    def latest(self, cutoff: tuple[Key, ...], now_s: float) -> Iterator[Entry]:
        """Jobs with their present keys, last first, at least those beyond the cutoff; possibly without some that are
        launching."""
        ...

    def failed(self, head: LineHead, lacking: float) -> None:
        """This head has failed: `lacking` of its missing GPUs are not held by jobs that have passed it; 0: it failed
        for another reason."""
        ...

    def known_s(self) -> float | None:
        """What `next_s` would return, if that is known."""
        ...

    def next_s(self, heads: list[LineHead], view: View) -> float:
        """A decision ends: when could one of these heads stop running jobs that it cannot stop now?"""
        ...


class NoCrossings:
    """Keys of running jobs stand or fall: what a head could not stop when it failed, it cannot stop before an event
    starts a new epoch."""

    moves: ClassVar[bool] = False

    def __init__(self, pending: Pending) -> None:
        self.is_settled = True
        self.pending = pending

    def add(self, entry: Entry) -> None: ...

    def remove(self, entry: Entry) -> None: ...

    def begin(self, view: View, trigger: Trigger) -> None: ...

    def may_try(self, line: Line, entry: Entry, free: int, now_s: float) -> bool:
        return line.tried != (entry[2], self.pending.epoch)

    def lacks(self, head: LineHead, now_s: float) -> bool | None:
        return None

    def passed(self, entry: Entry, now_s: float) -> Iterable[JobView]:
        return ()

    def latest(self, cutoff: tuple[Key, ...], now_s: float) -> Iterator[Entry]:
        return iter(())

    def failed(self, head: LineHead, lacking: float) -> None: ...

    def known_s(self) -> float | None:
        return math.inf

    def next_s(self, heads: list[LineHead], view: View) -> float:
        return math.inf


class Quiet(msgspec.Struct):
    """What is known about a head that lacks GPUs."""

    entry: Entry
    missing: int
    """The GPUs that it needed beyond the free ones."""
    lacks: float = 0.0
    """How many of those the jobs did not have that had passed it; 0: it failed for another reason."""
    coming: list[tuple[float, int]] = []
    """The next jobs that pass it, in order: (not before, GPUs)."""
    until_s: float = -math.inf
    """No other job passes it before this time; and these are not enough before it."""

    def holds(self, missing: int, now_s: float) -> bool:
        """True if the head lacks GPUs as before: those that it could preempt have too few."""
        if self.lacks <= 0 or now_s >= self.until_s:
            return False
        lacks = self.lacks + missing - self.missing
        for at_s, gpus in self.coming:
            if at_s > now_s:
                break
            lacks -= gpus
        return lacks > 0


class Circumstances(msgspec.Struct, frozen=True):
    """What failures depend on besides the pending and the running jobs."""

    now_s: float
    epoch: int
    free: int
    quota_left: float
    report_count: int


class Moving:
    """What `Rising` and `Drifting` have in common: two reasons for which a head is not tried again.

    *Settled*: at one instant keys do not move. If there is nothing new except pending jobs behind others (the return of
    a preempted job), the heads that failed at the last decision of this instant fail again, and crossings are the same.

    *Quiet* lines: a head lacks GPUs, which only jobs that pass it can give. `quiets` has when the next ones do. This is
    known while no job was started since (`next_s` accounts for those of the decision itself) and none has reported
    another speed; jobs that leave only make it lack more, unless their GPUs are free then, which is counted.
    """

    moves: ClassVar[bool] = True

    def __init__(self, order: Order, pending: Pending, *, is_bounded: bool = True, may_settle: bool = True) -> None:
        """`is_bounded`: which jobs a head may stop depends on keys alone, and the order says how fast these move.
        `may_settle`: no job changes its size unseen."""
        self.order = order
        self.pending = pending
        self.is_bounded = is_bounded
        self.may_settle = is_bounded and may_settle
        self.is_settled = False
        self.is_steady = False
        """True if no job was added since the last `next_s`, and none has reported another speed."""
        self.has_added = self.has_removed = True
        """Since then."""
        self.has_tried = False
        self.report_count = -1
        self.crossing_s = math.inf
        self.standing: Circumstances | None = None
        self.quiets: dict[Line, Quiet] = {}

    def begin(self, view: View, trigger: Trigger) -> None:
        self.is_steady = not self.has_added and self.report_count == view.report_count
        self.is_settled = (
            self.is_steady
            and not self.has_removed
            and self.standing is not None
            and self.standing.now_s == view.now_s
            and self.standing == self._standing(view)
            and not (trigger.started or trigger.withdrawn)
        )
        self.has_tried = False
        if not self.is_settled:
            self.refresh(trigger.started)

    def _standing(self, view: View) -> Circumstances | None:
        """None: failures may depend on more than this."""
        cluster, pending = view.cluster, self.pending
        pools = cluster.pools
        if not self.may_settle or len(pools) != 1 or pending.odd:
            return None
        return Circumstances(view.now_s, pending.epoch, pools[0].free, cluster.quota_left, view.report_count)

    def may_try(self, line: Line, entry: Entry, free: int, now_s: float) -> bool:
        self.has_tried = True
        if not (self.is_steady and self.is_bounded and line.is_plain):
            return True
        quiet = self.quiets.get(line)
        return quiet is None or quiet.entry is not entry or not quiet.holds(line.gpus - free, now_s)

    def known_s(self) -> float | None:
        return self.crossing_s if self.is_settled and not self.has_tried else None

    def next_s(self, heads: list[LineHead], view: View) -> float:
        if not heads:
            self.has_added, self.standing = True, None
            return math.inf
        self.has_added = self.has_removed = False
        self.report_count, self.standing = view.report_count, self._standing(view)
        self.crossing_s = self.search_ticks(heads, view.now_s)
        return self.crossing_s

    def search_ticks(self, heads: list[LineHead], now_s: float) -> float:
        """The next crossing at a whole tick after now."""
        at_s = self.search(heads, now_s)
        return at_s if at_s == math.inf else max(math.ceil(at_s * TICKS - EARLY), math.floor(now_s * TICKS) + 1) / TICKS

    def refresh(self, started: Iterable[JobView]) -> None:
        """Keys may have changed. If `is_steady`, only those of jobs that have just started to run."""
        raise NotImplementedError

    def search(self, heads: list[LineHead], now_s: float) -> float:
        """The next crossing of all these heads; sets until when their lines are quiet."""
        raise NotImplementedError
