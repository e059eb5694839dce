"""EASY backfilling: the job at the head of the line gets a reservation; other jobs may start first if they do not delay
it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

from skep.core.cluster import Allocation
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.estimate.duration import Duration
from skep.policies.lines import Line
from skep.policies.place import Place
from skep.policies.running import Running

Freed = list[tuple[float, JobView]]
"""When running jobs are expected to release their allocations."""


def backfill(
    view: View, plan: Plan, place: Place, estimate: Duration, running: Running, line: Line
) -> Iterator[tuple[JobView, Allocation]]:
    """Jobs behind the blocked head that can start now; the caller starts each before it requests the next."""
    if len(line.entries) < 2:
        return
    head = line.entries[0][3]
    freed = expected_ends(view, estimate, running)
    start_s = reserved_start(view, plan, place, head, freed)
    refused: dict[tuple[Shape, ...], set[Hashable]] = {}
    """Requests that do not fit now, with the placement's key: equal requests do not fit either."""
    for entry in list(line.entries[1:]):
        job = entry[3]
        keys = refused.get(job.shapes)
        if keys is not None and place.key(job, view.now_s) in keys:
            continue
        allocation = place.find(view.cluster, plan, job, job.shapes[0], view.now_s)
        if allocation is None:
            refused.setdefault(job.shapes, set()).add(place.key(job, view.now_s))
            continue
        end_s = view.now_s + left_s(job, estimate, view.now_s)
        if end_s <= start_s or keeps_reservation(view, plan, place, head, freed, job, allocation, start_s):
            freed.append((end_s, job))
            yield job, allocation


def left_s(job: JobView, estimate: Duration, now_s: float) -> float:
    return max(estimate.total_s(job) - job.work_at(now_s), 0.0)


def expected_ends(view: View, estimate: Duration, running: Running) -> Freed:
    jobs = [entry[3] for entry in running.entries]
    return [(view.now_s + left_s(job, estimate, view.now_s), job) for job in jobs if job.allocation is not None]


def reserved_start(view: View, plan: Plan, place: Place, head: JobView, freed: Freed) -> float:
    """When the head can start if all running jobs end as expected; `inf` if that is unknown."""
    mark = plan.mark()
    start_s = math.inf
    for end_s, job in sorted(freed, key=lambda item: item[0]):
        if end_s == math.inf:
            break
        plan.vacate(job)
        if place.find(view.cluster, plan, head, head.shapes[0], end_s) is not None:
            start_s = end_s
            break
    plan.rollback(mark)
    return start_s


def keeps_reservation(
    view: View,
    plan: Plan,
    place: Place,
    head: JobView,
    freed: Freed,
    job: JobView,
    taken: Allocation,
    start_s: float,
) -> bool:
    """True if the head still fits at its reserved start although the job keeps this allocation beyond it."""
    if start_s == math.inf:
        return True
    mark = plan.mark()
    plan.start(job, taken)
    for end_s, other in freed:
        if end_s <= start_s:
            plan.vacate(other)
    fits = place.find(view.cluster, plan, head, head.shapes[0], start_s) is not None
    plan.rollback(mark)
    return fits
