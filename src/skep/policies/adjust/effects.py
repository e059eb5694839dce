"""The record of adjustments with their predicted and measured effects: (state, action, predicted, measured).

Each is a value in the memory of the job, so it is in the log twice: when it is decided, and again with the measured
effect. `skep decisions` shows both. The last one of each adjuster is kept; its cool-down counts from it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

import msgspec

from skep.core.job import JobState
from skep.core.memory import Slot
from skep.core.plan import Plan
from skep.core.view import JobView, View

ADJUSTED = "adjusted "
"""The prefix of the names of these slots."""


class Adjustment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One adjustment of a job. Effects are speeds afterwards as multiples of the speed before, unless `state` says
    otherwise."""

    action: str
    at_s: float
    predicted: float
    state: dict[str, float] = {}
    """The basis of the decision: `speed` is work per second just before, 1 at the job's reference."""
    measured: float | None = None
    """None until it is measured, and if the speed is not known."""
    due_s: float | None = None
    """When the effect is to be measured; None after that was tried."""


class Effects:
    """The adjustments of one adjuster: which jobs may be adjusted again, and which effects are due."""

    def __init__(self, name: str, *, cool_down_s: float, settle_s: float) -> None:
        self.slot = Slot(f"{ADJUSTED}{name}", Adjustment)
        self.cool_down_s = cool_down_s
        self.settle_s = settle_s
        """An effect is measured after this many seconds, rounded up to the next multiple, so that many are measured at
        once."""
        self.open: dict[str, float] = {}
        """When the effect on each job is to be measured."""
        self.queue: list[tuple[float, str]] = []
        """The same as a heap, with outdated entries."""

    def attach(self, view: View) -> None:
        noted = self.slot.all(view.memory)
        self.open = {job_id: each.due_s for job_id, each in noted.items() if each.due_s is not None}
        self.queue = [(due_s, job_id) for job_id, due_s in self.open.items()]
        heapq.heapify(self.queue)

    def is_cool(self, view: View, job: JobView) -> bool:
        """True if the cool-down of this job is over."""
        last = self.slot.get(view.memory, job.id)
        return last is None or view.now_s >= last.at_s + self.cool_down_s

    def note(self, view: View, plan: Plan, job: JobView, action: str, predicted: float, **state: float) -> None:
        """Record a decision. `state` may name the speed that the effect is measured against, for a job that has none
        yet."""
        speed = speed_of(view, job)
        if speed is not None:
            state["speed"] = speed
        due_s = (view.now_s // self.settle_s + 2) * self.settle_s
        plan.remember(self.slot, job.id, Adjustment(action, view.now_s, predicted, state, due_s=due_s))
        self.open[job.id] = due_s
        heapq.heappush(self.queue, (due_s, job.id))

    def due(self, view: View) -> Iterator[tuple[JobView, Adjustment]]:
        """The jobs whose effect is to be measured now."""
        while self.next_s(view) <= view.now_s:
            _, job_id = heapq.heappop(self.queue)
            del self.open[job_id]
            noted = self.slot.get(view.memory, job_id)
            if noted is not None:
                yield view.jobs[job_id], noted

    def settle(self, plan: Plan, job: JobView, noted: Adjustment, measured: float | None) -> None:
        plan.remember(self.slot, job.id, msgspec.structs.replace(noted, measured=measured, due_s=None))

    def measure(self, view: View, plan: Plan) -> float:
        """Measure the effects that are due by the speeds of the jobs. Returns when the next one is due."""
        for job, noted in self.due(view):
            before, after = noted.state.get("speed"), speed_of(view, job)
            self.settle(plan, job, noted, after / before if before and after is not None else None)
        return self.next_s(view)

    def next_s(self, view: View) -> float:
        """When the next one is due. Effects on ended jobs are not measured."""
        while self.queue:
            due_s, job_id = self.queue[0]
            job = view.jobs.get(job_id)
            if job is not None and not job.state.is_final and self.open.get(job_id) == due_s:
                return due_s
            heapq.heappop(self.queue)
            if self.open.get(job_id) == due_s:
                del self.open[job_id]
        return math.inf


def speed_of(view: View, job: JobView) -> float | None:
    """Work per second, 1 at the job's reference: as known to the engine, else as last reported by the job."""
    if job.state is not JobState.RUNNING:
        return None
    if job.known_rate is not None:
        return job.known_rate
    return view.knowledge.rate_of(job)


def solo_speed(view: View, job: JobView, gpu_type: str) -> float:
    """Work per second alone and well placed on this GPU type: as measured, else 1. No job is placed where it is 0."""
    return view.knowledge.rate(job.spec, job.shapes[0], gpu_type) or 1.0


def is_settled(job: JobView) -> bool:
    """True if the job runs in its wanted place and may be adjusted: nothing is in flight, and it is not ending."""
    return job.state is JobState.RUNNING and job.held == job.bound and not job.is_ending and job.held is not None
