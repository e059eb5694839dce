"""The order of jobs: an order gives each job a key, declares how the key changes while the job runs, and when it next
jumps.

No event re-keys all jobs: keys of pending jobs are fixed until `changes_at`; keys of running ones are computed when a
pending job needs room.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from skep.core.plan import Plan
from skep.core.refusal import Cause
from skep.core.view import JobView, View

FALLS, STANDS, RISES = -1, 0, 1

TICKS = 2.0**24
"""Keys of running jobs pass those of pending ones at whole parts of a second, the first at which they have. Up to
seventeen years sums of such times are exact, so that equal service stays equal however it was attained."""


def next_tick(at_s: float) -> float:
    return math.ceil(at_s * TICKS) / TICKS


Key = Any  # numbers and texts, or tuples of them: each order compares only its own keys


class Drift(NamedTuple):
    """The key of a running job, and how fast it can change while the job continues unchanged."""

    key: Key
    rises: float
    """It rises by no more than this per second; below 0: it falls at least so fast."""
    falls: float
    """It falls by no more than this per second."""
    until_s: float = math.inf
    """How long it rises by no more than that."""
    then: float = 0.0
    """An upper bound on the key at that time ..."""
    then_rises: float = math.inf
    """... and on its rise per second from then on."""

    def before(self, at_s: float, key: Key) -> float:
        """A time before which a job with this drift since `at_s` does not reach the key."""
        if self.key >= key:
            return at_s
        passes_s = at_s + (key - self.key) / self.rises if self.rises > 0 else math.inf
        if passes_s <= self.until_s:
            return passes_s
        ahead = max(key - self.then, 0.0)
        return self.until_s + ahead / self.then_rises if self.then_rises else math.inf


TRAITS = {
    "entered": "hears_starts",
    "left": "hears_stops",
    "ended": "hears_ends",
    "settle": "settles",
    "changes_at": "jumps",
    "group": "has_groups",
    "group_key": "ranks_groups",
    "refuses": "may_refuse",
}
"""The methods that an order may have or do without, and the trait that declares it."""


def check_traits(part: type, base: type, traits: Mapping[str, str]) -> None:
    """A method without its declaration would never be called; a declaration without the method would cost time."""
    for method, trait in traits.items():
        has_method = getattr(part, method) is not getattr(base, method)
        if has_method != getattr(part, trait):
            has = "has" if has_method else "lacks"
            raise TypeError(f"{part.__name__} {has} the method {method}: declare `{trait} = {has_method}`")


class Order:
    """The smallest key goes first. Priorities precede keys; ties go by submission time, then row of the trace.

    Traits describe an order, as data. Those of `TRAITS` are checked against the methods of its class.
    """

    hears_starts: ClassVar[bool] = False
    """It keeps account of jobs that get cells,"""
    hears_stops: ClassVar[bool] = False
    """of jobs that release them,"""
    hears_ends: ClassVar[bool] = False
    """of jobs that are over."""
    settles: ClassVar[bool] = False
    """It may change keys after a walk."""
    jumps: ClassVar[bool] = False
    """Keys jump by themselves at known times."""
    has_groups: ClassVar[bool] = False
    """Jobs belong to groups with an allowance;"""
    ranks_groups: ClassVar[bool] = False
    """groups take turns."""
    may_refuse: ClassVar[bool] = False
    """It has causes of its own for which a job does not run."""

    preemptive: ClassVar[bool] = False
    """For an order in a user's file: a pending job may preempt jobs that are ordered after it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_traits(cls, Order, TRAITS)

    moves = STANDS
    """How the key of a running job changes between jumps."""

    is_even = False
    """True if a rising key rises linearly (`speed`), so that jobs of one speed keep their relative order."""

    grain = 0.0
    """If keys rise otherwise, but with known bounds (`drift`): how far about a key moves while several jobs come and
    go. 0: nothing is known, and keys are computed at every decision."""

    blur = 0.0
    """How far rounding can take a key beyond these bounds."""

    pending_change = True
    """False if the key of a pending job never jumps by itself."""

    start_keeps_key = False
    """True if a start does not change the key of a job."""

    ages = False
    """True if keys of running jobs change, but never from one side of a pending job's to the other: those that may be
    stopped are sorted by their present keys."""

    learns = False
    """True if keys depend on jobs that have ended: `has_learned` is asked before each walk."""

    unsettled: Sequence[JobView] = ()
    """Jobs because of which `settle` must be called after the walk."""

    remembers = False
    """True if a key cannot be recomputed later, because it depends on what was known or attained when it was set. Such
    keys are kept in the memory, so that a fork continues with them."""

    def attach(self, view: View) -> None:
        """Rebuild what is derived from the state."""

    def key(self, job: JobView, now_s: float) -> Key:
        raise NotImplementedError

    def running_key(self, job: JobView, now_s: float) -> Key:
        """The key of a running job for comparison with pending ones (orders whose keys rise): it may have a lead."""
        return self.key(job, now_s)

    def cutoff(self, job: JobView, key: Key) -> tuple[Key, ...]:
        """Running entries beyond this one are ordered after the pending job. Others than this one are for orders whose
        keys rise."""
        return (job.rank, key, job.seq)

    def changes_at(self, job: JobView, now_s: float) -> float:
        """When the key of this job jumps by itself (a queue threshold, a promotion)."""
        return math.inf

    def key_and_change(self, job: JobView, now_s: float) -> tuple[Key, float]:
        """`key` and `changes_at` together, for orders that can compute them at once."""
        return self.key(job, now_s), self.changes_at(job, now_s)

    def speed(self, job: JobView) -> float:
        """The growth per second of the key of a job with cells (orders whose keys rise linearly)."""
        raise NotImplementedError

    def reaches(self, job: JobView, key: Key, now_s: float) -> float:
        """When the key of a running job (`running_key`), which is not beyond `key` now, passes it."""
        return math.inf

    def passes(self, job: JobView, key: Key, now_s: float) -> tuple[float, float]:
        """The same, and a time before which the job certainly has not passed the key, whatever the rounding."""
        return self.reaches(job, key, now_s), -math.inf

    def has_learned(self) -> bool:
        """True once after what keys of pending jobs depend on has changed: those keys are computed anew."""
        return False

    def drift(self, job: JobView, now_s: float) -> Drift:
        """How the key of a running job (`running_key`) changes, if there is a `grain`."""
        return Drift(self.running_key(job, now_s), math.inf, math.inf)

    def group(self, job: JobView) -> Hashable:
        """Jobs that share one allowance: those of a user or a VC."""
        return ""

    def group_key(self, group: Hashable) -> float:
        """The group with the smallest goes first."""
        return 0.0

    def aside(self, job: JobView) -> Key | None:
        """If an adjuster, not the walk, starts this pending job: its key among the jobs that the adjuster starts."""
        return None

    def refuses(self, job: JobView) -> Cause | None:
        """A cause specific to this order for which the job does not run."""
        return None

    def allowance(self, job: JobView) -> str:
        """What its group has of its quota, in words, if that is why this order refuses the job."""
        return ""

    def rekeyed(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The time that `changes_at` returned has come."""

    def settle(self, plan: Plan, now_s: float) -> list[JobView]:
        """Called after the walk if there are `unsettled` jobs. Returns running jobs whose key has changed."""
        return []

    def entered(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The job got cells."""

    def left(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The job released its cells: it was stopped or ended."""

    def ended(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The job is over."""

    @classmethod
    def ignores_ends(cls) -> bool:
        """True if the order does nothing when a job leaves: it keeps no account, and its keys never jump."""
        return not (cls.hears_stops or cls.hears_ends or cls.settles or cls.jumps)
