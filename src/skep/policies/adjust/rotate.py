"""Turns among jobs without a promise (Singularity): the most under-served goes first, the best served gives way.

A running job is stopped for a waiting one whose deficit (`order/deficits.py`) is larger by at least a turn. So the
service of equal jobs never differs by more than a turn, and no job waits for ever. A job that takes the place of
another one has the larger deficit until it has run for a turn, so no two jobs replace each other in less than two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import is_settled
from skep.policies.order.promises import Promises
from skep.policies.room import lacking, make_room
from skep.policies.walker import missing_gpus

Failure = tuple[int, Hashable, list[tuple[float, int, JobView]]]
"""The epoch, the placements that the job accepts, and the jobs ahead of it, all of which could be stopped. While these
are the same, it fails again."""


class Rotate:
    """Turns of `turn_s` seconds at least."""

    name = "rotate"
    needs = frozenset({Need.CHECKPOINT})

    def __init__(self, promises: Promises, *, turn_s: float) -> None:
        self.promises = promises
        self.turn_s = turn_s

    def attach(self, view: View) -> None:
        """Everything follows from the deficits."""
        self.failed: dict[int, Failure] = {}
        """By seq, what the last attempt for a waiting job depended on."""

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        """Returns when the next running job is ahead of one that waits by a turn."""
        wake_s = math.inf
        deficits, before = self.promises.deficits, self.failed
        self.failed = {}

        def attempt(job: JobView) -> bool:
            nonlocal wake_s
            if job.id in self.promises.book:
                return False
            standing_s = deficits.standing_s(job, view.now_s)
            ahead_s = view.now_s - standing_s - self.turn_s
            count = deficits.count_within(ahead_s)
            if count and self._replace(view, plan, walked, job, ahead_s, before):
                return True
            if count < len(deficits.running):
                wake_s = min(wake_s, standing_s + self.turn_s + deficits.running[count][0])
            return False

        if deficits.running:
            walked.offer_pending(attempt)
        return wake_s

    def _replace(
        self, view: View, plan: Plan, walked: Walked, job: JobView, ahead_s: float, before: dict[int, Failure]
    ) -> bool:
        """Start a waiting job on the GPUs of jobs that are ahead of it by a turn; all or nothing."""
        deficits = self.promises.deficits
        some = deficits.running[: deficits.count_within(ahead_s)]
        failure = (walked.epoch, walked.place.key(job, view.now_s), some)
        if before.get(job.seq) == failure:
            self.failed[job.seq] = failure
            return False
        victims = [each for each in deficits.ahead_of(ahead_s, view.now_s) if may_give_way(each, job)]
        for shape in job.shapes if victims else ():
            missing = missing_gpus(view, job, shape)
            if lacking(view, walked.place, job, shape, victims, missing) is not None:
                continue
            with plan.bundle():
                room = make_room(view, plan, walked.place, job, shape, victims, missing)
                if room is not None:
                    plan.start(job, room.allocation)
                    return True
        if len(victims) == len(some) and job.spec.preemptible:
            self.failed[job.seq] = failure
        return False


def may_give_way(victim: JobView, job: JobView) -> bool:
    """True if it may be stopped for this job."""
    return victim.rank >= job.rank and victim.spec.preemptible and is_settled(victim)
