"""The matching of AlloX: which job runs on which machine in which position, so that completion times add up to the
least.

A job that is the k-th from last on a machine delays k jobs by its own time, itself included. So it costs `k` times its
time there, plus the time until the machine is free, and the cheapest assignment of jobs to (machine, k) is the best
schedule (Horn 1973; Bruno et al. 1974).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from skep.core.errors import InputError

NEVER_S = 1e9
"""Stands for a time that is not known."""
IMPOSSIBLE = 1e15
"""The cost of a machine that cannot run the job."""

EXACT_MAX = 200_000
"""The number of costs up to which every position of every machine is considered."""
SLACK = 4
"""Beyond that, a machine has so many positions more than an equal share of the jobs."""


class Spot(NamedTuple):
    """The machine of a job, and its position there: 1 is the last."""

    machine: int
    position: int


def match(times: Sequence[Sequence[float]], free_in_s: Sequence[float]) -> list[Spot | None]:
    """`times`: seconds of each job on each machine, infinite if it cannot run there; `free_in_s`: when each machine is
    free. Returns the spot of each job; None: it can run on none."""
    if not times or not free_in_s:
        return [None] * len(times)
    try:
        import numpy as np
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise InputError("this policy needs scipy", hint="pip install 'skep[solvers]'") from None
    jobs, machines = len(times), len(free_in_s)
    positions = jobs
    if jobs * jobs * machines > EXACT_MAX:
        positions = min(jobs, -(-jobs // machines) + SLACK)
    each = np.array(times, dtype=float)
    each[~np.isfinite(each)] = IMPOSSIBLE
    counts = np.arange(1, positions + 1, dtype=float)
    costs = each[:, :, None] * counts + np.array(free_in_s, dtype=float)[None, :, None]
    costs[each >= IMPOSSIBLE] = IMPOSSIBLE
    rows, columns = linear_sum_assignment(costs.reshape(jobs, machines * positions))
    found: list[Spot | None] = [None] * jobs
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        machine, position = divmod(column, positions)
        if math.isfinite(times[row][machine]):
            found[row] = Spot(machine, position + 1)
    return in_turn(times, free_in_s, found)


def in_turn(
    times: Sequence[Sequence[float]], free_in_s: Sequence[float], spots: list[Spot | None]
) -> list[Spot | None]:
    """The same schedule, in which equal jobs start in their order."""
    starts_s: dict[Spot, float] = {}
    clock_s = dict(enumerate(free_in_s))
    held = [(spot, job) for job, spot in enumerate(spots) if spot is not None]
    for spot, job in sorted(held, key=lambda each: -each[0].position):
        starts_s[spot] = clock_s[spot.machine]
        clock_s[spot.machine] += times[job][spot.machine]
    equals: dict[tuple[float, ...], list[int]] = {}
    for job, row in enumerate(times):
        if spots[job] is not None:
            equals.setdefault(tuple(row), []).append(job)
    found = list(spots)
    for jobs in equals.values():
        mine = [each for job in jobs if (each := spots[job]) is not None]
        mine.sort(key=lambda each: (starts_s[each], each))
        for job, each in zip(jobs, mine, strict=True):
            found[job] = each
    return found


def total_s(times: Sequence[Sequence[float]], free_in_s: Sequence[float], spots: Sequence[Spot | None]) -> float:
    """The sum of the completion times of the jobs that have a spot."""
    return math.fsum(
        spot.position * times[job][spot.machine] + free_in_s[spot.machine]
        for job, spot in enumerate(spots)
        if spot is not None
    )


def first_jobs(spots: Sequence[Spot | None]) -> dict[int, int]:
    """By machine: the job that goes first there, which is the furthest from the end."""
    found: dict[int, int] = {}
    for job, spot in enumerate(spots):
        if spot is not None:
            before = found.get(spot.machine)
            held = None if before is None else spots[before]
            if held is None or spot.position > held.position:
                found[spot.machine] = job
    return found
