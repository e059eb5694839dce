"""A naive twin of the Gavel policies on two GPU types with a node each: one row for every job, each program given to
HiGHS as it is written in the paper, and rounds that look at every job.

Programs often have many optima, and Gavel takes the middle of them. Where the optimum is not unique, or where a
decision depends on less than a second, the twin stops (`Unclear`): there is no naive answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

ROUND_S = 60.0
TURN_S, HEAD_S = 2 * ROUND_S, 40 * ROUND_S
ANSWER_S = ROUND_S * 16 / 3
JITTER_S = 0.5
NEAR = 3e-6
"""A value that is this near the best one is as good: solvers end there."""

Array = NDArray[np.float64]


class Unclear(Exception):
    """There is more than one right answer."""


class TwinJob:
    def __init__(
        self,
        seq: int,
        submit_s: float,
        work_s: float,
        speeds: tuple[float, float],
        *,
        gpus: int = 1,
        weight: float = 1.0,
        vc: str = "a",
        deadline_s: float = 0.0,
    ) -> None:
        self.seq, self.submit_s, self.work_s, self.speeds = seq, submit_s, work_s, speeds
        self.gpus, self.weight, self.vc, self.deadline_s = gpus, weight, vc, deadline_s
        self.left_s = work_s
        self.here: int | None = None
        self.got_s = [0.0, 0.0]
        """Since the answer in force, on each type."""
        self.share: Array | None = None
        self.alone_s = self.alone_speed = self.alone_work_s = 0.0
        """What its work would have taken on an equal part of the cluster, and up to which work that is counted."""
        self.finish_s: float | None = None


class Program:
    """Shares of time within the limits of jobs and types; `level` is one more variable."""

    def __init__(self, jobs: list[TwinJob], widths: tuple[int, int]) -> None:
        self.count = 2 * len(jobs) + 1
        self.rows: list[Array] = []
        self.most: list[float] = []
        for at in range(len(jobs)):
            self.limit({2 * at: 1.0, 2 * at + 1: 1.0}, 1.0)
        for gpu_type in range(2):
            self.limit({2 * at + gpu_type: float(one.gpus) for at, one in enumerate(jobs)}, float(widths[gpu_type]))

    def limit(self, factors: dict[int, float], most: float) -> None:
        row = np.zeros(self.count)
        for at, factor in factors.items():
            row[at] = factor
        self.rows.append(row)
        self.most.append(most)

    def need(self, at: int, speeds: Array, least: float, slope: float = 0.0) -> None:
        """The speed of the job is at least this, and so much more for the level."""
        self.limit({2 * at: -speeds[0], 2 * at + 1: -speeds[1], self.count - 1: slope}, -least)

    def maximum(self, gain: Array) -> Array:
        found = linprog(
            -gain, A_ub=np.array(self.rows), b_ub=self.most, bounds=[(0, 1)] * (self.count - 1) + [(0, None)]
        )
        if found.status != 0:
            raise Unclear(found.message)
        return np.asarray(found.x)

    def best(self, gain: Array) -> Array:
        """The one optimum: the shares, and the level at the end."""
        gain = gain / max(float(np.abs(gain).max()), 1e-12)
        found = self.maximum(gain)
        self.rows.append(-gain)
        self.most.append(NEAR - float(gain @ found))
        direction = np.append(np.cos(np.arange(self.count - 1.0) ** 2), 0.0)
        ends = [self.maximum(direction), self.maximum(-direction)]
        if np.abs(ends[0] - ends[1])[:-1].max() > 2e-4:
            raise Unclear("several optima")
        return found

    def level(self) -> Array:
        return np.append(np.zeros(self.count - 1), 1.0)


Shares = Callable[[list[TwinJob], tuple[int, int], float], Array]
"""Of the jobs at a time, on these GPUs: two for each job, and a level."""


def equal_split(one: TwinJob, widths: tuple[int, int]) -> float:
    return (one.speeds[0] * widths[0] + one.speeds[1] * widths[1]) / sum(widths)


def isolated(one: TwinJob, widths: tuple[int, int], jobs: int) -> float:
    parts = [width / jobs / one.gpus for width in widths]
    return sum(speed * part for speed, part in zip(one.speeds, parts, strict=True)) / max(sum(parts), 1.0)


def levelled(jobs: list[TwinJob], widths: tuple[int, int], factors: list[float]) -> Array:
    """The smallest speed, each times its factor, is largest."""
    program = Program(jobs, widths)
    for at, (one, factor) in enumerate(zip(jobs, factors, strict=True)):
        program.need(at, np.array(one.speeds) * factor, 0.0, 1.0)
    return program.best(program.level())


def las(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> Array:
    return levelled(jobs, widths, [one.gpus / one.weight / equal_split(one, widths) for one in jobs])


def makespan(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> Array:
    return levelled(jobs, widths, [100 / one.left_s for one in jobs])


def ftf(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> Array:
    """The worst ratio by halves."""
    ages = [now_s - one.submit_s for one in jobs]
    alone = [done_alone(one) + one.left_s / isolated(one, widths, len(jobs)) for one in jobs]
    low, high = max(age / total for age, total in zip(ages, alone, strict=True)), 1e6

    def shares(ratio: float) -> Array:
        needs = [one.left_s / (ratio * total - age) for one, total, age in zip(jobs, alone, ages, strict=True)]
        program = Program(jobs, widths)
        for at, (one, need) in enumerate(zip(jobs, needs, strict=True)):
            program.need(at, np.array(one.speeds) / need, 0.0, 1.0)
        return program.maximum(program.level()) if ratio < best_ratio else program.best(program.level())

    best_ratio = np.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if shares(middle)[-1] >= 1 else (middle, high)
    best_ratio = high
    return shares(high)


def done_alone(one: TwinJob) -> float:
    done_s = one.work_s - one.left_s - one.alone_work_s
    return one.alone_s + (done_s / one.alone_speed if one.alone_speed else 0.0)


def rewarded(jobs: list[TwinJob], widths: tuple[int, int], factors: list[Array], needs: dict[int, float]) -> Array:
    """The largest sum of speeds, each relative to the fastest type and times its factor by type."""
    program = Program(jobs, widths)
    for at, least in needs.items():
        program.need(at, np.array(jobs[at].speeds), least)
    program.limit({program.count - 1: 1.0}, 0.0)
    gains = [factor * np.array(one.speeds) / max(one.speeds) for one, factor in zip(jobs, factors, strict=True)]
    return program.best(np.append(np.concatenate(gains), 0.0))


def fifo(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> Array:
    return rewarded(jobs, widths, [np.full(2, float(len(jobs) - at)) for at in range(len(jobs))], {})


def sjf(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> Array:
    return rewarded(jobs, widths, [np.full(2, max(one.speeds) / max(one.left_s, 1.0)) for one in jobs], {})


def throughput(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> Array:
    return rewarded(jobs, widths, [np.ones(2)] * len(jobs), {})


COSTS = (3.0, 1.25)


def cost(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> Array:
    return rewarded(jobs, widths, [1 / np.array(COSTS)] * len(jobs), {})


def cost_slo(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> Array:
    """Deadlines count if all can be met."""
    due_s = {at: one.submit_s + one.deadline_s - now_s for at, one in enumerate(jobs) if one.deadline_s}
    needs = {at: jobs[at].left_s / left_s for at, left_s in due_s.items() if left_s > 0}
    program = Program(jobs, widths)
    for at, need in needs.items():
        program.need(at, np.array(jobs[at].speeds) / need, 0.0, 1.0)
    program.limit({program.count - 1: 1.0}, 1e3)
    reached = program.maximum(program.level())[-1]
    if abs(reached - 1) < 1e-3:
        raise Unclear("the deadlines can just be met")
    return rewarded(jobs, widths, [1 / np.array(COSTS)] * len(jobs), needs if reached > 1 else {})


VC_WEIGHTS = {"a": 1.0, "b": 2.0}


def hierarchical(jobs: list[TwinJob], widths: tuple[int, int], now_s: float, *, inside: str = "fair") -> Array:
    """Levels rise by the weight of the VC until a job cannot gain any more while the others keep theirs."""
    gains = [np.array(one.speeds) * one.gpus / one.weight / equal_split(one, widths) for one in jobs]
    levels, rising = [0.0] * len(jobs), set(range(len(jobs)))

    def program(slopes: dict[int, float]) -> Program:
        found = Program(jobs, widths)
        for at, gain in enumerate(gains):
            found.need(at, gain, levels[at] - 1e-9, slopes.get(at, 0.0))
        return found

    while rising:
        slopes = {}
        for vc, weight in VC_WEIGHTS.items():
            mine = sorted(at for at in rising if jobs[at].vc == vc)[: 1 if inside == "fifo" else None]
            slopes.update({at: weight / len(mine) for at in mine})
        now = program(slopes)
        by = now.maximum(now.level())[-1]
        for at, slope in slopes.items():
            levels[at] += slope * by
        for at in slopes:
            now = program({at: 1.0})
            if now.maximum(now.level())[-1] < 1e-6:
                rising.discard(at)
    now = program({})
    now.limit({now.count - 1: 1.0}, 0.0)
    return now.best(now.level() * 0.0)


def go(jobs: list[TwinJob], widths: tuple[int, int], shares_of: Shares, *, jitter_s: float = JITTER_S) -> float:
    """Up to when the twin knows what happens."""
    now_s, answer, at_s = 0.0, set[int](), -1.0
    while any(one.finish_s is None for one in jobs):
        there = [one for one in jobs if one.submit_s <= now_s and one.finish_s is None]
        seqs = {one.seq for one in there}
        is_idle = not any(one.here is not None for one in there)
        try:
            if there and seqs != answer and (at_s < 0 or now_s - at_s >= ANSWER_S or is_idle):
                answer, at_s = seqs, now_s
                take_answer(jobs, there, widths, shares_of(there, widths, now_s))
            decide(there, widths, now_s - at_s, jitter_s)
        except Unclear:
            return now_s
        for one in there:
            if one.here is not None:
                run(one, one.here, now_s)
        now_s += ROUND_S
    return math.inf


def run(one: TwinJob, gpu_type: int, now_s: float) -> None:
    ran_s = min(one.left_s / one.speeds[gpu_type], ROUND_S)
    one.left_s = max(one.left_s - ran_s * one.speeds[gpu_type], 0.0)
    one.got_s[gpu_type] += ran_s
    if one.left_s < 1e-6:
        one.finish_s, one.here = now_s + ran_s, None


def take_answer(jobs: list[TwinJob], there: list[TwinJob], widths: tuple[int, int], found: Array) -> None:
    for one in jobs:
        one.share, one.got_s = None, [0.0, 0.0]
    for at, one in enumerate(there):
        share = found[2 * at : 2 * at + 2]
        one.share = np.where(share > max(1e-3 * share.max(), 1e-5), share, 0.0)
        one.alone_s, one.alone_work_s = done_alone(one), one.work_s - one.left_s
        one.alone_speed = isolated(one, widths, len(there))


def decide(there: list[TwinJob], widths: tuple[int, int], passed_s: float, jitter_s: float) -> None:
    """Three times, with small changes of what decides: if they matter, the decision is unclear."""
    chosen = [choose(there, widths, passed_s, odd_s) for odd_s in (0.0, jitter_s, -jitter_s)]
    if chosen[0] != chosen[1] or chosen[0] != chosen[2]:
        raise Unclear("a decision on less than a second")
    for one in there:
        one.here = chosen[0].get(one.seq)


def choose(there: list[TwinJob], widths: tuple[int, int], passed_s: float, jitter_s: float) -> dict[int, int]:
    """The type of each job that runs: type by type those that are owed time there, the one that is most behind first;
    then the others, first those that stay, then the fastest."""
    chosen: dict[int, int] = {}
    free = list(widths)

    def admit(order: list[TwinJob], gpu_type: int) -> None:
        for one in order:
            if one.seq not in chosen and one.gpus <= free[gpu_type]:
                chosen[one.seq] = gpu_type
                free[gpu_type] -= one.gpus

    def behind_s(one: TwinJob, gpu_type: int) -> float:
        assert one.share is not None
        turn_s = 0.0 if one.here is None else TURN_S if one.here == gpu_type else -TURN_S
        odd = jitter_s if one.seq % 2 else -jitter_s
        return float(one.share[gpu_type]) * (passed_s + HEAD_S) - one.got_s[gpu_type] + turn_s + odd

    owed = [[one for one in there if one.share is not None and one.share[gpu_type]] for gpu_type in range(2)]
    for gpu_type in range(2):
        admit(sorted(owed[gpu_type], key=lambda one: (-round(behind_s(one, gpu_type), 6), one.seq)), gpu_type)
    others = [[one for one in there if one not in owed[gpu_type]] for gpu_type in range(2)]
    for gpu_type in range(2):
        staying = [one for one in others[gpu_type] if one.here == gpu_type]
        admit(sorted(staying, key=lambda one: (-one.speeds[gpu_type], one.seq)), gpu_type)
    for gpu_type in range(2):
        admit(sorted(others[gpu_type], key=lambda one: (-one.speeds[gpu_type], one.seq)), gpu_type)
    return chosen
