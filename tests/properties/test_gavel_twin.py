"""Gavel's rounds against a naive twin: equal jobs of one GPU on GPUs of one type, so that the shares of an answer are
known. The twin looks at every boundary of a round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from worlds import examples

ROUND_S = 60.0
TURN_S, HEAD_S = 2 * ROUND_S, 40 * ROUND_S
ANSWER_S = ROUND_S * 16 / 3


class Twin:
    def __init__(self, seq: int, submit_s: float, work_s: float) -> None:
        self.seq, self.submit_s, self.left_s = seq, submit_s, work_s
        self.runs = False
        self.got_s = 0.0
        """Since the answer in force."""
        self.finish_s: float | None = None


def go(jobs: list[Twin], gpus: int) -> None:
    now_s, answer, at_s = 0.0, set[int](), -1.0
    begun_s = 0.0
    """The first round of the answer."""
    is_new = False
    while any(one.finish_s is None for one in jobs):
        there = [one for one in jobs if one.submit_s <= now_s and one.finish_s is None]
        seqs, ran = {one.seq for one in there}, [one for one in there if one.runs]
        if there and seqs != answer and (at_s < 0 or now_s - at_s >= ANSWER_S or not ran):
            answer, at_s, is_new = seqs, now_s, True
        if is_new:
            begun_s, is_new = now_s, False
            for one in jobs:
                one.got_s = 0.0
        decide(there, answer, gpus, now_s - begun_s)
        if ran and not any(one.runs for one in ran) and seqs != answer and at_s < now_s:
            answer, at_s, is_new = seqs, now_s, True  # all are replaced: for a moment nothing runs
        for one in there:
            if one.runs:
                ran_s = min(one.left_s, ROUND_S)
                one.left_s -= ran_s
                one.got_s += ran_s
                if not one.left_s:
                    one.finish_s, one.runs = now_s + ran_s, False
        now_s += ROUND_S


def decide(there: list[Twin], answer: set[int], gpus: int, passed_s: float) -> None:
    """Those of the answer by how far they are behind their share, one that runs by a turn more; then the others, those
    that run first."""
    share = round(min(gpus / len(answer), 1.0), 6) if answer else 0.0
    owed = [one for one in there if one.seq in answer]
    late_s = {one.seq: share * (passed_s + HEAD_S) - one.got_s + (TURN_S if one.runs else 0.0) for one in owed}
    owed.sort(key=lambda one: (-late_s[one.seq], one.seq))
    others = [one for one in there if one.seq not in answer]
    others.sort(key=lambda one: (not one.runs, one.seq))
    for place, one in enumerate([*owed, *others]):
        one.runs = place < gpus


ROWS = st.tuples(st.integers(0, 1500), st.integers(1, 900))


@pytest.mark.parametrize("policy", ["gavel-las", "gavel-throughput", "gavel-cost", "gavel-hierarchical"])
@examples(40)
@given(rows=st.lists(ROWS, min_size=1, max_size=7), gpus=st.integers(1, 3))
def test_rounds_give_equal_jobs_equal_times(policy: str, rows: list[tuple[int, int]], gpus: int) -> None:
    rows.sort()
    jobs = [job(1, work=float(work_s), at=float(at_s), id=f"j{number}") for number, (at_s, work_s) in enumerate(rows)]
    world = World(trace(*jobs), cluster(f"1x{gpus}"), f"{policy}:round_s={ROUND_S:g}", round_s=ROUND_S)
    twins = [Twin(number, float(at_s), float(work_s)) for number, (at_s, work_s) in enumerate(rows)]
    go(twins, gpus)
    found = {row.job_id: row.finish_s for row in world.run().rows()}
    assert [found[f"j{one.seq}"] for one in twins] == pytest.approx([one.finish_s for one in twins])
