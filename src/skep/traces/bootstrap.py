"""Bootstraps of a trace: as many of its weeks as it has, drawn with replacement, one behind the other.

Whole weeks keep what makes queues: bursts, nights, users who submit much at once. Traces of less than four weeks are
drawn by days, shorter ones by hours; if even those are too few, each job is drawn by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from skep.core.chance import draw
from skep.core.group import GroupSpec
from skep.core.model import JobSpec
from skep.traces.trace import Trace, TraceJob

LENGTHS_S = {"week": 7 * 86400.0, "day": 86400.0, "hour": 3600.0}
JOB = "job"
BLOCKS_LEAST = 4
"""With fewer blocks the draws would be nearly the same."""


class Blocks(msgspec.Struct, frozen=True):
    """How a trace is cut."""

    name: str
    count: int


def blocks_of(trace: Trace) -> Blocks:
    """The longest blocks of which the trace has enough."""
    span_s = trace.jobs[-1].submit_s - trace.jobs[0].submit_s
    for name, length_s in LENGTHS_S.items():
        count = round(span_s / length_s)
        if count >= BLOCKS_LEAST:
            return Blocks(name, count)
    return Blocks(JOB, len(trace.jobs))


def bootstrap(trace: Trace, blocks: Blocks, number: int) -> Trace:
    """The draw of this number; always the same one."""
    if blocks.name == JOB:
        piles = [[job] for job in trace.jobs]
        drawn = sorted(draw(number, place) % len(piles) for place in range(len(piles)))
        moved = [copied(job, place, 0.0) for place, index in enumerate(drawn) for job in piles[index]]
    else:
        start_s, length_s = trace.jobs[0].submit_s, length_of(trace, blocks)
        piles = cut(trace.jobs, start_s, length_s, blocks.count)
        drawn = [draw(number, place) % blocks.count for place in range(blocks.count)]
        moved = [
            copied(job, place, (place - index) * length_s) for place, index in enumerate(drawn) for job in piles[index]
        ]
    if not moved:  # of the blocks that were drawn, all were empty
        return trace
    jobs = sorted(with_own_needs(moved), key=lambda job: job.submit_s)
    return replace(trace, jobs=jobs, groups=groups_of(trace, jobs))


def length_of(trace: Trace, blocks: Blocks) -> float:
    """Not exactly a week: the blocks share the whole span, so that none is short."""
    return (trace.jobs[-1].submit_s - trace.jobs[0].submit_s) / blocks.count


def cut(jobs: Iterable[TraceJob], start_s: float, length_s: float, count: int) -> list[list[TraceJob]]:
    piles: list[list[TraceJob]] = [[] for _ in range(count)]
    for job in jobs:
        piles[min(int((job.submit_s - start_s) / length_s), count - 1)].append(job)
    return piles


def copied(job: TraceJob, place: int, later_s: float) -> TraceJob:
    """Copies of one job must not be one job, nor their groups one group: names within a block get its place."""
    spec = job.spec
    named = replace(
        spec,
        id=f"{spec.id}/{place}",
        needs=tuple(f"{name}/{place}" for name in spec.needs),
        needs_groups=tuple(f"{name}/{place}" for name in spec.needs_groups),
        group=spec.group and replace(spec.group, id=f"{spec.group.id}/{place}"),
    )
    return replace(job, submit_s=job.submit_s + later_s, spec=named)


def with_own_needs(jobs: list[TraceJob]) -> list[TraceJob]:
    """A job that needs one of another block would never start: that need is removed."""
    if not any(job.spec.needs or job.spec.needs_groups for job in jobs):
        return jobs
    present = {job.spec.id for job in jobs}
    groups = {job.spec.group.id for job in jobs if job.spec.group is not None}
    return [replace(job, spec=needing(job.spec, present, groups)) for job in jobs]


def needing(spec: JobSpec, jobs: set[str], groups: set[str]) -> JobSpec:
    return replace(
        spec,
        needs=tuple(name for name in spec.needs if name in jobs),
        needs_groups=tuple(name for name in spec.needs_groups if name in groups),
    )


def groups_of(trace: Trace, jobs: list[TraceJob]) -> tuple[GroupSpec, ...]:
    """What is known of a group holds for each of its copies."""
    known = {group.id: group for group in trace.groups}
    ids = dict.fromkeys(job.spec.group.id for job in jobs if job.spec.group is not None) if known else {}
    found = ((name, known.get(name.rpartition("/")[0])) for name in ids)
    return tuple(replace(group, id=name) for name, group in found if group is not None)
