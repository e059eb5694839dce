"""A policy for tests that combines any adjusters with any order, and two adjusters for it: suspensions by turns, and
moves onto fuller nodes."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from skep.core.errors import InvariantBroken
from skep.core.job import JobState
from skep.core.memory import Slot
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Adjuster, Preemption, Walked
from skep.policies.adjust.deflate import Deflate, Spare
from skep.policies.adjust.grow import GrowShrink
from skep.policies.adjust.migrate import Migrate
from skep.policies.adjust.pack import PackTrials
from skep.policies.adjust.preempt import Preempt
from skep.policies.adjust.rebalance import Rebalance
from skep.policies.adjust.slices import Slices as TimeSlices
from skep.policies.adjust.throttle import Throttle
from skep.policies.estimate.duration import Duration
from skep.policies.order.base import Order
from skep.policies.order.queues import Queues
from skep.policies.order.simple import Fifo, LeastAttained, Remaining
from skep.policies.pipeline import Pipeline
from skep.policies.place import PLACES

ADJUSTED = f"{__file__}:Adjusted"
"""The name of the policy."""

ORDERS: dict[str, Callable[[], Order]] = {
    "fifo": Fifo,
    "srsf": lambda: Remaining(Duration(), by_size=True),
    "las": lambda: LeastAttained(lead=60.0),
    "queues": lambda: Queues((300.0, 1000.0)),
}


class Adjusted(Pipeline):
    """`adjusted` names adjusters: slices+compact, turns+deflate."""

    needs = frozenset({Need.ORACLE, Need.THROUGHPUT})

    def __init__(
        self, order: str = "fifo", placed: str = "any", adjusted: str = "slices", preempts: str = "no"
    ) -> None:
        adjusters = tuple(ADJUSTERS[name]() for name in adjusted.split("+"))
        preempt: Preemption | None = Preempt() if preempts == "yes" else None
        if "deflate" in adjusted:
            preempt = Spare(preempt)
        super().__init__(
            name="adjusted", order=ORDERS[order](), place=PLACES[placed](), preempt=preempt, adjust=adjusters
        )


class TestedSlices:
    """A job that has worked for `slice_s` is suspended if another can have its GPUs."""

    name = "slices"
    needs = frozenset({Need.SUSPEND})

    def __init__(self, slice_s: float = 40.0) -> None:
        self.slice_s = slice_s

    def attach(self, view: View) -> None:
        """Nothing to rebuild."""

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        waiting = [job for job in walked.suspended_jobs() if not job.is_ending and not self.go_on(view, plan, job)]
        waiting += walked.pending_jobs()
        if not waiting:
            return math.inf
        wake_s = math.inf
        for job in list(walked.running_jobs()):
            if job.state is not JobState.RUNNING or not job.held_gpus or job.is_ending or job.held != job.bound:
                continue
            ends_s = job.progress_since_s + self.slice_s
            if ends_s > view.now_s:
                wake_s = min(wake_s, ends_s)
                continue
            mark = plan.mark()
            with plan.bundle():
                plan.suspend(job)
                left = [other for other in waiting if not self.go_on(view, plan, other, walked)]
            if len(left) == len(waiting):
                plan.rollback(mark)
            waiting = left
        return wake_s if wake_s < math.inf else view.now_s + self.slice_s

    def go_on(self, view: View, plan: Plan, job: JobView, walked: Walked | None = None) -> bool:
        if job.state is JobState.SUSPENDED:
            try:
                plan.resume(job)
            except InvariantBroken:  # others have its GPUs
                return False
            return True
        assert walked is not None
        for shape in walked.allocate.shapes(job):
            found = walked.place.find(view.cluster, plan, job, shape, view.now_s)
            if found is not None:
                plan.start(job, found)
                return True
        return False


class MovedJob(msgspec.Struct, frozen=True):
    at_s: float


MOVED = Slot("moved", MovedJob)


class Compact:
    """A job on one node moves, once, to a node that is fuller."""

    name = "compact"
    needs = frozenset({Need.MIGRATE})

    def attach(self, view: View) -> None:
        """Nothing to rebuild."""

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        nodes = view.cluster.nodes
        for job in list(walked.running_jobs()):
            held = job.allocation
            if job.state is not JobState.RUNNING or job.is_ending or job.held != job.bound or held is None:
                continue
            if len(held.slices) != 1 or MOVED.get(view.memory, job.id) is not None:
                continue
            mark = plan.mark()
            plan.vacate(job)
            found = PLACES["consolidate"]().find(view.cluster, plan, job, job.spec.shapes[0], view.now_s)
            is_fuller = found is not None and nodes[found.slices[0].node].free < nodes[held.slices[0].node].free
            plan.rollback(mark)
            if found is not None and is_fuller:
                plan.move(job, found)
                plan.remember(MOVED, job.id, MovedJob(view.now_s))
        return math.inf


ADJUSTERS: dict[str, Callable[[], Adjuster]] = {
    "slices": TestedSlices,
    "compact": Compact,
    "turns": TimeSlices,
    "pack": lambda: PackTrials(trial_s=50.0, cool_down_s=100.0),
    "migrate": lambda: Migrate(cool_down_s=100.0),
    "grow": lambda: GrowShrink(cool_down_s=100.0),
    "deflate": lambda: Deflate(cool_down_s=100.0),
    "rebalance": lambda: Rebalance(within="node", cool_down_s=100.0),
    "throttle": Throttle,
}
