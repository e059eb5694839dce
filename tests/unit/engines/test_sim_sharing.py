"""Jobs that share GPUs in the simulator: what they are told of their speed and their share."""

from __future__ import annotations

import math

import pytest
from tests.support import cluster, job, trace

from skep.core.actions import Launch, Reshare, Resume, Stop, Suspend
from skep.core.cluster import WHOLE, Allocation, Slice
from skep.core.events import Event, ProgressReported, TasksExited, TasksResumed, TasksStarted
from skep.engines.sim.engine import Simulator
from skep.profiles.sharing import Costs

TWO = Allocation((Slice(0, 0b11, tasks=2),), 2)
FREE = Costs(switch_s=0.0)


def turns(weight: int = 1) -> Allocation:
    return TWO.on_terms(mode="slice", milli=0, limit=WHOLE, group="g", weight=weight, quantum_ms=1000)


def simulator(*works: float, costs: Costs = FREE) -> Simulator:
    jobs = trace(*(job(2, work=work, id=f"j{number}") for number, work in enumerate(works))).jobs
    made = Simulator(jobs, cluster("1x2"), restart_s=0.0, costs=costs)
    made.observe(math.inf)
    return made


def told(events: list[Event]) -> list[tuple[str, float | None, float | None]]:
    kinds = (TasksStarted, TasksResumed, ProgressReported)
    return [(event.job_id, event.rate, event.share) for event in events if isinstance(event, kinds)]


def test_a_job_that_is_joined_is_told_its_new_speed_and_share() -> None:
    made = simulator(100, 100)
    assert told(made.execute(0, [Launch("j0", TWO, 1)])) == [("j0", 1, None)]
    events = made.execute(20, [Reshare("j0", 1, turns()), Launch("j1", turns(3), 1)])
    assert told(events) == [("j0", 1, 1), ("j1", 0.75, 0.75), ("j0", 0.25, 0.25)]
    batch = made.observe(math.inf)
    assert batch is not None
    assert batch.at_s == pytest.approx(20 + 100 / 0.75)
    assert isinstance(batch.events[0], TasksExited)
    assert told(batch.events) == [("j0", 1, 1)]
    assert made.observe(math.inf).at_s == pytest.approx(200)  # type: ignore[union-attr]


def test_a_member_that_stands_still_has_no_turn() -> None:
    made = simulator(100, 100)
    made.execute(0, [Launch("j0", turns(), 1), Launch("j1", turns(), 1)])
    assert told(made.execute(10, [Suspend("j1", 1)])) == [("j0", 1, 1)]
    assert told(made.execute(20, [Resume("j1", 1)])) == [("j1", 0.5, 0.5), ("j0", 0.5, 0.5)]
    assert told(made.execute(30, [Stop("j1", "", 1)])) == [("j0", 1, 1)]


def test_one_that_has_its_gpus_to_itself_again_is_told_so() -> None:
    made = simulator(100, 100)
    made.execute(0, [Launch("j0", turns(), 1), Launch("j1", turns(), 1)])
    made.execute(10, [Stop("j1", "", 1)])
    assert told(made.execute(10, [Reshare("j0", 1, TWO)])) == [("j0", 1, None)]
    assert told(made.execute(10, [Launch("j1", Allocation((Slice(0, 0),), 0), 2)])) == [("j1", 1, None)]


def test_a_switch_costs_once_in_every_turn() -> None:
    made = simulator(100, 100, costs=Costs(switch_s=0.1))
    events = made.execute(0, [Launch("j0", turns(), 1), Launch("j1", turns(), 1)])
    assert told(events)[-1] == ("j0", pytest.approx(0.45), 0.5)
