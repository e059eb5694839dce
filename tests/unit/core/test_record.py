"""A recorded plan means the same on another state."""

from __future__ import annotations

from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.events import TasksStarted
from skep.core.job import JobState
from skep.core.memory import Of, Slot
from skep.core.record import Entry, PlanRecord, fold, record, replay
from skep.core.refusal import Cause
from skep.core.snapshot import dump

SLOT = Slot("count", int, Of.JOB)


def world() -> ByHand:
    return ByHand(job(id="a"), job(id="b"), job(id="c"))


def planned(made: ByHand) -> PlanRecord:
    plan = made.state.new_plan()
    with plan.bundle():
        plan.start(made["a"], gpus(0, 0b1))
    plan.wait(made["b"], "line")
    plan.refuse("line", Cause.CAPACITY)
    plan.remember(SLOT, "b", 1)
    plan.remember(SLOT, "b", 2)
    plan.reject(made["c"], "never")
    plan.wake(9.0)
    logged = record(plan)
    made.state.commit(plan)
    return logged


def test_a_replayed_plan_leads_to_the_same_state() -> None:
    first, second = world(), world()
    logged = planned(first)
    second.state.commit(replay(second.state, logged))
    assert dump(second.state) == dump(first.state)


def test_only_the_last_value_of_a_slot_is_recorded() -> None:
    assert [change.value for change in planned(world()).memory] == [2]


def test_an_entry_is_its_events_and_then_its_plans() -> None:
    made = world()
    logged = planned(world())
    fold(made.state, Entry(1.0, [], [logged]))
    assert made["a"].state is JobState.LAUNCHING
    fold(made.state, Entry(2.0, [TasksStarted("a", 1.0, 2.0, 1)], []))
    assert (made["a"].state, made.state.now_s) == (JobState.RUNNING, 2.0)
