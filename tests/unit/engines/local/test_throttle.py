"""The duty of an opportunistic job, driven by step times of a job that slows down with it."""

from __future__ import annotations

import pytest

from skep.engines.local.throttle import LEAST, REPORTS, DutyControl


def heard(throttle: DutyControl, reports: int, slowdown: float, alone_s: float = 0.01) -> list[float]:
    """Steps take longer in proportion to the neighbour's duty; the duty after each report."""
    duties = []
    for _ in range(reports):
        duty = throttle.duty(is_busy=True)
        throttle.hear(alone_s * (1 + slowdown * duty), duty)
        duties.append(throttle.duty(is_busy=True))
    return duties


def test_first_the_step_time_alone_is_learned_with_the_neighbour_paused() -> None:
    throttle = DutyControl()
    assert throttle.duty(is_busy=True) == LEAST
    duties = heard(throttle, REPORTS + 1, slowdown=1.0)
    assert duties[:REPORTS] == [0.0] * REPORTS
    assert throttle.alone_s == pytest.approx(0.01)
    assert duties[-1] == LEAST


def test_a_neighbour_that_does_no_harm_gets_all_the_time() -> None:
    throttle = DutyControl()
    assert heard(throttle, 40, slowdown=0.0)[-1] == 1.0


def test_a_neighbour_that_does_harm_is_held_where_steps_take_little_longer() -> None:
    throttle = DutyControl()
    duties = heard(throttle, 200, slowdown=1.0)[50:]
    assert max(duties) <= 0.05 + 0.05 + 1e-9  # the tolerance, and one increase beyond it
    assert min(duties) >= LEAST


def test_while_the_guaranteed_job_is_idle_the_neighbour_has_it_all() -> None:
    throttle = DutyControl()
    heard(throttle, 10, slowdown=1.0)
    assert throttle.duty(is_busy=False) == 1.0


def test_a_job_that_has_become_slower_by_itself_is_learned_anew() -> None:
    throttle = DutyControl()
    heard(throttle, 20, slowdown=0.0)
    heard(throttle, 60, slowdown=0.0, alone_s=0.02)
    assert throttle.alone_s == pytest.approx(0.02)
    assert heard(throttle, 40, slowdown=0.0, alone_s=0.02)[-1] == 1.0


def test_one_slow_report_halves_the_duty() -> None:
    throttle = DutyControl()
    heard(throttle, 40, slowdown=0.0)
    throttle.hear(0.02, 1.0)
    assert throttle.duty(is_busy=True) == 0.5
