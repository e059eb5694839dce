"""AntMan's changes of running jobs: opportunistic ones are stopped if a guaranteed job does not fit beside them, and
`auto` jobs become guaranteed in place when their VC has quota."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from skep.core.cluster import WHOLE, bits
from skep.core.job import JobState
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.preempt import LAST, ByPriority
from skep.policies.lines import Entry
from skep.policies.order.base import Key, Order
from skep.policies.order.classes import LEND, Classes, claim_of, is_guest
from skep.policies.place.lend import Lend
from skep.policies.running import Running


class EvictGuests(ByPriority):
    """A guaranteed job may stop opportunistic ones, newest first, then jobs of a lower priority. A job that can run
    beside them and requests only GPUs stops none: it takes their GPUs anyway. Other jobs stop none, at any priority:
    two of them could stop each other forever."""

    name = "evict-guests"
    preempts = True
    is_by_order = False

    def __init__(self, place: Lend) -> None:
        self.place = place

    def edge(self, order: Order, running: Running) -> tuple[Key, ...]:
        assert isinstance(order, Classes)
        return LAST if order.guests() else super().edge(order, running)

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        assert isinstance(order, Classes)
        if claim_of(entry[3]) != "guaranteed":
            return ()
        lower = super().candidates(view, order, running, entry)
        has_lower = entry < super().edge(order, running)
        if not self._may_evict(entry[3]) or not (has_lower or order.is_within(entry[3])):
            return lower
        guests = [job for job in reversed(order.guests()) if job.state is JobState.RUNNING]
        return chained(guests, lower)

    def _may_evict(self, job: JobView) -> bool:
        is_beside = self.place.shares(job.spec) and job.shapes[0].is_plain
        return claim_of(job) == "guaranteed" and not is_beside


def chained(guests: list[JobView], lower: Iterable[JobView]) -> Iterator[JobView]:
    yield from guests
    yield from (job for job in lower if not is_guest(job))


class Upgrade:
    """Makes `auto` jobs guaranteed in place, in the order of submission: their VC must have quota, and no guaranteed
    job may be on their GPUs."""

    name = "upgrade"
    needs = frozenset({Need.SHARE})

    def __init__(self, order: Classes) -> None:
        self.order = order

    def attach(self, view: View) -> None:
        pass

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        for job in self.order.guests():
            if claim_of(job) == "auto" and self.order.is_within(job) and may_upgrade(view, job):
                assert job.allocation is not None
                plan.reshare(job, job.allocation.on_terms(mode=LEND, milli=WHOLE, limit=WHOLE))
        return math.inf


def may_upgrade(view: View, job: JobView) -> bool:
    """True if it runs, or is launching, on GPUs without a guaranteed tenant."""
    if job.allocation is None or job.state not in (JobState.RUNNING, JobState.LAUNCHING) or job.is_ending:
        return False
    places = ((view.cluster.nodes[piece.node], gpu) for piece in job.allocation.slices for gpu in bits(piece.gpus))
    return not any(tenant.milli for node, gpu in places for tenant in node.tenants(gpu))
