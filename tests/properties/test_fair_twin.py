"""Gandiva_fair against a naive twin: one GPU, all users, quantum by quantum."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from worlds import examples

QUANTUM = 60


def twin(users: list[int], works: list[int]) -> list[int]:
    """When each job ends, in quanta; all are there from the beginning, and every work is whole quanta."""
    passes = [Fraction(0)] * len(users)
    left, ends, now = list(works), [0] * len(users), 0
    while any(left):
        there = [at for at, each in enumerate(left) if each]
        active = {users[at] for at in there}
        best = min(there, key=lambda at: (passes[at], at))
        jobs = sum(users[at] == users[best] for at in there)
        passes[best] += Fraction(len(active) * jobs)
        left[best] -= 1
        now += 1
        if not left[best]:
            ends[best] = now
    return ends


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), min_size=1, max_size=6))
def test_quanta_go_to_the_smallest_pass(rows: list[tuple[int, int]]) -> None:
    users, works = [user for user, _ in rows], [work for _, work in rows]
    entries = [job(1, work=float(work * QUANTUM), user=f"u{user}") for user, work in rows]
    course = World(trace(*entries), cluster("1x1"), "gandiva-fair").run()
    assert [round((row.finish_s or 0) / QUANTUM) for row in course.rows()] == twin(users, works)
