"""Actions for the difference between wanted and seen: which, in which order, and what must wait."""

from __future__ import annotations

import pytest
from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.actions import Launch, Move, Resume, Stop, Suspend
from skep.core.events import Exit, TasksExited, TasksMoved, TasksSuspended
from skep.core.orders import in_flight


@pytest.fixture
def world() -> ByHand:
    """Job `a` runs on GPU 0 of node 0, `b` on GPU 1 of it; `c` is pending."""
    world = ByHand(job(id="a"), job(id="b"), job(id="c"))
    world.start("a", gpus(0, 0b01))
    world.start("b", gpus(0, 0b10))
    return world


def test_a_launch_waits_until_the_last_job_has_left_its_cells(world: ByHand) -> None:
    a, c = world["a"], world["c"]
    actions = world.decide(lambda plan: plan.stop(a, "c"), lambda plan: plan.start(c, gpus(0, 0b01)))
    assert [type(action) for action in actions] == [Stop]
    assert world.state.send() == []
    world.apply(TasksExited("a", Exit.PREEMPTED, 0.0))
    (launch,) = world.state.send()
    assert isinstance(launch, Launch)
    assert (launch.job_id, launch.launch) == ("c", 1)


def test_a_launch_waits_for_a_job_that_moves_away(world: ByHand) -> None:
    a, c = world["a"], world["c"]
    actions = world.decide(lambda plan: plan.move(a, gpus(1, 0b1)), lambda plan: plan.start(c, gpus(0, 0b01)))
    assert [type(action) for action in actions] == [Move]
    (move,) = actions
    assert isinstance(move, Move)
    world.apply(TasksMoved("a", gpus(1, 0b1), 0.0, 1.0, 0.0, move.launch))
    assert [action.job_id for action in world.state.send()] == ["c"]


def test_a_suspension_comes_before_what_uses_the_compute(world: ByHand) -> None:
    a, c = world["a"], world["c"]
    actions = world.decide(lambda plan: plan.suspend(a, "resident"), lambda plan: plan.start(c, gpus(0, 0b01)))
    assert [type(action) for action in actions] == [Suspend]
    world.apply(TasksSuspended("a", 0.0))
    assert [type(action) for action in world.state.send()] == [Launch]


def test_the_action_in_flight_is_the_last_one_without_an_answer(world: ByHand) -> None:
    assert in_flight(world.state, world["a"]) is None
    world.decide(lambda plan: plan.stop(world["a"], "c"))
    assert isinstance(in_flight(world.state, world["a"]), Stop)
    world.suspend("b")
    world.apply(TasksSuspended("b", 0.0))
    assert in_flight(world.state, world["b"]) is None
    world.decide(lambda plan: plan.resume(world["b"]))
    assert isinstance(in_flight(world.state, world["b"]), Resume)
