"""Steps of a plan beside starts, stops and moves: starts with an end, settings, bundles, trials."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support import check, cluster, job, snapshot, take_trigger, trace

from skep.core.actions import Checkpoint, Launch, Limit, Move, Stop, Tune
from skep.core.checked import BadPlan, checked_plan
from skep.core.cluster import Allocation, Slice
from skep.core.errors import InvariantBroken
from skep.core.events import Exit, GroupFormed, JobSubmitted, TasksExited, TasksMoved, TasksStarted, TimerDue
from skep.core.group import GroupSpec
from skep.core.job import JobState
from skep.core.plan import Decision, Plan
from skep.core.record import PlanRecord, decode_plan, encode_plan, replay
from skep.core.refusal import Cause
from skep.core.snapshot import dump, fork, load
from skep.core.state import State
from skep.core.timers import LEASE

ONE = Allocation((Slice(0, 0b1),), 1)
TWO = Allocation((Slice(0, 0b110, tasks=2),), 2)
OTHER = Allocation((Slice(1, 0b1),), 1)


def state_with(*, running: bool) -> State:
    """Job `a` wants one gpu, `b` two; with `running` both have them."""
    state = State(cluster("2x4"))
    for entry in trace(job(1, id="a"), job(2, id="b")).jobs:
        state.advance(state.now_s, [JobSubmitted(entry.spec)])
    if running:
        plan = state.new_plan()
        plan.start(state.jobs["a"], ONE)
        plan.start(state.jobs["b"], TWO)
        commit(state, plan)
    take_trigger(state)
    return state


def commit(state: State, plan: Plan) -> list[object]:
    """And let whatever is launched run."""
    state.commit(plan)
    actions = state.send()
    for action in actions:
        if isinstance(action, Launch):
            state.advance(state.now_s, [TasksStarted(action.job_id, 1.0, state.now_s)])
    check(state)
    return list(actions)


STEPS: dict[str, Callable[[State, Plan], object]] = {
    "reserve": lambda state, plan: plan.reserve(OTHER),
    "vacate": lambda state, plan: plan.vacate(state.jobs["b"]),
    "resize": lambda state, plan: plan.resize(state.jobs["b"], Allocation((Slice(1, 0b1),), 1)),
    "limit": lambda state, plan: plan.limit(state.jobs["a"], 500),
    "tune": lambda state, plan: plan.tune(state.jobs["a"], {"batch": 64}),
    "checkpoint": lambda state, plan: plan.checkpoint(state.jobs["a"]),
    "wait": lambda state, plan: plan.wait(state.jobs["a"], "scope"),
    "refuse": lambda state, plan: plan.refuse("scope", Cause.QUOTA),
    "reject": lambda state, plan: plan.reject(state.jobs["a"], "why"),
    "wake": lambda state, plan: plan.wake(7.0),
    "see as": lambda state, plan: plan.see_as(state.jobs["a"], OTHER),
}


@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_taken_back_exactly(name: str) -> None:
    state = state_with(running=True)
    plan = state.new_plan()
    plan.wake(3.0)
    said, before, mark = encode_plan(plan), snapshot(state), plan.mark()
    STEPS[name](state, plan)
    assert plan.mark() == mark + 1
    assert encode_plan(plan) != said or snapshot(state) != before, "it does something"
    plan.rollback(mark)
    assert (encode_plan(plan), snapshot(state)) == (said, before)


def test_what_is_reserved_or_vacated_can_be_given_back_by_itself() -> None:
    state = state_with(running=True)
    before, plan = snapshot(state), state.new_plan()
    plan.reserve(OTHER)
    plan.vacate(state.jobs["b"])
    assert state.cluster.free_gpus() == 6
    plan.occupy(state.jobs["b"])
    plan.release(OTHER)
    assert snapshot(state) == before
    plan.rollback(0)
    assert snapshot(state) == before
    assert not plan.decisions


def test_a_start_with_an_end_is_stopped_then() -> None:
    state = state_with(running=False)
    twin = fork(state)
    plan = state.new_plan()
    plan.start(state.jobs["a"], ONE, until_s=10.0)
    twin.commit(replay(twin, decode_plan(encode_plan(plan))))
    twin.send()
    assert twin.timers.at_s(LEASE, "a") == 10.0
    commit(state, plan)
    assert state.timers.at_s(LEASE, "a") == 10.0
    state.now_s = 10.0
    state.advance(state.now_s, [TimerDue()])
    assert [type(action) for action in state.send()] == [Stop]
    state.advance(state.now_s, [TasksExited("a", Exit.PREEMPTED, 10.0)])
    assert (state.jobs["a"].state, state.jobs["a"].preemptions) == (JobState.PENDING, 0)
    check(state)


def test_settings_become_actions_with_the_number_of_the_launch() -> None:
    state = state_with(running=True)
    a, b = state.jobs["a"], state.jobs["b"]
    plan = state.new_plan()
    plan.limit(a, 300)
    plan.tune(a, {"batch": 64, "lr": 0.1})
    plan.checkpoint(b)
    twin = fork(state)
    twin.commit(replay(twin, decode_plan(encode_plan(plan))))
    twin.send()
    wanted = [Limit("a", 1, 300), Tune("a", 1, {"batch": 64, "lr": 0.1}), Checkpoint("b", 1)]
    assert commit(state, plan) == wanted
    assert snapshot(twin) == snapshot(state)
    assert (a.limit_milli, a.settings) == (300, {"batch": 64, "lr": 0.1})
    assert snapshot(load(dump(state), cluster("2x4"))) == snapshot(state)
    plan = state.new_plan()
    plan.tune(a, {"batch": 32})
    commit(state, plan)
    assert a.settings == {"batch": 32, "lr": 0.1}
    state.advance(state.now_s, [TasksExited("a", Exit.PREEMPTED, 1.0)])
    assert (a.limit_milli, a.settings) == (1000, {}), "the next start knows nothing of them"


def test_a_job_that_is_stopped_in_the_same_plan_is_told_nothing() -> None:
    state = state_with(running=True)
    plan = state.new_plan()
    plan.tune(state.jobs["a"], {"batch": 64})
    plan.stop(state.jobs["a"], "")
    assert [type(action) for action in commit(state, plan)] == [Stop]


def test_a_job_that_is_started_is_told_its_settings_when_it_runs() -> None:
    state = state_with(running=False)
    a = state.jobs["a"]
    plan = state.new_plan()
    plan.start(a, ONE)
    plan.tune(a, {"batch_size": 64})
    twin = fork(state)
    plan = replay(twin, decode_plan(encode_plan(plan)))
    twin.commit(plan)
    assert [type(action) for action in twin.send()] == [Launch]
    twin = load(dump(twin), cluster("2x4"))
    twin.advance(1.0, [TasksStarted("a", 1.0, 1.0)])
    assert twin.send() == [Tune("a", 1, {"batch_size": 64})]
    assert (twin.jobs["a"].settings, twin.orders.settings) == ({"batch_size": 64}, [])


def test_a_job_that_moves_is_told_its_settings_when_it_has_moved() -> None:
    state = state_with(running=True)
    a = state.jobs["a"]
    free = Allocation((Slice(1, 0b1000),), 1)
    plan = state.new_plan()
    plan.tune(a, {"batch_size": 8})
    commit(state, plan)
    plan = state.new_plan()
    plan.move(a, free)
    plan.tune(a, {"batch_size": 64})
    assert [type(action) for action in commit(state, plan)] == [Move]
    assert a.settings == {"batch_size": 8}
    state.advance(1.0, [TasksMoved("a", free, 1.0, 1.0, 1.0)])
    assert state.send() == [Tune("a", 2, {"batch_size": 64})]
    assert a.settings == {"batch_size": 64}


def test_settings_of_a_launch_that_never_comes_are_forgotten() -> None:
    state = state_with(running=False)
    plan = state.new_plan()
    plan.start(state.jobs["a"], ONE)
    plan.tune(state.jobs["a"], {"batch_size": 64})
    state.commit(plan)
    state.send()
    state.advance(1.0, [TasksExited("a", Exit.PREEMPTED, 0.0)])
    state.send()
    assert state.orders.settings == []


@pytest.mark.parametrize("step", ["limit", "tune", "checkpoint"])
def test_only_running_jobs_take_settings(step: str) -> None:
    state = state_with(running=False)
    with pytest.raises(InvariantBroken, match="only a running job"):
        STEPS[step](state, state.new_plan())


@pytest.mark.parametrize("milli", [0, -1, 1001])
def test_a_limit_is_a_part_of_a_gpu_or_all_of_it(milli: int) -> None:
    state = state_with(running=True)
    plan = state.new_plan()
    with pytest.raises(InvariantBroken, match=f"{milli} thousandths"):
        plan.limit(state.jobs["a"], milli)
    plan.limit(state.jobs["a"], 1000)
    plan.limit(state.jobs["a"], 1)


def test_a_job_that_is_about_to_start_is_not_moved() -> None:
    state = state_with(running=False)
    plan = state.new_plan()
    plan.start(state.jobs["a"], ONE)
    with pytest.raises(InvariantBroken, match="only a running job can be moved"):
        plan.move(state.jobs["a"], OTHER)


def test_only_running_jobs_can_be_suspended_and_only_suspended_ones_resumed() -> None:
    with pytest.raises(InvariantBroken, match="only a running job can be suspended"):
        (state := state_with(running=False)).new_plan().suspend(state.jobs["a"])
    with pytest.raises(InvariantBroken, match="only a suspended job can be resumed"):
        (state := state_with(running=True)).new_plan().resume(state.jobs["a"])


def test_only_a_group_that_is_there_and_open_can_be_ended() -> None:
    state = state_with(running=False)
    state.advance(state.now_s, [GroupFormed(GroupSpec("sweep"))])
    plan = state.new_plan()
    with pytest.raises(InvariantBroken, match="does not exist"):
        plan.end_group("nosuch", "test")
    plan.end_group("sweep", "test", succeeded=True)
    state.commit(plan)
    with pytest.raises(InvariantBroken, match="has ended"):
        state.new_plan().end_group("sweep", "test")


def test_a_resize_to_what_it_has_is_none() -> None:
    state = state_with(running=True)
    with pytest.raises(InvariantBroken, match="has 1 GPUs already"):
        state.new_plan().resize(state.jobs["a"], OTHER)


def test_decisions_of_a_bundle_have_its_number_also_in_the_log() -> None:
    state = state_with(running=True)
    state.advance(state.now_s, [JobSubmitted(job(3, id="c").spec)])
    state.advance(state.now_s, [JobSubmitted(job(1, id="d").spec)])
    twin = fork(state)
    plan = state.new_plan()
    mark = plan.mark()
    with plan.bundle():
        plan.stop(state.jobs["a"], "c")
    plan.rollback(mark)
    with plan.bundle():
        plan.stop(state.jobs["b"], "c")
        with plan.bundle():
            plan.start(state.jobs["c"], Allocation((Slice(0, 0b1110, tasks=3),), 3))
    plan.start(state.jobs["d"], OTHER)
    assert [decision.bundle for decision in plan.decisions] == [2, 2, 0]
    logged = decode_plan(encode_plan(plan))
    assert replay(twin, logged).decisions == plan.decisions
    assert logged.decisions[0] == Decision("b", TWO, None, "c", 2)


@pytest.mark.parametrize(
    ("logged", "says"),
    [
        (PlanRecord(settings=[Limit("a", 1, 0)]), "0 thousandths"),
        (PlanRecord(settings=[Limit("a", 1, 1001)]), "1001 thousandths"),
        (PlanRecord(settings=[Checkpoint("a", 2)]), "only a running job"),
        (PlanRecord(settings=[Tune("x", 1, {})]), "no job x"),
        (PlanRecord(decisions=[Decision("a", ONE, OTHER, until_s=9.0)]), "only a start may"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(logged: PlanRecord, says: str) -> None:
    state = state_with(running=True)
    before = snapshot(state)
    with pytest.raises(BadPlan, match=says):
        checked_plan(state, logged)
    assert snapshot(state) == before


def test_what_was_noted_is_undone_with_the_plan() -> None:
    plan, undone = state_with(running=True).new_plan(), []
    plan.undo_by(lambda: undone.append("first"))
    plan.undo_by(lambda: undone.append("second"))
    plan.rollback(0)
    assert undone == ["second", "first"]


def tried_twice(state: State, plan: Plan) -> None:
    """A move of `a` that is taken back; then `b` stops and `a` moves after all."""
    plan.move(state.jobs["a"], OTHER)
    plan.rollback(0)
    plan.stop(state.jobs["b"], "")
    plan.move(state.jobs["a"], OTHER)


def test_taking_back_a_decision_of_a_part_takes_back_what_the_part_did_since() -> None:
    state = state_with(running=True)
    plan = state.new_plan()
    part = plan.part(lambda books: books)
    tried_twice(state, part)
    plan.translate(part, 1, part.decisions[1], is_booked=True)
    plan.rollback(0)
    assert (plan.decisions, part.decisions) == ([], [Decision("b", TWO, None)])


def test_parts_may_have_parts() -> None:
    state = state_with(running=True)
    plan = state.new_plan()
    part = plan.part(lambda books: books)
    inner = part.part(lambda books: books)
    inner.move(state.jobs["a"], OTHER)
    part.translate(inner, 0, inner.decisions[0], is_booked=True)
    part.rollback(0)
    assert inner.decisions == []
    tried_twice(state, part)
    plan.translate(part, 1, part.decisions[1], is_booked=True)
    plan.rollback(0)
    assert part.decisions == [Decision("b", TWO, None)]


def test_decisions_of_a_part_are_in_the_bundle_of_the_whole_or_in_their_own() -> None:
    state = state_with(running=True)
    plan = state.new_plan()
    part = plan.part(lambda books: books)
    with part.bundle(7):
        part.move(state.jobs["a"], OTHER)
    plan.translate(part, 0, part.decisions[0], is_booked=True)
    with plan.bundle(3):
        plan.translate(part, 0, part.decisions[0], is_booked=True)
    assert [each.bundle for each in plan.decisions] == [7, 3]
