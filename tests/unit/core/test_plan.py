"""A plan is tried on the state and can be taken back."""

from __future__ import annotations

import gc

import pytest
from tests.support import check, cluster, job, snapshot, take_trigger, trace

from skep.core.cluster import Allocation, Slice
from skep.core.errors import InvariantBroken
from skep.core.events import Exit, JobSubmitted, TasksExited, TasksStarted
from skep.core.job import JobState
from skep.core.plan import Decision
from skep.core.state import State

ONE = Allocation((Slice(0, 0b1),), 1)
TWO = Allocation((Slice(0, 0b110, tasks=2),), 2)
OTHER = Allocation((Slice(1, 0b11, tasks=2),), 2)


def state_with(*, running: bool) -> State:
    """Job `a` wants one gpu, `b` two; with `running` both have them."""
    state = State(cluster("2x4"))
    for entry in trace(job(1, id="a"), job(2, id="b")).jobs:
        state.advance(state.now_s, [JobSubmitted(entry.spec)])
    if running:
        plan = state.new_plan()
        plan.start(state.jobs["a"], ONE)
        plan.start(state.jobs["b"], TWO)
        state.commit(plan)
        for action in state.send():
            state.advance(state.now_s, [TasksStarted(action.job_id, 1.0, 0.0)])
    check(state)
    return state


def test_each_decision_is_undone_exactly() -> None:
    state = state_with(running=True)
    a, b = state.jobs["a"], state.jobs["b"]
    plan = state.new_plan()
    stages = []
    for decide in (lambda: plan.stop(a, "b"), lambda: plan.move(b, OTHER)):
        stages.append((plan.mark(), snapshot(state)))
        decide()
    assert [a.state, b.allocation] == [JobState.STOPPING, OTHER]
    assert plan.decisions == [Decision("a", ONE, None, "b"), Decision("b", TWO, OTHER)]
    for mark, before in reversed(stages):
        plan.rollback(mark)
        assert snapshot(state) == before
    assert plan.decisions == []


def test_the_last_decision_is_undone_first() -> None:
    state = state_with(running=True)
    before = snapshot(state)
    plan = state.new_plan()
    plan.stop(state.jobs["a"], "")
    plan.move(state.jobs["b"], Allocation((Slice(0, 0b11, tasks=2),), 2))  # where a was
    plan.rollback(0)
    assert snapshot(state) == before


@pytest.mark.parametrize(
    ("running", "misuse", "says"),
    [
        (True, lambda plan, job: plan.start(job, OTHER), "only a pending job"),
        (False, lambda plan, job: plan.stop(job, ""), "can be stopped"),
        (False, lambda plan, job: plan.move(job, OTHER), "only a running job"),
    ],
)
def test_misuse_is_refused_and_changes_nothing(running: bool, misuse: object, says: str) -> None:
    state = state_with(running=running)
    before = snapshot(state)
    plan = state.new_plan()
    with pytest.raises(InvariantBroken, match=says):
        misuse(plan, state.jobs["b"])
    assert snapshot(state) == before
    assert plan.decisions == []


def test_a_job_that_was_stopped_cannot_be_started_before_it_is_gone() -> None:
    state = state_with(running=True)
    plan = state.new_plan()
    plan.stop(state.jobs["a"], "")
    with pytest.raises(InvariantBroken, match="only a pending job"):
        plan.start(state.jobs["a"], ONE)


def test_cells_that_are_taken_cannot_be_given_again() -> None:
    state = state_with(running=False)
    plan = state.new_plan()
    plan.start(state.jobs["a"], ONE)
    with pytest.raises(InvariantBroken, match="is not free"):
        plan.start(state.jobs["b"], Allocation((Slice(0, 0b11, tasks=2),), 2))


def test_a_job_is_submitted_once() -> None:
    state = state_with(running=False)
    with pytest.raises(InvariantBroken, match="submitted twice"):
        state.advance(state.now_s, [JobSubmitted(state.jobs["a"].spec)])


def test_needs_are_met_by_success_only() -> None:
    state = State(cluster("1x4"))
    for entry in trace(job(id="a"), job(id="b"), job(id="c", needs=("a", "b", "later"))).jobs:
        state.advance(state.now_s, [JobSubmitted(entry.spec)])
    waiting = state.jobs["c"]
    assert waiting.needs_left == 3
    assert waiting not in take_trigger(state).submitted
    plan = state.new_plan()
    plan.start(state.jobs["a"], ONE)
    plan.start(state.jobs["b"], Allocation((Slice(0, 0b10),), 1))
    state.commit(plan)
    for action in state.send():
        state.advance(state.now_s, [TasksStarted(action.job_id, 1.0, 0.0)])
    state.advance(state.now_s, [TasksExited("a", Exit.FINISHED, 100.0)])
    assert waiting.needs_left == 2
    state.advance(state.now_s, [TasksExited("b", Exit.FAILED, 10.0)])
    assert waiting.state is JobState.STOPPED
    assert waiting.reason == "needs b, which ended as failed"
    assert not take_trigger(state).submitted
    check(state)


def test_a_plan_is_gone_when_nobody_has_it() -> None:
    """Simulations run without the garbage collector."""
    state = state_with(running=True)
    plan = state.new_plan()
    a, b = state.jobs["a"], state.jobs["b"]
    plan.vacate(a)
    plan.occupy(a)
    plan.reserve(OTHER)
    plan.release(OTHER)
    plan.stop(a, "b")
    plan.see_as(b, TWO)
    plan.undo_by(lambda: None)
    plan.wake(5.0)
    part = plan.part(lambda books: books)
    part.move(b, OTHER)
    plan.translate(part, 0, part.decisions[0], is_booked=True)
    gc.collect()
    gc.disable()
    try:
        del plan, part
        assert not gc.collect()
    finally:
        gc.enable()


def test_a_question_is_taken_back_like_a_decision() -> None:
    state = state_with(running=False)
    plan = state.new_plan()
    plan.ask(state)
    assert (len(plan.asks), len(plan.memory)) == (1, 1)
    plan.rollback(0)
    assert (plan.asks, plan.memory) == ([], [])
