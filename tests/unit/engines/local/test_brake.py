"""Rests of a job on GPUs of a declared speed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.engines.local.brake import REST_S, Brake


def played(speed: float, turns: list[tuple[float, float]]) -> tuple[float, float]:
    """How long it ran, and how long it had its turn."""
    brake, ran_s, had_s = Brake(speed), 0.0, 0.0
    for begin_s, end_s in turns:
        now_s = begin_s
        brake.begin(now_s)
        brake.turn(now_s)
        while now_s < end_s:
            until_s = min(brake.next_s, end_s)
            ran_s += 0.0 if brake.is_resting else until_s - now_s
            now_s = until_s
            brake.turn(now_s)
        brake.end(end_s)
        had_s += end_s - begin_s
    return ran_s, had_s


@pytest.mark.parametrize("speed", [0.05, 0.4, 0.9])
def test_a_job_runs_for_the_declared_part_of_the_time(speed: float) -> None:
    ran_s, had_s = played(speed, [(0.0, 100.0)])
    assert ran_s / had_s == pytest.approx(speed, abs=0.01)


def test_a_job_at_full_speed_never_rests() -> None:
    brake = Brake()
    brake.begin(0.0)
    assert brake.next_s == math.inf
    assert not brake.turn(1000.0)
    assert not brake.is_resting


@given(speed=st.floats(0.1, 0.95), lengths=st.lists(st.floats(0.01, 0.3), min_size=40, max_size=40))
def test_what_it_owes_at_the_end_of_a_turn_it_rests_in_the_next(speed: float, lengths: list[float]) -> None:
    turns = [(float(number), number + length) for number, length in enumerate(lengths)]
    ran_s, had_s = played(speed, turns)
    assert abs(ran_s - speed * had_s) <= 2 * REST_S
