"""Rebalancing: jobs that share a GPU move to idle ones (DCUDA; Gandiva migrates for the same reason).

From the most crowded seat the member that was submitted last moves to free GPUs. DCUDA considers only the GPUs of the
same node (`within="node"`), Gandiva all.
"""

from __future__ import annotations

import math

from skep.core.cluster import WHOLE, Allocation
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import Effects, is_settled
from skep.policies.place.base import Place, role_slice
from skep.policies.seats import SharedSeat

NODE, CLUSTER = "node", "cluster"


class Rebalance:
    """Moves members of share groups to free GPUs if that makes them at least `gain_min` times as fast."""

    name = "rebalance"
    needs = frozenset({Need.MIGRATE, Need.SHARE})

    def __init__(self, *, within: str = CLUSTER, gain_min: float = 1.5, cool_down_s: float = 600.0) -> None:
        self.within = within
        self.gain_min = gain_min
        self.effects = Effects(self.name, cool_down_s=cool_down_s, settle_s=300.0)

    def attach(self, view: View) -> None:
        self.effects.attach(view)

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        wake_s = math.inf
        free = max((pool.free for pool in view.cluster.pools), default=0)
        for seat in walked.seats.crowded() if free else ():
            if seat.gpus <= free:
                wake_s = min(wake_s, self._relieve(view, plan, walked, seat))
                free = max(pool.free for pool in view.cluster.pools)
        return min(wake_s, self.effects.measure(view, plan))

    def _relieve(self, view: View, plan: Plan, walked: Walked, seat: SharedSeat) -> float:
        """Move one member. Returns when a member that is in its cool-down may be moved."""
        gain = float(len(seat.members))
        # packed jobs run at the same time: they gain less than their number
        if gain < self.gain_min or seat.mode == "pack":
            return math.inf
        wake_s = math.inf
        for job in reversed(seat.members):
            if not is_settled(job):
                continue
            if not self.effects.is_cool(view, job):
                last = self.effects.slot.get(view.memory, job.id)
                assert last is not None
                wake_s = min(wake_s, last.at_s + self.effects.cool_down_s)
                continue
            found = self._find(view, plan, walked.place, job)
            if found is not None:
                plan.move(job, found)
                self.effects.note(view, plan, job, "move", gain, members=len(seat.members))
                for each in list(seat.members):
                    walked.seats.add(each)
                return math.inf
        return wake_s

    def _find(self, view: View, plan: Plan, place: Place, job: JobView) -> Allocation | None:
        shape = job.shapes[0]
        if self.within == CLUSTER:
            return place.find(view.cluster, plan, job, shape, view.now_s)
        assert job.allocation is not None
        nodes = job.allocation.nodes()
        role, node = shape.roles[0], view.cluster.nodes[nodes[0]]
        if len(nodes) > 1 or not node.is_up:
            return None
        mask = node.free_with(job.allocation.terms.gpu_mem_mib)
        gpus = job.allocation.gpu_count()
        if role.gpu_milli < WHOLE or mask.bit_count() < gpus:
            return None
        seats = role_slice(node, role, 0, gpus // role.gpus, node.pick(gpus, job.allocation.terms.gpu_mem_mib))
        return Allocation((seats,), gpus)
