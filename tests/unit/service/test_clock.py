"""The logged time: steady whatever is done to the wall clock."""

from __future__ import annotations

import random

import pytest

from skep.service.clock import NEAR_S, SETTLED_S, SLEW, Clock, Mark

DAY_S = 86400.0


class Machine:
    """Its steady clock passes; its wall clock can be set."""

    def __init__(self, steady_s: float = 50.0, wall_s: float = 1e9) -> None:
        self.steady_s = steady_s
        self.set_s = wall_s - steady_s
        self.said: list[str] = []

    def clock(self, mark: Mark | None = None, boot: str = "one") -> Clock:
        return Clock(lambda: self.steady_s + self.set_s, lambda: self.steady_s, boot=boot, mark=mark)

    def run(self, clock: Clock, seconds: float, every_s: float = 10.0) -> float:
        """Ticks for so long; by how much the time was stepped."""
        stepped_s, last_s = 0.0, clock()
        for _ in range(round(seconds / every_s)):
            self.steady_s += every_s
            tick = clock.tick()
            stepped_s += tick.stepped_s
            self.said += tick.texts
            assert tick.at_s >= last_s
            assert tick.at_s - last_s - tick.stepped_s <= every_s * (1 + SLEW) + 1e-6
            last_s = tick.at_s
        return stepped_s


@pytest.mark.parametrize("by_s", [40 * DAY_S, -40 * DAY_S, 3600.0, -3600.0, 10.0])
def test_a_clock_that_is_set_for_a_moment_changes_nothing_but_is_told(by_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.run(clock, 100)
    machine.set_s += by_s
    assert machine.run(clock, 30) == 0.0
    assert clock.steps == 1
    assert ("ahead" if by_s > 0 else "behind") in clock.problem
    machine.set_s -= by_s
    machine.run(clock, 100)
    assert clock() == pytest.approx(1e9 + 230, abs=0.01)
    assert clock.problem == ""
    assert [text.partition(":")[0] for text in machine.said][1:] == ["the wall clock agrees again"]
    assert clock.old_before(DAY_S) == pytest.approx(clock() - DAY_S)


def test_a_clock_that_stays_ahead_is_believed_by_one_step_that_makes_nothing_old() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.set_s += 40 * DAY_S
    assert machine.run(clock, SETTLED_S - 20) == 0.0
    assert machine.run(clock, 40) == pytest.approx(40 * DAY_S, abs=1)
    assert clock() == pytest.approx(machine.steady_s + machine.set_s, abs=1)
    assert clock.problem == ""
    assert clock.old_before(30 * DAY_S) == pytest.approx(clock() - 70 * DAY_S, abs=1)
    machine.run(clock, 71 * DAY_S, every_s=3600)
    assert clock.old_before(30 * DAY_S) == pytest.approx(clock() - 30 * DAY_S, abs=1)


def test_a_clock_that_stays_behind_is_met_slowly() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.set_s -= 60.0
    assert machine.run(clock, SETTLED_S + 7000) == 0.0
    assert clock.problem == ""
    assert clock.steps == 1
    assert abs(clock() - machine.steady_s - machine.set_s) <= NEAR_S


def test_a_little_drift_is_followed_silently() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.set_s += 1.5
    machine.run(clock, 300)
    assert clock() == pytest.approx(machine.steady_s + machine.set_s, abs=0.01)
    assert not machine.said


def test_a_restart_in_the_same_boot_does_not_ask_the_wall_clock() -> None:
    machine = Machine()
    mark = machine.clock().mark()
    machine.steady_s += 500
    machine.set_s += 40 * DAY_S
    clock = machine.clock(mark)
    assert clock() == pytest.approx(1e9 + 500)
    machine.run(clock, 10)
    assert clock.steps == 1


@pytest.mark.parametrize(
    ("gap_s", "unseen_s"), [(3600.0, 0.0), (40 * DAY_S, 40 * DAY_S), (-40 * DAY_S, 0.0)], ids=["hour", "days", "back"]
)
def test_after_another_boot_the_wall_clock_is_asked(gap_s: float, unseen_s: float) -> None:
    machine = Machine()
    mark = machine.clock().mark()
    later = Machine(steady_s=1.0, wall_s=1e9 + gap_s)
    clock = later.clock(mark, boot="two")
    assert clock() == pytest.approx(1e9 + max(gap_s, 0.0))
    assert clock.old_before(DAY_S) == pytest.approx(clock() - DAY_S - unseen_s)


@pytest.mark.parametrize("seed", range(20))
def test_it_never_goes_back_nor_faster_than_time(seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine()
    clock = machine.clock()
    for _ in range(40):
        if chance.random() < 0.2:
            machine.set_s += chance.choice((-1, 1)) * 10 ** chance.uniform(-1, 7)
        machine.run(clock, chance.choice((10, 100, 700)), every_s=chance.choice((1.0, 2.5, 10.0)))
