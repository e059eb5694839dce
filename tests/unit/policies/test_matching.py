"""The matching of AlloX against all schedules, one after the other."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.policies.allocate import matching
from skep.policies.allocate.matching import Spot, first_jobs, match, total_s

SHEET = [[2, 6], [3, 4], [8, 20], [5, 5]]


def brute(times: list[list[float]], free_in_s: list[float]) -> float:
    """The least sum of completion times over all assignments, each machine with its shortest job first."""
    best = float("inf")
    for machines in itertools.product(range(len(free_in_s)), repeat=len(times)):
        total = 0.0
        for machine, at_s in enumerate(free_in_s):
            for time_s in sorted(times[job][machine] for job, where in enumerate(machines) if where == machine):
                at_s += time_s
                total += at_s
        best = min(best, total)
    return best


def test_the_example_of_four_jobs_on_two_machines() -> None:
    spots = match(SHEET, [0.0, 0.0])
    assert total_s(SHEET, [0.0, 0.0], spots) == 25 == brute(SHEET, [0.0, 0.0])


TIMES = st.integers(1, 30).map(float)


@given(st.data())
def test_no_schedule_is_better(data: st.DataObject) -> None:
    machines = data.draw(st.integers(1, 3))
    rows = st.lists(TIMES, min_size=machines, max_size=machines)
    times = data.draw(st.lists(rows, min_size=1, max_size=5))
    free_in_s = data.draw(st.lists(st.integers(0, 20).map(float), min_size=machines, max_size=machines))
    spots = match(times, free_in_s)
    assert total_s(times, free_in_s, spots) == pytest.approx(brute(times, free_in_s))
    held = [spot for spot in spots if spot is not None]
    assert len(set(held)) == len(held) == len(times)


def test_fewer_positions_are_considered_among_many_equal_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [[float(1 + job % 7)] * 4 for job in range(12)]
    exact = total_s(times, [0.0] * 4, match(times, [0.0] * 4))
    monkeypatch.setattr(matching, "EXACT_MAX", 1)
    assert total_s(times, [0.0] * 4, match(times, [0.0] * 4)) == exact


def test_a_job_that_runs_nowhere_has_no_seat() -> None:
    spots = match([[1.0, float("inf")], [float("inf"), float("inf")]], [0.0, 0.0])
    assert spots == [Spot(0, 1), None]
    assert match([], [0.0]) == []
    assert match([[]], []) == [None]


def test_the_furthest_from_the_end_goes_first() -> None:
    assert first_jobs([Spot(0, 1), Spot(0, 3), None, Spot(1, 1)]) == {0: 1, 1: 3}
