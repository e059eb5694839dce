"""Turns among jobs without a promise (Singularity): the most under-served goes first, the best served gives way.

A running job is stopped for a waiting one whose deficit (`order/deficits.py`) is larger by at least a turn. So the
service of equal jobs never differs by more than a turn, and no job waits for ever. A job that takes the place of
another one has the larger deficit until it has run for a turn, so no two jobs replace each other in less than two.
"""

from __future__ import annotations

import math

from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import is_settled
from skep.policies.order.promises import Promises
from skep.policies.room import lacking, make_room
from skep.policies.walker import missing_gpus


class Rotate:
    """Turns of `turn_s` seconds at least."""

    name = "rotate"
    needs = frozenset({Need.CHECKPOINT})

    def __init__(self, promises: Promises, *, turn_s: float) -> None:
        self.promises = promises
        self.turn_s = turn_s

    def attach(self, view: View) -> None:
        """Everything follows from the deficits."""

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        """Returns when the next running job is ahead of one that waits by a turn."""
        wake_s = math.inf

        def attempt(job: JobView) -> bool:
            nonlocal wake_s
            if job.id in self.promises.book:
                return False
            if self._replace(view, plan, walked, job):
                return True
            wake_s = min(wake_s, self._next_s(job, view.now_s))
            return False

        if self.promises.deficits.running:
            walked.offer_pending(attempt)
        return wake_s

    def _replace(self, view: View, plan: Plan, walked: Walked, job: JobView) -> bool:
        """Start a waiting job on the GPUs of jobs that are ahead of it by a turn; all or nothing."""
        ahead_s = self.promises.deficits.of(job, view.now_s) - self.turn_s
        victims = [each for each in self.promises.deficits.ahead_of(ahead_s, view.now_s) if may_give_way(each, job)]
        for shape in job.shapes if victims else ():
            missing = missing_gpus(view, job, shape)
            if lacking(view, walked.place, job, shape, victims, missing) is not None:
                continue
            with plan.bundle():
                room = make_room(view, plan, walked.place, job, shape, victims, missing)
                if room is not None:
                    plan.start(job, room.allocation)
                    return True
        return False

    def _next_s(self, job: JobView, now_s: float) -> float:
        standing_s = self.promises.deficits.standing_s(job, now_s)
        following_s = self.promises.deficits.next_after(now_s - standing_s - self.turn_s)
        return math.inf if following_s is None else standing_s + self.turn_s + following_s


def may_give_way(victim: JobView, job: JobView) -> bool:
    """True if it may be stopped for this job."""
    return victim.rank >= job.rank and victim.spec.preemptible and is_settled(victim)
