"""Who goes first? An order gives each job a key, says how it moves while the job runs, and when it next jumps.

Nobody re-keys all jobs at every event: keys of pending jobs stand still until `changes_at`; keys of running ones are
worked out when somebody asks who could make room.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

from skep.core.plan import Plan
from skep.core.refusal import Cause
from skep.core.view import JobView, View

FALLS, STANDS, RISES = -1, 0, 1

Key = Any  # numbers and words, or tuples of them: each order has its own, and compares only these

Ceiling = tuple[tuple[int, Key], float, float, tuple[object, ...]]
"""((rank, a key that the job has not passed), when it passes it, a moment before which it certainly has not passed it,
what must stay as it is for this to hold)."""


class Order:
    """The smallest key goes first; priorities before, ties (submission time, row of the trace) after."""

    moves = STANDS
    """How the key of a running job moves between jumps."""

    is_even = False
    """Whether a rising key rises evenly (`speed`), so that jobs of one speed keep their order among themselves."""

    remembers = False
    """Whether a key cannot be worked out again later, because it depends on what was known or attained when it was
    set. Such keys are kept in the memory, so that a fork goes on with them."""

    def attach(self, view: View) -> None:
        """Rebuild what is derived from the state."""

    def key(self, job: JobView, now_s: float) -> Key:
        raise NotImplementedError

    def running_key(self, job: JobView, now_s: float) -> Key:
        """The key of a running job against those of pending ones (orders whose keys rise): it may have a lead."""
        return self.key(job, now_s)

    def cutoff(self, job: JobView, key: Key) -> tuple[Key, ...]:
        """Running entries beyond this one are ordered after the pending job. Others than this one are for orders whose
        keys rise."""
        return (job.rank, key, job.seq)

    def changes_at(self, job: JobView, now_s: float) -> float:
        """When the key of this job jumps by itself (a queue threshold, a promotion)."""
        return math.inf

    def speed(self, job: JobView) -> float:
        """Of the key of a job with cells, per second (orders whose keys rise evenly)."""
        raise NotImplementedError

    def reaches(self, job: JobView, key: Key, now_s: float) -> float:
        """When the key of a running job (`running_key`), which is not beyond `key` now, passes it."""
        return math.inf

    def ceilings(self, entries: Iterable[tuple[int, Key, int, JobView]], now_s: float) -> dict[int, Ceiling]:
        """Of running jobs, by seq: keys that they have not passed by now, where that is known without working out
        their keys. What `reaches` last answered holds until then, if the job goes on as it did."""
        return {}

    def group(self, job: JobView) -> Hashable:
        """Jobs that share one allowance: a user, a VC."""
        return ""

    def group_key(self, group: Hashable) -> float:
        """The group with the smallest goes first."""
        return 0.0

    def refuses(self, job: JobView) -> Cause | None:
        """A cause of its own for which this job does not run."""
        return None

    def rekeyed(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The moment that `changes_at` named has come."""

    def settle(self, plan: Plan, now_s: float) -> list[JobView]:
        """The walk is over: running jobs whose key is another from now on."""
        return []

    def entered(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The job was given cells."""

    def left(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The job gave its cells back: stopped or ended."""

    def ended(self, job: JobView, plan: Plan, now_s: float) -> None:
        """The job is over."""

    @classmethod
    def ignores_ends(cls) -> bool:
        """Whether it does nothing when a job leaves: it keeps no account, and its keys jump at no moment."""
        return (
            cls.left is Order.left
            and cls.ended is Order.ended
            and cls.settle is Order.settle
            and cls.changes_at is Order.changes_at
        )
