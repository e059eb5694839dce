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
from skep.core.model import GUARDED, told
from skep.core.needs import Need, offered_by
from skep.traces.trace import Trace, TraceJob

ERROR_MAX = 10.0
ERROR_LEAST = 0.1
"""A policy that gets estimates with a smaller error counts as one that knows the durations."""
NORMAL = NormalDist()


def knows_durations(needs: frozenset[Need], trace: Trace, error: float) -> bool:
    """True if a policy with these needs reads what follows from the true durations: the durations themselves, the
    progress that a simulated job reports, or deadlines that were derived from them."""
    if Need.ORACLE in needs and error < ERROR_LEAST:
        return True
    if Need.PROGRESS in needs and any(Need.PROGRESS in offered_by(job.spec) for job in trace.jobs):
        return True
    return Need.DEADLINE in needs and trace.has_derived_deadlines


def shown_jobs(jobs: list[TraceJob], needs: frozenset[Need]) -> list[TraceJob]:
    """The jobs without what no policy of the run has declared: what is not submitted cannot be read in any way."""
    if Need.ORACLE in needs:
        return jobs  # the rest tells no more
    hidden = {name: None for name in ("expect_s", "steps", "epochs") if GUARDED[name] not in needs}
    replace = msgspec.structs.replace
    return [TraceJob(job.submit_s, job.work_s, replace(job.spec, **hidden)) for job in jobs]


def with_estimates(jobs: list[TraceJob], error: float, seed: int) -> list[TraceJob]:
    """Without an error the estimates are the true durations."""
    return [estimated(job, error, seed) for job in jobs] if error else jobs


def estimated(job: TraceJob, error: float, seed: int) -> TraceJob:
    if told(job.spec).expect_s != job.work_s:
        return job
    expect_s = job.work_s * math.exp(error * normal(seed, job.spec.id))
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, expect_s=expect_s))


def normal(seed: int, job_id: str) -> float:
    """From the standard normal distribution."""
    bits = draw(seed, zlib.crc32(job_id.encode())) >> 11  # the precision of a float
    return NORMAL.inv_cdf((bits + 0.5) / 2**53)
