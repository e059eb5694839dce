"""Grow and shrink inside a node (Gandiva, OSDI'18): elastic jobs use idle GPUs of their node.

A job grows up to its `max_gpus` while no job is pending or takes turns. It releases what it has beyond its request as
soon as a job arrives that fits then. A trial of a search with a deadline grows only if it gains more than its restart
costs (HyperSched, SoCC'19).
"""

from __future__ import annotations

import math

from skep.core.job import JobState
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import is_settled
from skep.policies.adjust.resizer import Resizer
from skep.policies.adjust.sizes import resized_on_node, shrink_for

LOOK_AGAIN_S = 60.0


class GrowShrink(Resizer):
    """Grows jobs on one node that are alone there, if they become at least `gain_min` times as fast."""

    name = "grow"

    def __init__(self, *, gain_min: float = 1.1, cool_down_s: float = 600.0) -> None:
        super().__init__(cool_down_s=cool_down_s)
        self.gain_min = gain_min

    def shrink_others(self, view: View, plan: Plan, walked: Walked, job: JobView) -> bool:
        """The jobs that gained most release first."""
        grown = [(each, asked_gpus(each)) for each in walked.seats.elastic.values() if may_resize(each)]
        grown = [(each, asked) for each, asked in grown if each.allocation and each.allocation.gpu_count() > asked]
        grown.sort(key=lambda giver: (-giver[0].allocation.gpu_count() if giver[0].allocation else 0, giver[0].seq))

        def keep(giver: JobView, gpus: int) -> None:
            self.effects.note(view, plan, giver, "shrink", asked_gpus(giver) / gpus, gpus=gpus)
            walked.seats.add(giver)

        return shrink_for(view, plan, walked, job, grown, keep)

    def enlarge(self, view: View, plan: Plan, walked: Walked) -> float:
        """Returns when a job that is in its cool-down may grow, or a launching one is examined again."""
        wake_s = math.inf
        if walked.seats.is_crowded:
            return wake_s
        for job in sorted(walked.seats.elastic.values(), key=lambda job: job.seq):
            if job.state is JobState.LAUNCHING:
                wake_s = min(wake_s, view.now_s + LOOK_AGAIN_S)
            elif may_resize(job) and job.allocation is not None and len(job.allocation.slices) == 1:
                last = self.effects.slot.get(view.memory, job.id)
                if self.effects.is_cool(view, job):
                    self._grow(view, plan, walked, job)
                elif last is not None:
                    wake_s = min(wake_s, last.at_s + self.effects.cool_down_s)
        return wake_s

    def _grow(self, view: View, plan: Plan, walked: Walked, job: JobView) -> None:
        assert job.allocation is not None
        assert job.spec.gpu_range is not None
        (piece,) = job.allocation.slices
        node, gpus = view.cluster.nodes[piece.node], piece.gpus.bit_count()
        step = job.shapes[0].roles[job.spec.elastic_role].gpus
        most = min(job.spec.gpu_range[1], gpus + node.free) // step * step
        gain = growth(view, job, node.pool.gpu_type, gpus, most) * part_after_restart(view, job)
        if most > gpus and gain >= self.gain_min and node.is_up:
            found = resized_on_node(job, node, plan, most)
            if found is not None and plan.allows(found):
                plan.resize(job, found)
                self.effects.note(view, plan, job, "grow", gain, gpus=gpus)
                walked.seats.add(job)


def growth(view: View, job: JobView, gpu_type: str, before: int, after: int) -> float:
    """How many times as fast the job is with this many GPUs: as measured, else in proportion to the GPUs."""
    slow, fast = (view.knowledge.rate(job.spec, job.spec.resized(gpus), gpu_type) for gpus in (before, after))
    return fast / slow if slow and fast is not None else after / before


def part_after_restart(view: View, job: JobView) -> float:
    """The part of the time until the deadline of its search that is left when it has started again (HyperSched): a
    trial does not grow if that would cost more than it brings."""
    group = view.groups.get(job.spec.group.id) if job.spec.group is not None else None
    if group is None or group.deadline_at_s == math.inf:
        return 1.0
    left_s = group.deadline_at_s - view.now_s
    return max(left_s - group.start_up_s, 0.0) / left_s if left_s > 0 else 0.0


def asked_gpus(job: JobView) -> int:
    return job.shapes[0].gpus


def may_resize(job: JobView) -> bool:
    """True if it runs, alone on its GPUs, and nothing is in flight."""
    return is_settled(job) and job.allocation is not None and not job.allocation.terms.mode
