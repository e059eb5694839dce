"""Smaller traces from larger ones: some of the jobs, or those of some days."""

from __future__ import annotations

import random  # noqa: TID251 (a sample is drawn at the edge, from a seed the user gives)

from msgspec.structs import replace

from skep.core.errors import InputError
from skep.core.model import JobSpec
from skep.traces.trace import Trace, TraceJob


def sample(trace: Trace, *, jobs: int, seed: int) -> Trace:
    """`jobs` of the trace, each choice equally likely, at their original times.

    Days, nights and bursts stay where they were; the load falls in proportion to the jobs left out.
    """
    if not 0 < jobs <= len(trace.jobs):
        raise InputError(f"a sample of {jobs} jobs, expected 1 to {len(trace.jobs)}, the jobs of {trace.name}")
    # Knuth's selection sampling keeps the order and needs only `random()`, the one method of the generator that Python
    # guarantees never to change.
    draw = random.Random(seed).random
    kept: list[TraceJob] = []
    for left, job in zip(range(len(trace.jobs), 0, -1), trace.jobs, strict=True):
        if draw() * left < jobs - len(kept):
            kept.append(job)
    return replace(trace, jobs=_without_absent_needs(kept))


def window(trace: Trace, *, from_s: float, to_s: float) -> Trace:
    """The jobs submitted in [from_s, to_s), with `from_s` as the new origin of time."""
    inside = [job for job in trace.jobs if from_s <= job.submit_s < to_s]
    if not inside:
        raise InputError(f"{trace.name}: no job was submitted between {from_s:g} s and {to_s:g} s")
    moved = [replace(job, submit_s=job.submit_s - from_s) for job in inside]
    return replace(trace, jobs=_without_absent_needs(moved))


def _without_absent_needs(jobs: list[TraceJob]) -> list[TraceJob]:
    """A job that needs one that is left out would never start, so that need is removed."""
    if not any(job.spec.needs for job in jobs):
        return jobs
    present = {job.spec.id for job in jobs}
    return [replace(job, spec=_needing_only(job, present)) if job.spec.needs else job for job in jobs]


def _needing_only(job: TraceJob, present: set[str]) -> JobSpec:
    return replace(job.spec, needs=tuple(name for name in job.spec.needs if name in present))
