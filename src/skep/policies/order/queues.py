"""Least attained service in discrete queues (Tiresias): the discretisation is what keeps jobs from thrashing.

A job is demoted from queue to queue as its service passes the limits. Inside a queue every job keeps its place: running
jobs, by when they began there, are before waiting ones, so similar jobs never preempt each other. Preempted jobs wait
at the front, the last preempted first; then come those that are new in the queue, by when they came. A demoted job
enters the next queue behind those that wait there, which may therefore preempt it. What happens at one instant is a
tie, and ties go by submission. With Gittins the waiting jobs stand by decreasing index instead.
"""

from __future__ import annotations

import math
from typing import Any

from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.estimate.gittins import Gittins
from skep.policies.order.base import Order

EPSILON = 1e-6
"""Service that is short of a limit only by rounding has reached it."""

RUNS, RETURNED, WAITS, DEMOTED = 0, 1, 2, 3
"""The parts of a queue, in order. Demoted jobs that keep their cells run, those that do not wait."""

PLACE, PROMOTED = "place ", "promoted "
"""Names in the memory: where a job stands, its counters at the last promotion."""


class Queues(Order):
    """`limits` in gpu-seconds, or seconds without `by_size`. `promote`: a pending job that has waited as often
    its executed time since the last promotion returns to the first queue with its counters at zero; 0: never."""

    def __init__(
        self,
        limits: tuple[float, ...],
        *,
        by_size: bool = True,
        promote: float = 0.0,
        gittins: Gittins | None = None,
    ) -> None:
        self.limits = limits
        self.by_size = by_size
        self.promote = promote
        self.gittins = gittins
        self.remembers = gittins is not None

    def attach(self, view: View) -> None:
        self.places = remembered(view, PLACE)
        """(part, time) of every job that has run: since when it is there, negative where the last goes first."""
        for job in view.placed_jobs():
            self.places.setdefault(job.id, (RUNS, 0.0))  # it ran before this policy came
        self.promoted = remembered(view, PROMOTED)
        """At its last promotion a job had (waited_s, service_gpu_s, run_s)."""
        self.demoted: list[JobView] = []
        if self.gittins is not None:
            self.gittins.attach(view)

    def key(self, job: JobView, now_s: float) -> tuple[int, int, float]:
        attained = self._attained(job, now_s)
        level = self._level(job, attained, now_s)
        part, time_s = self.places.get(job.id, (WAITS, job.submit_s))
        if self.gittins is not None:
            quantum = self.limits[level] - attained if level < len(self.limits) else math.inf
            # A demoted job is measured against those that wait there, by the index and nothing else.
            return (level, int(part != RUNS), -self.gittins.index(attained, quantum))
        return (level, part, time_s)

    def _stand(self, job: JobView, part: int, time_s: float, plan: Plan) -> None:
        self.places[job.id] = plan.memory[PLACE + job.id] = (part, time_s)

    def entered(self, job: JobView, plan: Plan, now_s: float) -> None:
        self._stand(job, RUNS, now_s, plan)

    def left(self, job: JobView, plan: Plan, now_s: float) -> None:
        if self.places[job.id][0] == DEMOTED:  # it is new in this queue
            self._stand(job, WAITS, now_s, plan)
        else:
            self._stand(job, RETURNED, -now_s, plan)

    def settle(self, plan: Plan, now_s: float) -> list[JobView]:
        settled = [job for job in self.demoted if job.allocation is not None]
        for job in settled:
            self._stand(job, RUNS, now_s, plan)
        self.demoted = []
        return settled

    def _level(self, job: JobView, attained: float, now_s: float) -> int:
        # The moment at which a job reaches a limit is rounded, and what is missing then is so for each of its gpus.
        slack = EPSILON + math.ulp(now_s) * max(job.gpus, 1)
        level = 0
        for limit in self.limits:
            if attained < limit - slack:
                break
            level += 1
        return level

    def _attained(self, job: JobView, now_s: float) -> float:
        """Service since the last promotion."""
        attained = job.service_at(now_s) if self.by_size else job.run_at(now_s)
        promoted = self.promoted.get(job.id)
        if promoted is not None:
            attained -= promoted[1] if self.by_size else promoted[2]
        return attained

    def changes_at(self, job: JobView, now_s: float) -> float:
        if job.allocation is None:
            return self._promotion(job, now_s) if self.promote else math.inf
        attained = self._attained(job, now_s)
        level = self._level(job, attained, now_s)
        if level == len(self.limits):
            return math.inf
        speed = job.allocation.gpus if self.by_size else 1
        return now_s + (self.limits[level] - attained) / speed if speed else math.inf

    def _promotion(self, job: JobView, now_s: float) -> float:
        """When a pending job will have waited `promote` times as long as it has run, both since the last time."""
        waited_then_s, _, run_then_s = self.promoted.get(job.id, (0.0, 0.0, 0.0))
        executed_s = job.run_s - run_then_s
        if executed_s <= 0:
            return math.inf
        waited_s = now_s - job.submit_s - job.run_s - waited_then_s
        return float(max(now_s, now_s + self.promote * executed_s - waited_s))

    def rekeyed(self, job: JobView, plan: Plan, now_s: float) -> None:
        if job.allocation is not None:
            self._stand(job, DEMOTED, now_s, plan)
            self.demoted.append(job)
        elif self.promote and self._promotion(job, now_s) <= now_s + EPSILON:
            counters = (now_s - job.submit_s - job.run_s, job.service_gpu_s, job.run_s)
            self.promoted[job.id] = plan.memory[PROMOTED + job.id] = counters
            self._stand(job, WAITS, now_s, plan)

    def ended(self, job: JobView, plan: Plan, now_s: float) -> None:
        if self.places.pop(job.id, None) is not None:
            plan.memory[PLACE + job.id] = None
        if self.promoted.pop(job.id, None) is not None:
            plan.memory[PROMOTED + job.id] = None
        if self.gittins is not None:
            self.gittins.learn(job)


def remembered(view: View, prefix: str) -> dict[str, Any]:
    items = view.memory.items()
    return {name.removeprefix(prefix): tuple(value) for name, value in items if name.startswith(prefix)}
