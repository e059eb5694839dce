"""EASY backfilling: the head of the line gets a reservation, others may go first only if they do not delay it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from skep.core.cluster import Allocation
from skep.core.job import Job
from skep.core.model import Shape
from skep.core.state import State
from skep.policies.estimate.duration import Duration
from skep.policies.lines import Line, Running
from skep.policies.place import Place

Freed = list[tuple[float, Allocation]]
"""What running jobs will give back, and when."""


def backfill(
    view: State, place: Place, estimate: Duration, running: Running, line: Line
) -> Iterator[tuple[Job, Allocation]]:
    """Jobs behind the blocked head that can start now; whoever iterates starts each before asking for the next."""
    if len(line.entries) < 2:
        return
    head = line.entries[0][3]
    freed = expected_ends(view, estimate, running)
    start_s = reserved_start(view, place, head, freed)
    refused: dict[tuple[Shape, ...], set[int]] = {}
    """Requests that do not fit now, with the placement's key: those of a like request do not either."""
    for entry in list(line.entries[1:]):
        job = entry[3]
        keys = refused.get(job.spec.shapes)
        if keys is not None and place.key(job, view.now_s) in keys:
            continue
        allocation = place.find(view.cluster, job, job.spec.shapes[0], view.now_s)
        if allocation is None:
            refused.setdefault(job.spec.shapes, set()).add(place.key(job, view.now_s))
            continue
        end_s = view.now_s + left_s(job, estimate, view.now_s)
        if end_s <= start_s or keeps_reservation(view, place, head, freed, allocation, start_s):
            freed.append((end_s, allocation))
            yield job, allocation


def left_s(job: Job, estimate: Duration, now_s: float) -> float:
    return max(estimate.total_s(job) - job.work_at(now_s), 0.0)


def expected_ends(view: State, estimate: Duration, running: Running) -> Freed:
    jobs = [entry[3] for entry in running.entries]
    return [
        (view.now_s + left_s(job, estimate, view.now_s), job.allocation) for job in jobs if job.allocation is not None
    ]


def reserved_start(view: State, place: Place, head: Job, freed: Freed) -> float:
    """When the head can start if everybody ends as expected; `inf` if nobody knows."""
    given: list[Allocation] = []
    start_s = math.inf
    for end_s, allocation in sorted(freed, key=lambda item: item[0]):
        if end_s == math.inf:
            break
        view.cluster.give(allocation)
        given.append(allocation)
        if place.find(view.cluster, head, head.spec.shapes[0], end_s) is not None:
            start_s = end_s
            break
    for allocation in reversed(given):
        view.cluster.take(allocation)
    return start_s


def keeps_reservation(view: State, place: Place, head: Job, freed: Freed, taken: Allocation, start_s: float) -> bool:
    """Whether the head still fits at its reserved start although this allocation is held beyond it."""
    if start_s == math.inf:
        return True
    cluster = view.cluster
    given = [allocation for end_s, allocation in freed if end_s <= start_s]
    cluster.take(taken)
    for allocation in given:
        cluster.give(allocation)
    fits = place.find(cluster, head, head.spec.shapes[0], start_s) is not None
    for allocation in reversed(given):
        cluster.take(allocation)
    cluster.give(taken)
    return fits
