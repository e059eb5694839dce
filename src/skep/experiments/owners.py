"""Owners' estimates for a trace that has only the true durations: the truth with an error.

The estimate of a job is its duration times `exp(error · z)`, with z from the standard normal distribution: the median
estimate is right, overestimates are as likely as underestimates, and two of three estimates are within a factor of
`exp(error)` (1.35 for 0.3). It depends on the seed and the job's id alone, so all policies get equal estimates.
Expectations that a trace itself contains stay unchanged.
"""

from __future__ import annotations

import math
import zlib
from statistics import NormalDist

import msgspec

from skep.core.chance import draw
from skep.traces.trace import TraceJob

ERROR_MAX = 10.0
NORMAL = NormalDist()


def with_estimates(jobs: list[TraceJob], error: float, seed: int) -> list[TraceJob]:
    """Without an error the estimates are the true durations."""
    return [estimated(job, error, seed) for job in jobs] if error else jobs


def estimated(job: TraceJob, error: float, seed: int) -> TraceJob:
    if job.spec.expect_s != job.work_s:
        return job
    expect_s = job.work_s * math.exp(error * normal(seed, job.spec.id))
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, expect_s=expect_s))


def normal(seed: int, job_id: str) -> float:
    """From the standard normal distribution."""
    bits = draw(seed, zlib.crc32(job_id.encode())) >> 11  # the precision of a float
    return NORMAL.inv_cdf((bits + 0.5) / 2**53)
