"""Which reports of a job are logged: the first, one a minute, and one as soon as the speed has moved by a tenth."""

from __future__ import annotations

import random

import pytest

from skep.core.history import Spread
from skep.core.progress import EVERY_S, Gauge, Progress, Report, ShareGauge, Tally


def logged(steps: list[float], gauge: Gauge | None = None, every_s: float = 1.0) -> list[float]:
    """The moments at which an entry is made, of a job that is at these steps, second by second."""
    gauge = gauge or Gauge(1)
    found = []
    for number, step in enumerate(steps):
        at_s = number * every_s
        if gauge.add(at_s, step):
            gauge.log(at_s, step)
            found.append(at_s)
    return found


def test_a_steady_job_is_logged_at_first_and_once_a_minute() -> None:
    assert logged([10.0 * second for second in range(200)]) == [0.0, 60.0, 120.0, 180.0]


def test_a_speed_that_moves_by_more_than_a_tenth_is_logged_sooner() -> None:
    steps = [20.0 * second for second in range(80)]
    steps += [steps[-1] + 15.0 * second for second in range(1, 60)]
    gauge = Gauge(1)
    found = logged(steps, gauge)
    assert found[:2] == [0.0, 60.0]
    assert 80 < found[2] <= 110  # before the minute is over
    assert gauge.logged_speed == pytest.approx(15.0, rel=0.1)


def test_one_that_moves_by_less_is_not() -> None:
    steps = [10.0 * second for second in range(100)]
    steps += [steps[-1] + 9.3 * second for second in range(1, 80)]
    assert logged(steps) == [0.0, 60.0, 120.0]


@pytest.mark.parametrize("seed", range(5))
def test_what_jitters_is_not_news(seed: int) -> None:
    """Three steps a second, of which each takes between half and twice its time."""
    chance, steps = random.Random(seed), [0.0]
    while len(steps) < 600:
        steps.append(steps[-1] + chance.choice([2, 3, 3, 4]))
    assert len(logged(steps)) <= 600 / EVERY_S + 2


def test_a_job_of_few_steps_is_logged_once_a_minute() -> None:
    assert logged([float(second // 45) for second in range(300)]) == [0.0, 60.0, 120.0, 180.0, 240.0]


def test_an_older_checkpoint_is_no_negative_speed() -> None:
    gauge = Gauge(1)
    logged([*map(float, range(70)), 5.0, 6.0, 7.0], gauge)
    assert gauge.speed == pytest.approx(1.0)


def test_the_reference_is_the_speed_of_a_minute_in_one_place() -> None:
    gauge = Gauge(1, "alone")
    for second in range(60):
        gauge.add(second, second * 2.0)
    assert gauge.reference(59.0, 118.0) is None
    assert gauge.reference(60.0, 120.0) == 2.0
    gauge.settle("beside another")
    gauge.add(61.0, 122.0)
    assert gauge.reference(100.0, 160.0) is None


def test_what_was_logged_has_its_spread() -> None:
    progress = Progress(0.0, 1, Report(0.0))
    for at_s, speed, loss in ((60.0, 2.0, 5.0), (120.0, 4.0, 3.0)):
        progress.take_in(at_s, 1, Report(at_s, 1000.0, steps_per_s=speed, reference=2.0, series={"loss": loss}))
    assert progress.speed == Spread(2, 3.0, pytest.approx(2**0.5))
    assert progress.spread_of("loss") == Spread(2, 4.0, pytest.approx(2**0.5))
    assert progress.spread_of("noise") is None
    assert progress.done_at(work_s=100.0) == 0.2  # 100 s at two steps a second, of 1000 steps


def test_a_job_without_a_total_does_not_say_which_part_is_done() -> None:
    assert Progress(0.0, 1, Report(5.0)).done_at(10.0) is None
    assert Progress(0.0, 1, Report(5.0, epoch=3.0, epochs=4.0)).done_at(10.0) == 0.75
    assert Progress(0.0, 1, Report(5.0, 10.0)).done_at(999.0) == 0.5  # nobody knows what a second of work is
    assert Tally().spread == Spread(0, 0.0, 0.0)


def test_a_measured_share_is_news_when_it_moves_and_seldom_otherwise() -> None:
    gauge = ShareGauge()
    assert gauge.add(0.0, 0.5)
    heard = [gauge.add(at_s, share) for at_s, share in [(1, 0.52), (2, 0.56), (3, 0.56), (61, 0.561), (63, 0.57)]]
    assert heard == [False, True, False, False, True]
