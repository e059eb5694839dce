"""Adjusters that resize elastic jobs: smaller when others wait for GPUs, larger when no job waits."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import Effects

SETTLE_S = 300.0


class Resizer(ABC):
    """A job is not made larger again within `cool_down_s` of its last change."""

    name: str
    needs = frozenset({Need.RESIZE})

    def __init__(self, *, cool_down_s: float = 600.0) -> None:
        self.effects = Effects(self.name, cool_down_s=cool_down_s, settle_s=SETTLE_S)

    def attach(self, view: View) -> None:
        self.effects.attach(view)

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        wake_s = math.inf
        if walked.seats.elastic:
            walked.offer_pending(lambda job: self.shrink_others(view, plan, walked, job))
            if next(walked.pending_jobs(), None) is None:
                wake_s = self.enlarge(view, plan, walked)
        return min(wake_s, self.effects.measure(view, plan))

    @abstractmethod
    def shrink_others(self, view: View, plan: Plan, walked: Walked, job: JobView) -> bool:
        """Start a pending job on GPUs that elastic jobs give up. False if they cannot give enough."""

    @abstractmethod
    def enlarge(self, view: View, plan: Plan, walked: Walked) -> float:
        """Give idle GPUs to elastic jobs. Returns when to be called again."""
