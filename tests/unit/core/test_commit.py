"""What a committed plan makes of the state."""

from __future__ import annotations

import math

import pytest
from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.actions import Launch, Limit, Tune
from skep.core.errors import InvariantBroken
from skep.core.job import JobState
from skep.core.refusal import Cause
from skep.core.timers import LEASE


@pytest.fixture
def world() -> ByHand:
    return ByHand(job(id="a"), job(id="b"))


def test_a_start_leaves_the_queue_and_is_launched(world: ByHand) -> None:
    actions = world.decide(lambda plan: plan.start(world["a"], gpus(0, 0b1), until_s=50.0))
    assert [type(action) for action in actions] == [Launch]
    assert world.state.pending_count == 1
    assert (world["a"].bound, world["a"].waiting) == (gpus(0, 0b1), None)
    assert [(timer.kind, timer.at_s) for timer in world.state.timers.all()] == [(LEASE, 50.0)]


def test_a_plan_for_another_version_is_a_bug(world: ByHand) -> None:
    plan = world.state.new_plan()
    world.decide(lambda other: other.wake(5.0))
    with pytest.raises(InvariantBroken, match="version"):
        world.state.commit(plan)


def test_a_plan_without_a_wake_up_takes_the_earlier_one_back(world: ByHand) -> None:
    world.decide(lambda plan: plan.wake(5.0))
    assert world.state.wake_s == 5.0
    world.decide()
    assert world.state.wake_s == math.inf


def test_waiting_and_its_cause_are_booked_by_scope(world: ByHand) -> None:
    world.decide(lambda plan: plan.wait(world["a"], "line"), lambda plan: plan.refuse("line", Cause.QUOTA))
    world.state.now_s = 7.0
    world.decide(lambda plan: plan.refuse("line", Cause.ORDER))
    assert world["a"].waited_for() == (7.0, 0.0)


def test_a_rejected_job_is_over_with_its_reason(world: ByHand) -> None:
    world.decide(lambda plan: plan.reject(world["b"], "too large"))
    assert (world["b"].state, world["b"].reason) == (JobState.UNRUNNABLE, "too large")
    assert world.state.pending_count == 1


def test_a_rejected_job_waits_no_longer(world: ByHand) -> None:
    world.decide(lambda plan: plan.wait(world["a"], "line"), lambda plan: plan.refuse("line", Cause.ORDER))
    world.decide(lambda plan: plan.reject(world["a"], "its nodes have left"))
    assert (world["a"].waiting, world.state.waiting["line"].jobs) == (None, 0)


def test_settings_stay_with_the_job(world: ByHand) -> None:
    world.start("a", gpus(0, 0b1))
    actions = world.decide(lambda plan: plan.limit(world["a"], 300), lambda plan: plan.tune(world["a"], {"batch": 8}))
    assert [type(action) for action in actions] == [Limit, Tune]
    assert (world["a"].limit_milli, world["a"].settings) == (300, {"batch": 8})
    world.decide(lambda plan: plan.tune(world["a"], {"lr": 1}))
    assert world["a"].settings == {"batch": 8, "lr": 1}
