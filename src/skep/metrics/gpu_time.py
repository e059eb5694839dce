"""GPU time, defined once for every policy: held, busy and useful, each a part of the one before.

- **Held**: a job has the GPU, or a part of it. On a shared GPU the parts of all tenants add up to the GPU at most.
  Restarts are held; a suspended job holds nothing, although its memory may stay.
- **Busy**: the part of that in which the job runs: no restart, no copying of its memory.
- **Useful**: the work that the job has done and kept, in seconds at its reference times the GPUs of its reference, but
  never more than it was busy. So a GPU-second is at most one useful GPU-second: on a faster GPU type, with more than
  linear scaling, or beside a neighbour that takes nothing from it, a job does more work in its busy time, and all of
  that time is useful. Work that is lost in a failure, switches between jobs, and slowness against the reference (a
  spread gang, a slower type, a neighbour that takes something) are busy and not useful.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from skep.core.job import Job

ROUNDING = 1e-9
"""A part above 1 by no more than this is 1."""


def held_gpu_s(jobs: Collection[Job], now_s: float) -> list[float]:
    """Of each job."""
    return [job.service_at(now_s) if job.held_gpus else job.service_gpu_s for job in jobs]


def busy_gpu_s(jobs: Collection[Job], now_s: float, held: Sequence[float]) -> list[float]:
    """Of each job; it is booked in other pieces than the held time, of which it is a part."""
    busy = [job.busy_at(now_s) if job.held_gpus else job.busy_gpu_s for job in jobs]
    return _at_most(busy, held)


def useful_gpu_s(jobs: Collection[Job], now_s: float, busy: Sequence[float]) -> list[float]:
    """Of each job."""
    useful = [(job.work_at(now_s) if job.rate else job.work_s) * job.gpus for job in jobs]
    return _at_most(useful, busy)


def _at_most(parts: Sequence[float], wholes: Sequence[float]) -> list[float]:
    return [whole if whole < part else part for part, whole in zip(parts, wholes, strict=True)]


def part_of(gpu_s: Sequence[float], offered: float) -> float | None:
    """The part of the offered GPU-seconds. The sum is exactly rounded, so what is smaller for every job is not larger
    in all."""
    if not offered:
        return None
    part = math.fsum(gpu_s) / offered
    return 1.0 if 1.0 < part < 1.0 + ROUNDING else part
