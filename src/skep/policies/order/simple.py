"""Orders by one number: arrival, size, duration, remaining work, attained service."""

from __future__ import annotations

import math

from skep.core.view import JobView, View
from skep.policies.estimate.duration import Duration
from skep.policies.order.base import FALLS, RISES, TICKS, Order


class Fifo(Order):
    """First come, first served: the tie-break alone decides."""

    start_keeps_key = True

    def key(self, job: JobView, now_s: float) -> float:
        return 0.0


class Smallest(Order):
    """Fewest GPUs first."""

    start_keeps_key = True

    def key(self, job: JobView, now_s: float) -> float:
        return job.gpus


class Shortest(Order):
    """Least expected run time first; with `by_size` least expected service (run time × GPUs)."""

    def __init__(self, duration: Duration, *, by_size: bool = False) -> None:
        self.duration = duration
        self.by_size = by_size
        self.remembers = duration.learns

    def attach(self, view: View) -> None:
        self.duration.attach(view)

    def key(self, job: JobView, now_s: float) -> float:
        total_s = self.duration.total_s(job)
        return service(total_s, job) if self.by_size else total_s


def service(run_s: float, job: JobView) -> float:
    """GPU-seconds of this much run time: 0 without GPUs, even if the duration is unknown (0 · inf is not a number)."""
    return run_s * job.gpus if job.gpus else 0.0


class Remaining(Shortest):
    """Least remaining time first (SRTF); with `by_size` least remaining service (SRSF)."""

    moves = FALLS
    start_keeps_key = True

    def key(self, job: JobView, now_s: float) -> float:
        left_s = self.duration.total_s(job)
        if job.launches:
            left_s -= job.work_at(now_s)
        if not self.by_size:
            return left_s
        return left_s * job.gpus if job.gpus else 0.0  # as `service`, without a call


class LeastAttained(Order):
    """Least attained service first. Continuous LAS would switch without end: a running job counts as if it had had
    `lead` seconds less on its GPUs, so that it keeps them at least that long."""

    moves = RISES
    is_even = True
    start_keeps_key = True

    def __init__(self, *, by_size: bool = True, lead: float = 0.0) -> None:
        self.by_size = by_size
        self.lead = lead

    def key(self, job: JobView, now_s: float) -> float:
        return round((job.service_at(now_s) if self.by_size else job.run_at(now_s)) * TICKS) / TICKS

    def running_key(self, job: JobView, now_s: float) -> float:
        return self.key(job, now_s) - self.lead * self.speed(job)

    def cutoff(self, job: JobView, key: float) -> tuple[float, ...]:
        """A running job that is level with it, after the lead, is behind it: `reaches` is when it is level."""
        return (job.rank, key) if self.lead else (job.rank, key, job.seq)

    def reaches(self, job: JobView, key: float, now_s: float) -> float:
        speed = self.speed(job)
        return now_s + (key - self.key(job, now_s)) / speed + self.lead if speed else math.inf

    def speed(self, job: JobView) -> float:
        return (job.allocation.gpus if job.allocation else 0) if self.by_size else 1
