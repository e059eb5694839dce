"""Turns that are played one by one bring jobs where the closed form says they are, within one turn."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import cluster, job, trace
from worlds import examples

from skep.core.actions import Action, Launch, Resume, Stop, Suspend
from skep.core.cluster import WHOLE, Allocation, Slice
from skep.core.events import TasksExited
from skep.engines.sim.engine import Simulator
from skep.engines.sim.rates import Slices
from skep.profiles.sharing import Costs

TWO = Allocation((Slice(0, 0b11, tasks=2),), 2)
SWITCH_S = 0.25


class Member(NamedTuple):
    weight: int
    work_s: float


class Step(NamedTuple):
    """After so many seconds a member stands still, or goes on."""

    wait_s: float
    member: int


def terms(weight: int, quantum_ms: int) -> Allocation:
    return TWO.on_terms(mode="slice", milli=0, limit=WHOLE, group="g", weight=weight, quantum_ms=quantum_ms)


class Run:
    """A share group in a simulator."""

    def __init__(self, members: list[Member], quantum_ms: int, slices: Slices) -> None:
        jobs = trace(*(job(2, work=member.work_s, id=f"j{number}") for number, member in enumerate(members))).jobs
        costs = Costs(switch_s=SWITCH_S)
        self.simulator = Simulator(jobs, cluster("1x2"), restart_s=0.0, costs=costs, slices=slices)
        self.simulator.observe(math.inf)
        starts = [Launch(f"j{number}", terms(each.weight, quantum_ms), 1) for number, each in enumerate(members)]
        self.at_s = 0.0
        self.act(*starts)

    def act(self, *actions: Action) -> None:
        self.simulator.execute(self.at_s, list(actions))

    def wait(self, until_s: float) -> None:
        while True:
            batch = self.simulator.observe(until_s)
            if batch is None or batch.at_s >= until_s:
                break
        self.at_s = until_s

    def works(self) -> list[float]:
        return [task.work_at(self.at_s) for task in self.simulator.tasks.values()]


MEMBERS = st.lists(st.builds(Member, st.integers(1, 4), st.just(math.inf)), min_size=1, max_size=5)


@examples(60)
@given(MEMBERS, st.integers(500, 3000), st.floats(0.1, 300))
def test_both_agree_within_one_turn(members: list[Member], quantum_ms: int, until_s: float) -> None:
    exact, closed = Run(members, quantum_ms, "exact"), Run(members, quantum_ms, "rate")
    exact.wait(until_s)
    closed.wait(until_s)
    for member, one, other in zip(members, exact.works(), closed.works(), strict=True):
        assert one == pytest.approx(other, abs=member.weight * quantum_ms / 1000 + SWITCH_S)


@examples(40)
@given(MEMBERS, st.integers(500, 3000), st.lists(st.builds(Step, st.floats(0.1, 60), st.integers(0, 4)), max_size=6))
def test_both_agree_within_a_turn_for_each_change(members: list[Member], quantum_ms: int, steps: list[Step]) -> None:
    """Whenever a member stands still or goes on, a round is cut short."""
    exact, closed = Run(members, quantum_ms, "exact"), Run(members, quantum_ms, "rate")
    still: set[str] = set()
    for step in steps:
        name = f"j{step.member % len(members)}"
        for run in (exact, closed):
            run.wait(run.at_s + step.wait_s)
            run.act(Resume(name, 1) if name in still else Suspend(name, 1))
        still ^= {name}
    turn_s = max(member.weight for member in members) * quantum_ms / 1000 + SWITCH_S
    for one, other in zip(exact.works(), closed.works(), strict=True):
        assert one == pytest.approx(other, abs=turn_s * (len(steps) + 1))


def test_a_turn_is_nothing_that_anybody_is_told() -> None:
    run = Run([Member(1, 10.0), Member(3, 10.0)], 1000, "exact")
    ended = []
    while (batch := run.simulator.observe(math.inf)) is not None:
        ended += [(event.job_id, batch.at_s) for event in batch.events if isinstance(event, TasksExited)]
        assert any(isinstance(event, TasksExited) for event in batch.events)
    # A has its first turn at once. In each round of 4 s it gets on by 0.75 s and B by 2.75 s: B has 8.25 s after three
    # rounds and ends within the fourth, at 13 + 0.25 + 1.75. A has 3.25 s by then, 0.25 s less than four whole turns.
    assert ended == [("j1", pytest.approx(15.0)), ("j0", pytest.approx(15.0 + 10 - 3.25))]


def test_the_turn_of_one_that_leaves_goes_to_the_next() -> None:
    run = Run([Member(1, math.inf), Member(1, math.inf)], 2000, "exact")
    run.wait(1.0)
    run.act(Stop("j0", "", 1))
    run.wait(5.0)
    assert run.works() == [1.0, 4.0]
