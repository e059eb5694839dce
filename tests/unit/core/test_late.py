"""A late plan: each bundle is kept or dropped as a whole, with what goes with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_plan_steps import ONE, OTHER, TWO, commit, state_with

from skep.core.checked import BadPlan
from skep.core.cluster import Allocation, Slice
from skep.core.errors import InvariantBroken
from skep.core.events import Event, Exit, JobHeld, JobSubmitted, NodeJoined, NodeLost, StopRequested, TasksExited
from skep.core.job import JobState
from skep.core.late import Proposal, accept, decode, encode, propose
from skep.core.memory import Of, Slot
from skep.core.nodes import settle_nodes
from skep.core.plan import Plan
from skep.core.record import PlanRecord, record, replay
from skep.core.snapshot import dump, fork, load
from skep.core.state import State
from skep.testing import check, cluster, job, node, snapshot, trace

NOTE = Slot("note", int)
ALL = Slot("all", int, Of.ALL)
FREE = Allocation((Slice(1, 0b1110, tasks=3),), 3)

Make = Callable[[State, Plan], object]


def proposed(state: State, make: Make) -> Proposal:
    """By a planner that follows the log."""
    follower = fork(state)
    before = snapshot(follower)
    plan = follower.new_plan()
    make(follower, plan)
    found = propose(follower, plan)
    assert snapshot(follower) == before, "the plan was taken back"
    return decode(encode(found))


def happen(state: State, *events: Event) -> None:
    for event in events:
        state.apply(event)
    settle_nodes(state)


def submit_c(state: State) -> None:
    happen(state, JobSubmitted(trace(job(3, id="c")).jobs[0].spec))


def swap(state: State, plan: Plan) -> None:
    """`b` makes room for `c`, which needs it; `a` moves by itself."""
    with plan.bundle():
        plan.stop(state.jobs["b"], "c")
        plan.start(state.jobs["c"], Allocation((Slice(0, 0b1110, tasks=3),), 3))
    plan.move(state.jobs["a"], OTHER)
    for name in "abc":
        plan.remember(NOTE, name, 1)
    plan.remember(ALL, "", 1)


def running_with_c() -> State:
    state = state_with(running=True)
    submit_c(state)
    return state


def exits(name: str) -> TasksExited:
    return TasksExited(name, Exit.FINISHED, 1.0)


MEANWHILE: dict[str, tuple[Event, list[str], list[str]]] = {
    "something else happens": (NodeLost("none"), ["b", "c", "a"], ["a", "b", "c"]),
    "a job of the bundle ends": (exits("b"), ["a"], ["a"]),
    "the job that was to start is held": (JobHeld("c", "wait"), ["a"], ["a"]),
    "the job that stands alone ends": (exits("a"), ["b", "c"], ["b", "c"]),
    "an owner stops the job that makes room": (StopRequested("b", "enough"), ["a"], ["a"]),
    "the place of the move is lost": (NodeLost("n1"), ["b", "c"], ["b", "c"]),
}


@pytest.mark.parametrize(("event", "kept", "remembered"), MEANWHILE.values(), ids=MEANWHILE)
def test_bundles_are_kept_or_dropped_as_a_whole(event: Event, kept: list[str], remembered: list[str]) -> None:
    state = running_with_c()
    proposal = proposed(state, swap)
    happen(state, event if event != NodeLost("none") else JobSubmitted(trace(job(1, id="d")).jobs[0].spec))
    plan = accept(state, proposal)
    assert [each.job_id for each in plan.decisions] == kept
    assert (plan.dropped, state.dropped_count, state.late_count) == (3 - len(kept), 3 - len(kept), 1)
    assert sorted(name for name in "abc" if NOTE.get(state.memory, name)) == remembered
    assert ALL.get(state.memory) == (1 if len(kept) == 3 else None)
    assert state.take_trigger().nodes_changed or len(kept) == 3
    check(state)


def test_replay_and_snapshot_know_what_was_dropped() -> None:
    state = running_with_c()
    proposal = proposed(state, swap)
    again = fork(state)
    for each in (state, again):
        happen(each, exits("b"))
    logged = record(accept(state, proposal))
    assert (logged.made_on, logged.dropped) == (proposal.version, 2)
    again.commit(replay(again, logged))
    assert dump(again) == dump(state)
    assert load(dump(state), cluster("2x4")).dropped_count == 2


def test_a_launch_in_between_is_another_version_of_the_job() -> None:
    state = state_with(running=True)
    proposal = proposed(state, lambda then, plan: plan.stop(then.jobs["a"], "test"))
    state.apply(TasksExited("a", Exit.RETRIED, 0.0))
    plan = state.new_plan()
    plan.start(state.jobs["a"], ONE)  # where it was
    commit(state, plan)
    assert accept(state, proposal).dropped == 1
    assert state.jobs["a"].state is JobState.RUNNING


def test_after_nodes_have_changed_only_stops_are_kept() -> None:
    """The number of a node may be that of another one by now, and a job that could never run may be able to."""
    state = running_with_c()

    def make(then: State, plan: Plan) -> None:
        plan.stop(then.jobs["b"], "test")
        plan.move(then.jobs["a"], OTHER)
        plan.reject(then.jobs["c"], "too large")

    proposal = proposed(state, make)
    happen(state, NodeJoined(node(8, name="new")))
    plan = accept(state, proposal)
    assert [each.job_id for each in plan.decisions] == ["b"]
    assert (plan.dropped, state.jobs["c"].state) == (2, JobState.PENDING)


def test_what_goes_without_decisions() -> None:
    state = running_with_c()
    state.wake_s = 70.0

    def make(then: State, plan: Plan) -> None:
        plan.wait(then.jobs["c"], "line")
        plan.tune(then.jobs["a"], {"batch": 8})
        plan.tune(then.jobs["b"], {"batch": 8})
        plan.wake(90.0)

    proposal = proposed(state, make)
    happen(state, exits("b"))
    plan = accept(state, proposal)
    assert [each.job_id for each in plan.settings] == ["a"]
    assert (plan.dropped, state.wake_s) == (1, 70.0)
    waiting = state.jobs["c"].waiting
    assert waiting is not None
    assert waiting.jobs == 1
    late = proposed(state, lambda then, plan: plan.wait(then.jobs["c"], "other"))
    happen(state, StopRequested("c", "enough"))
    assert accept(state, late).joins == []


def test_a_start_whose_end_has_passed_is_dropped() -> None:
    state = running_with_c()
    proposal = proposed(state, lambda then, plan: plan.start(then.jobs["c"], FREE, 50.0))
    state.now_s = 50.0
    happen(state, exits("b"))
    assert accept(state, proposal).dropped == 1


def test_a_plan_in_time_is_kept_as_it_is() -> None:
    state = running_with_c()
    proposal = proposed(state, swap)
    plan = accept(state, proposal)
    assert record(plan) == proposal.plan
    assert (state.late_count, state.dropped_count) == (0, 0)


def test_what_lateness_does_not_explain_is_refused() -> None:
    state = running_with_c()
    before = snapshot(state)
    early = Proposal(state.version + 1, PlanRecord(), {})
    nowhen = Proposal(state.version - 1, PlanRecord(wake_s=float("nan")), {})
    for proposal in (early, nowhen):
        with pytest.raises(BadPlan):
            accept(state, proposal)
        assert snapshot(state) == before


def test_a_plan_is_committed_on_the_version_it_was_tried_on() -> None:
    state = state_with(running=False)
    plan = state.new_plan()
    submit_c(state)
    with pytest.raises(InvariantBroken, match="version"):
        state.commit(plan)


def test_bundles_of_hostile_plans_count_wherever_they_stand() -> None:
    state = running_with_c()
    proposal = proposed(state, swap)
    stop, start, move = proposal.plan.decisions
    mixed = Proposal(proposal.version, PlanRecord(decisions=[stop, move, start]), proposal.launches)
    happen(state, JobHeld("c", "wait"))
    assert [each.job_id for each in accept(state, mixed).decisions] == ["a"]
    assert state.jobs["b"].allocation == TWO
