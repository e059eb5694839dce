"""Throttling of opportunistic neighbours (AntMan, OSDI'20): guaranteed jobs run as if they were alone.

In mode `lend` a guaranteed job has its GPUs and opportunistic ones use what it leaves idle. If its speed falls below
what `tolerance` allows, the limit of its neighbours is halved; when it has recovered, the limit rises by a step
(additive increase, multiplicative decrease). Speeds are reported by the engine or by the job itself.
"""

from __future__ import annotations

import math

from skep.core.cluster import WHOLE
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import Effects, is_settled, solo_speed, speed_of


class Throttle:
    """Examines each opportunistic job every `cool_down_s`."""

    name = "throttle"
    needs = frozenset({Need.SHARE})

    def __init__(self, *, tolerance: float = 0.05, step: int = 100, least: int = 20, cool_down_s: float = 30.0) -> None:
        self.tolerance = tolerance
        self.step = step
        """Thousandths of a GPU by which a limit rises."""
        self.least = least
        """Thousandths that a neighbour keeps."""
        self.effects = Effects(self.name, cool_down_s=cool_down_s, settle_s=cool_down_s)

    def attach(self, view: View) -> None:
        self.effects.attach(view)

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        wake_s = math.inf
        by_seq = walked.seats.jobs
        for guest in sorted(walked.seats.guests.values(), key=lambda job: job.seq):
            if not is_settled(guest) or guest.allocation is None:
                continue
            if self.effects.is_cool(view, guest):
                seqs = view.cluster.neighbours(guest.allocation, guest.seq)
                owners = [by_seq[seq] for seq in seqs if seq in by_seq and seq not in walked.seats.guests]
                self._pace(view, plan, guest, owners)
            wake_s = min(wake_s, view.now_s + self.effects.cool_down_s)
        return min(wake_s, self.effects.measure(view, plan))

    def _pace(self, view: View, plan: Plan, guest: JobView, owners: list[JobView]) -> None:
        slowest = min((left_speed(view, owner) for owner in owners), default=math.inf)
        if slowest * (1 + self.tolerance) < 1:
            limit = max(guest.limit_milli // 2, self.least)
        elif slowest * (1 + self.tolerance / 2) >= 1:
            limit = min(guest.limit_milli + self.step, WHOLE)
        else:
            return
        if limit != guest.limit_milli:
            plan.limit(guest, limit)
            owner_speed = slowest if slowest < math.inf else 1.0
            self.effects.note(view, plan, guest, "limit", limit / guest.limit_milli, limit=limit, owner=owner_speed)


def left_speed(view: View, owner: JobView) -> float:
    """The part of its speed alone that a guaranteed job has; inf if not known."""
    speed = speed_of(view, owner)
    if speed is None or owner.allocation is None:
        return math.inf
    gpu_type = view.cluster.nodes[owner.allocation.nodes()[0]].pool.gpu_type
    return speed / solo_speed(view, owner, gpu_type)
