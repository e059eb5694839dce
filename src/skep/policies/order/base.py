"""The order of jobs: an order gives each job a key, declares how the key changes while the job runs, and when it next
jumps.

No event re-keys all jobs: keys of pending jobs are fixed until `changes_at`; keys of running ones are computed when a
pending job needs room.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

from skep.core.plan import Plan
from skep.core.refusal import Cause
from skep.core.view import JobView, View

FALLS, STANDS, RISES = -1, 0, 1

Key = Any  # numbers and texts, or tuples of them: each order compares only its own keys

Ceiling = tuple[tuple[int, Key], float, float, tuple[object, ...]]
"""((rank, a key that the job has not passed), when it passes it, a time before which it certainly has not passed it,
what must stay unchanged for this to hold)."""


class Order:
    """The smallest key goes first. Priorities precede keys; ties go by submission time, then row of the trace."""

    moves = STANDS
    """How the key of a running job changes between jumps."""

    is_even = False
    """True if a rising key rises linearly (`speed`), so that jobs of one speed keep their relative order."""

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

    def speed(self, job: JobView) -> float:
        """The growth per second of the key of a job with cells (orders whose keys rise linearly)."""
        raise NotImplementedError

    def reaches(self, job: JobView, key: Key, now_s: float) -> float:
        """When the key of a running job (`running_key`), which is not beyond `key` now, passes it."""
        return math.inf

    def surely_behind(self, job: JobView) -> float:
        """A time before which a running job has certainly not passed the key that `reaches` was last asked about,
        whatever the rounding."""
        return -math.inf

    def ceilings(self, entries: Iterable[tuple[int, Key, int, JobView]], now_s: float) -> dict[int, Ceiling]:
        """For running jobs, by seq: keys that they have not passed by now, if that is known without computing their
        keys. The last answer of `reaches` holds until then, if the job continues unchanged."""
        return {}

    def group(self, job: JobView) -> Hashable:
        """Jobs that share one allowance: those of a user or a VC."""
        return ""

    def group_key(self, group: Hashable) -> float:
        """The group with the smallest goes first."""
        return 0.0

    def refuses(self, job: JobView) -> Cause | None:
        """A cause specific to this order for which the job does not run."""
        return None

    def rekeyed(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The time that `changes_at` returned has come."""

    def settle(self, plan: Plan, now_s: float) -> list[JobView]:
        """Called after the walk. Returns running jobs whose key has changed."""
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
        return (
            cls.left is Order.left
            and cls.ended is Order.ended
            and cls.settle is Order.settle
            and cls.changes_at is Order.changes_at
        )
