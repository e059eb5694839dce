"""Deflation: low-priority jobs shrink instead of being killed (Sharma et al., resource deflation).

A pending job takes GPUs from running elastic jobs of a lower priority: each shrinks, down to its `min_gpus`, lowest
priority first. `Spare` keeps the walk from stopping jobs that can shrink. When no job is pending, deflated jobs grow
back to their requested size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.adjust.base import Preemption, Walked
from skep.policies.adjust.grow import asked_gpus, may_resize
from skep.policies.adjust.preempt import ByPriority
from skep.policies.adjust.resizer import Resizer
from skep.policies.adjust.sizes import resized_on_node, shrink_for
from skep.policies.lines import Entry
from skep.policies.order.base import Key, Order
from skep.policies.running import Running


class Spare:
    """Stops the jobs that the preemption beneath would stop, except those of a lower priority that can shrink."""

    name = "spare"
    is_by_order = False

    def __init__(self, beneath: Preemption | None = None) -> None:
        self.beneath = beneath or ByPriority()
        self.preempts = self.beneath.preempts

    def edge(self, order: Order, running: Running) -> tuple[Key, ...]:
        return self.beneath.edge(order, running)

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        return self.beneath.reachable(view, order, running, entry)

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        found = self.beneath.candidates(view, order, running, entry)
        return (job for job in found if job.rank <= entry[0] or not can_shrink(job))


class Deflate(Resizer):
    """Shrinks elastic jobs on one node; a job grows back `cool_down_s` after it shrank at the earliest."""

    name = "deflate"

    def shrink_others(self, view: View, plan: Plan, walked: Walked, job: JobView) -> bool:
        lower = [each for each in walked.seats.elastic.values() if each.rank > job.rank and may_resize(each)]
        lower.sort(key=lambda each: (-each.rank, -each.seq))

        def keep(giver: JobView, gpus: int) -> None:
            self.effects.note(view, plan, giver, "deflate", least_gpus(giver) / gpus, gpus=gpus)
            walked.seats.add(giver)

        return shrink_for(view, plan, walked, job, givers_of(lower), keep)

    def enlarge(self, view: View, plan: Plan, walked: Walked) -> float:
        wake_s = math.inf
        for job in sorted(walked.seats.elastic.values(), key=lambda job: (job.rank, job.seq)):
            last = self.effects.slot.get(view.memory, job.id)
            if last is None or last.action != "deflate" or not may_resize(job):
                continue
            if not self.effects.is_cool(view, job):
                wake_s = min(wake_s, last.at_s + self.effects.cool_down_s)
                continue
            assert job.allocation is not None
            gpus = job.allocation.gpu_count()
            found = resized_on_node(job, view.cluster.nodes[job.allocation.nodes()[0]], plan, asked_gpus(job))
            if found is not None and gpus < asked_gpus(job) and plan.allows(found):
                plan.resize(job, found)
                self.effects.note(view, plan, job, "inflate", asked_gpus(job) / gpus, gpus=gpus)
                walked.seats.add(job)
        return wake_s


def givers_of(jobs: Iterable[JobView]) -> Iterator[tuple[JobView, int]]:
    return ((job, least_gpus(job)) for job in jobs)


def least_gpus(job: JobView) -> int:
    assert job.spec.gpu_range is not None
    return job.spec.gpu_range[0]


def can_shrink(job: JobView) -> bool:
    """True if it is elastic, on one node, and larger than its smallest size."""
    if job.spec.gpu_range is None or job.allocation is None or len(job.allocation.slices) != 1:
        return False
    return job.allocation.gpu_count() > least_gpus(job)
