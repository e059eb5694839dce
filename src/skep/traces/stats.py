"""The content of a trace: counts, sizes, durations, use by VC, and the load on a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from skep.traces.trace import Trace, TraceJob
from skep.traces.uses import TraceUse, uses

QUANTILES = {
    "min": 0.0,
    "p10": 0.1,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p99": 0.99,
    "max": 1.0,
}


class StatsPart(msgspec.Struct, frozen=True):
    """The jobs of one size or one virtual cluster."""

    name: str
    jobs: int
    gpu_hours: float


class TraceInfo(msgspec.Struct, frozen=True):
    """What `skep trace info` shows. Hours and durations are those of jobs that end."""

    name: str
    format: str
    jobs: int
    cpu_only_jobs: int
    shared_gpu_jobs: int
    """Jobs that request a part of a GPU."""
    endless_jobs: int
    users: int
    models: int
    span_s: float
    """From the first submission to the last."""
    gpu_hours: float
    gpus: int | None
    """The GPUs of the cluster to which `load` refers."""
    load: float | None
    duration_s: dict[str, float]
    sizes: list[StatsPart]
    vcs: list[StatsPart]
    """The largest first."""
    uses: list[TraceUse]
    dropped: dict[str, int]


def describe(trace: Trace, *, gpus: int | None = None) -> TraceInfo:
    """Everything about a trace; with the GPUs of a cluster also the load it offers to that cluster."""
    jobs = trace.jobs
    ending = [job for job in jobs if job.work_s < math.inf]
    return TraceInfo(
        name=trace.name,
        format=trace.format,
        jobs=len(jobs),
        cpu_only_jobs=sum(gpus_of(job) == 0 for job in jobs),
        shared_gpu_jobs=sum(is_shared(job) for job in jobs),
        endless_jobs=len(jobs) - len(ending),
        users=len({job.spec.user for job in jobs if job.spec.user}),
        models=len({job.spec.model for job in jobs if job.spec.model}),
        span_s=span_s(trace),
        gpu_hours=sum(map(gpu_hours_of, jobs)),
        gpus=gpus,
        load=None if gpus is None else offered_load(trace, gpus=gpus),
        duration_s=durations(ending),
        sizes=sizes(jobs),
        vcs=vcs(jobs),
        uses=uses(trace),
        dropped=dict(trace.dropped),
    )


def gpus_of(job: TraceJob) -> float:
    """Requested GPUs; a fraction if the job shares one."""
    return sum(role.count * role.gpus * role.gpu_milli for role in job.spec.shapes[0].roles) / 1000


def is_shared(job: TraceJob) -> bool:
    return any(role.gpus and role.gpu_milli < 1000 for role in job.spec.shapes[0].roles)


def gpu_hours_of(job: TraceJob) -> float:
    """0 for a job that never ends: it would dominate all others."""
    return gpus_of(job) * job.work_s / 3600 if job.work_s < math.inf else 0.0


def span_s(trace: Trace) -> float:
    return trace.jobs[-1].submit_s - trace.jobs[0].submit_s if trace.jobs else 0.0


def offered_load(trace: Trace, *, gpus: int) -> float | None:
    """Requested GPU-seconds ÷ available GPU-seconds while jobs arrive; None if all arrive at once."""
    there = gpus * span_s(trace)
    return sum(map(gpu_hours_of, trace.jobs)) * 3600 / there if there else None


def durations(jobs: list[TraceJob]) -> dict[str, float]:
    """Quantiles (the smallest value with at least this share at or below it) and the mean."""
    if not jobs:
        return {}
    ordered = sorted(job.work_s for job in jobs)
    found = {name: quantile(ordered, share) for name, share in QUANTILES.items()}
    return found | {"mean": sum(ordered) / len(ordered)}


def quantile(ordered: list[float], share: float) -> float:
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def sizes(jobs: Iterable[TraceJob]) -> list[StatsPart]:
    """By requested GPUs, smallest first; all parts of a GPU are one size."""
    groups: dict[tuple[int, str], list[TraceJob]] = {}
    for job in jobs:
        groups.setdefault(_size(job), []).append(job)
    return [_part(name, group) for (_, name), group in sorted(groups.items())]


def _size(job: TraceJob) -> tuple[int, str]:
    gpus = job.spec.shapes[0].gpus
    if not gpus:
        return -1, "CPU only"
    return (0, "shared") if is_shared(job) else (gpus, str(gpus))


def vcs(jobs: Iterable[TraceJob]) -> list[StatsPart]:
    groups: dict[str, list[TraceJob]] = {}
    for job in jobs:
        groups.setdefault(job.spec.vc, []).append(job)
    parts = [_part(name, group) for name, group in groups.items()]
    return sorted(parts, key=lambda part: (-part.gpu_hours, -part.jobs, part.name))


def _part(name: str, jobs: list[TraceJob]) -> StatsPart:
    return StatsPart(name=name, jobs=len(jobs), gpu_hours=sum(map(gpu_hours_of, jobs)))
