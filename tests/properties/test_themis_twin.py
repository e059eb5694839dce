"""Themis against a naive twin: jobs of one GPU, few enough that one app bids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from worlds import examples

LEASE_S = 50.0


class Twin:
    def __init__(self, seq: int, submit_s: float, work_s: float) -> None:
        self.seq, self.submit_s, self.work_s, self.left_s = seq, submit_s, work_s, work_s
        self.until_s: float | None = None
        """The end of its lease, while it holds a GPU."""
        self.app_s = 0.0
        self.finish_s: float | None = None

    def rho(self, now_s: float, gpus: int) -> float:
        """As if it got nothing for a lease."""
        age_s = now_s - self.submit_s
        contenders = max(self.app_s / age_s, 1.0) if age_s else 1.0
        ideal_s = self.work_s / min(gpus / contenders, 1)
        return round((age_s + LEASE_S + self.left_s) / ideal_s, 9)


def go(jobs: list[Twin], gpus: int) -> None:
    now_s = 0.0
    while any(one.finish_s is None for one in jobs):
        there = [one for one in jobs if one.submit_s <= now_s and one.finish_s is None]
        decide(there, gpus, now_s)
        running = [one for one in there if one.until_s is not None]
        waiting = [one for one in there if one.until_s is None]
        next_s = [one.submit_s for one in jobs if one.submit_s > now_s] + [now_s + one.left_s for one in running]
        if waiting:
            next_s += [one.until_s for one in running if one.until_s is not None and one.until_s > now_s]
        later_s = min(next_s)
        for one in there:
            one.app_s += len(there) * (later_s - now_s)
        for one in running:
            one.left_s -= later_s - now_s
            if one.left_s <= 1e-9:
                one.finish_s, one.until_s = later_s, None
        now_s = later_s


def decide(there: list[Twin], gpus: int, now_s: float) -> None:
    waiting = [one for one in there if one.until_s is None]
    expired = [one for one in there if one.until_s is not None and one.until_s <= now_s]
    free = gpus - sum(one.until_s is not None for one in there)
    order = sorted([*waiting, *expired], key=lambda one: (-one.rho(now_s, gpus), one.seq))
    lost: set[int] = set()
    for one in order if waiting else ():
        if one in expired:
            if one.seq not in lost:
                one.until_s = now_s + LEASE_S
            continue
        victims = [
            each for each in order[::-1] if each in expired and each.seq not in lost and each.until_s != now_s + LEASE_S
        ]
        if free:
            free -= 1
        elif victims:
            victims[0].until_s = None
            lost.add(victims[0].seq)
        else:
            continue
        one.until_s = now_s + LEASE_S


ROWS = st.tuples(st.integers(0, 300), st.integers(1, 300))


@examples(80)
@given(st.lists(ROWS, min_size=1, max_size=5), st.integers(1, 3))
def test_leases_go_to_the_worst_treated(rows: list[tuple[int, int]], gpus: int) -> None:
    rows.sort()
    twins = [Twin(seq, float(submit), float(work)) for seq, (submit, work) in enumerate(rows)]
    go(twins, gpus)
    entries = [job(1, at=float(submit), work=float(work)) for submit, work in rows]
    course = World(trace(*entries), cluster(f"1x{gpus}"), f"themis:lease={LEASE_S:g}").run()
    assert [row.finish_s for row in course.rows()] == pytest.approx([one.finish_s for one in twins], abs=1e-6)
