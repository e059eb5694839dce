"""Least attained service in discrete queues (Tiresias): discrete queues keep jobs from preempting each other all the
time.

A job is demoted from queue to queue as its service passes the limits. Inside a queue every job keeps its place: running
jobs, by when they began there, go before waiting ones, so similar jobs never preempt each other. Preempted jobs wait at
the front, the last preempted first; then come jobs that are new in the queue, by arrival. A demoted job enters the next
queue behind the jobs that wait there, which may therefore preempt it. Changes at the same instant are ties, and ties go
by submission. With Gittins the jobs of a queue are sorted by decreasing index, running ones before waiting ones. An
index is that of the present service and of the present samples.
"""

from __future__ import annotations

import bisect
import math

import msgspec

from skep.core.job import FINAL
from skep.core.memory import Slot
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.estimate.gittins import Gittins
from skep.policies.order.base import Order, next_tick

EPSILON = 1e-8
"""Service that misses a limit only by rounding has reached it. Less than what a GPU gives in a tick."""

NEAR = 1.0
"""More service than rounding can change."""

RUNS, RETURNED, WAITS, DEMOTED = 0, 1, 2, 3
"""The parts of a queue, in order. Demoted jobs that keep their cells are running, the others wait."""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """The place of a job in its queue, and since when; negative if the last goes first."""

    part: int
    since_s: float


class Promotion(msgspec.Struct, frozen=True, array_like=True):
    """The counters of a job at its last promotion."""

    waited_s: float
    service_gpu_s: float
    run_s: float


NEVER_PROMOTED = Promotion(0.0, 0.0, 0.0)

STANDING = Slot("standing", Standing)
PROMOTION = Slot("promotion", Promotion)


class Queues(Order):
    """`limits` in GPU-seconds, or in seconds without `by_size`. `promote`: a pending job whose waiting time is this
    many times its executed time, both since the last promotion, returns to the first queue with its counters at zero;
    0: never."""

    hears_starts = hears_stops = hears_ends = settles = jumps = True

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
        self.ages = self.learns = gittins is not None
        self.pending_change = promote > 0

    def attach(self, view: View) -> None:
        self.places = STANDING.all(view.memory)
        """The queue places of all jobs that have run."""
        for job in view.placed_jobs():
            self.places.setdefault(job.id, Standing(RUNS, 0.0))  # it ran before this policy was in use
        self.promoted = PROMOTION.all(view.memory)
        self.unsettled: list[JobView] = []
        """Running jobs that were demoted now."""
        if self.gittins is not None:
            self.gittins.attach(view)
            self.sample_count = self.gittins.learn()

    def has_learned(self) -> bool:
        if self.gittins is None:
            return False
        before, self.sample_count = self.sample_count, self.gittins.learn()
        return self.sample_count != before

    def key(self, job: JobView, now_s: float) -> tuple[int, int, float]:
        attained, level = self._attained(job, now_s)
        return self._key(job, attained, level)

    def _key(self, job: JobView, attained: float, level: int) -> tuple[int, int, float]:
        place = self.places.get(job.id)
        part, time_s = (WAITS, job.submit_s) if place is None else (place.part, place.since_s)
        if self.gittins is not None:
            quantum = self.limits[level] - attained if level < len(self.limits) else math.inf
            # A demoted job is compared with the waiting jobs by the index only.
            return (level, int(part != RUNS), -self.gittins.index(attained, quantum))
        return (level, part, time_s)

    def key_and_change(self, job: JobView, now_s: float) -> tuple[tuple[int, int, float], float]:
        attained, level = self._attained(job, now_s)
        return self._key(job, attained, level), self._change(job, attained, level, now_s)

    def _stand(self, job: JobView, part: int, time_s: float, plan: Plan) -> None:
        place = self.places[job.id] = Standing(part, time_s)
        plan.remember(STANDING, job.id, place)

    def entered(self, job: JobView, plan: Plan, now_s: float) -> None:
        self._stand(job, RUNS, now_s, plan)

    def left(self, job: JobView, plan: Plan, now_s: float) -> None:
        if job.state in FINAL:
            return  # `ended` follows
        if self.places[job.id].part == DEMOTED:  # it is new in this queue
            self._stand(job, WAITS, now_s, plan)
        else:
            self._stand(job, RETURNED, -now_s, plan)

    def settle(self, plan: Plan, now_s: float) -> list[JobView]:
        settled = [job for job in self.unsettled if job.allocation is not None]
        for job in settled:
            self._stand(job, RUNS, now_s, plan)
        self.unsettled = []
        return settled

    def _attained(self, job: JobView, now_s: float) -> tuple[float, int]:
        """Service since the last promotion, and the queue in which it puts the job."""
        attained = job.service_at(now_s) if self.by_size else job.run_at(now_s)
        promoted = self.promoted.get(job.id) if self.promoted else None
        if promoted is not None:
            attained -= promoted.service_gpu_s if self.by_size else promoted.run_s
        level = bisect.bisect_right(self.limits, attained)
        if level < len(self.limits) and self.limits[level] - attained < NEAR:
            # The time at which a job reaches a limit is rounded, and the rounding error applies to each of its GPUs.
            slack = EPSILON + math.ulp(now_s) * max(job.gpus, 1)
            level = bisect.bisect_right(self.limits, attained + slack)
        return attained, level

    def changes_at(self, job: JobView, now_s: float) -> float:
        attained, level = self._attained(job, now_s)
        return self._change(job, attained, level, now_s)

    def _change(self, job: JobView, attained: float, level: int, now_s: float) -> float:
        if job.allocation is None:
            return self._promotion(job, now_s) if self.promote else math.inf
        if level == len(self.limits):
            return math.inf
        speed = job.allocation.gpus if self.by_size else 1
        return next_tick(now_s + (self.limits[level] - attained) / speed) if speed else math.inf

    def _promotion(self, job: JobView, now_s: float) -> float:
        """When a pending job will have waited `promote` times as long as it has run, both since the last promotion."""
        then = self.promoted.get(job.id, NEVER_PROMOTED)
        executed_s = job.run_s - then.run_s
        if executed_s <= 0:
            return math.inf
        waited_s = now_s - job.submit_s - job.run_s - then.waited_s
        return max(now_s, now_s + self.promote * executed_s - waited_s)

    def rekeyed(self, job: JobView, plan: Plan, now_s: float) -> None:
        if job.allocation is not None:
            self.places[job.id] = Standing(DEMOTED, now_s)  # not remembered: `settle` or `left` follows in this plan
            self.unsettled.append(job)
        elif self.promote and self._promotion(job, now_s) <= now_s + EPSILON:
            promoted = Promotion(now_s - job.submit_s - job.run_s, job.service_gpu_s, job.run_s)
            self.promoted[job.id] = promoted
            plan.remember(PROMOTION, job.id, promoted)
            self._stand(job, WAITS, now_s, plan)

    def ended(self, job: JobView, plan: Plan, now_s: float) -> None:
        self.places.pop(job.id, None)
        self.promoted.pop(job.id, None)
