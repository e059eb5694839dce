"""Running jobs exchange GPUs in one step: all of them or none."""

from __future__ import annotations

import math

import pytest
from tests.support import check, cluster, job, snapshot

from skep.core.actions import Move
from skep.core.allocation import Allocation, Slice
from skep.core.checked import BadPlan, checked_plan
from skep.core.errors import InvariantBroken
from skep.core.events import JobSubmitted, TasksMoved, TasksStarted, TimerDue
from skep.core.job import Job
from skep.core.plan import Decision
from skep.core.record import PlanRecord, decode_plan, encode_plan, replay
from skep.core.snapshot import dump, load
from skep.core.state import State
from skep.core.timers import TimerKind


def on(*nodes: int) -> Allocation:
    return Allocation(tuple(Slice(node, 1, tasks=1) for node in nodes), len(nodes))


def running(*sizes: int, nodes: int = 4) -> tuple[State, list[Job]]:
    """Jobs that run on the first nodes, one GPU on each."""
    state = State(cluster(f"{nodes}x1"))
    state.advance(0.0, [JobSubmitted(job(size, id=f"j{number}").spec) for number, size in enumerate(sizes)])
    plan, first = state.new_plan(), 0
    for each, size in zip(state.jobs.values(), sizes, strict=True):
        plan.start(each, on(*range(first, first + size)))
        first += size
    state.commit(plan)
    state.send()
    jobs = list(state.jobs.values())
    state.advance(0.0, [TasksStarted(each.id, 1.0, 0.0, 1) for each in jobs])
    return state, jobs


def test_two_jobs_exchange_their_gpus() -> None:
    state, (one, other) = running(1, 1)
    plan = state.new_plan()
    plan.move_all([(one, on(1)), (other, on(0))])
    assert [(each.job_id, each.together) for each in plan.decisions] == [("j0", False), ("j1", True)]
    state.commit(plan)
    assert state.send() == [Move("j0", on(1), 2), Move("j1", on(0), 2)]
    check(state)
    moved = [TasksMoved(each.id, each.bound, 0.0, 1.0, 0.0, 2) for each in (one, other) if each.bound]
    state.advance(1.0, [*moved])
    assert (one.held, other.held) == (on(1), on(0))
    check(state)


def test_three_jobs_move_in_a_circle_and_one_of_them_is_a_gang() -> None:
    state, (one, gang, other) = running(1, 2, 1)
    plan = state.new_plan()
    plan.move_all([(one, on(1)), (gang, on(0, 3)), (other, on(2))])
    state.commit(plan)
    assert [each.allocation for each in (one, gang, other)] == [on(1), on(0, 3), on(2)]
    check(state)


def test_all_move_or_none() -> None:
    state, (one, other, third) = running(1, 1, 1)
    before = snapshot(state)
    plan = state.new_plan()
    with pytest.raises(InvariantBroken):
        plan.move_all([(one, on(1)), (other, on(2))])  # the third stays there
    assert snapshot(state) == before
    assert not plan.decisions
    with pytest.raises(InvariantBroken, match="one new allocation each"):
        plan.move_all([(one, on(3)), (one, on(1))])
    plan.stop(third, "test")
    with pytest.raises(InvariantBroken, match="only a running job"):
        plan.move_all([(one, on(2)), (third, on(0))])
    plan.rollback(0)
    assert snapshot(state) == before


def test_a_rollback_restores_both_places() -> None:
    state, (one, other) = running(1, 1)
    plan = state.new_plan()
    plan.move(one, on(3))
    then = snapshot(state)
    mark = plan.mark()
    plan.move_all([(one, on(1)), (other, on(3))])
    plan.rollback(mark)
    assert snapshot(state) == then
    check_books_of(state, {"j0": on(3), "j1": on(1)})


def check_books_of(state: State, wanted: dict[str, Allocation]) -> None:
    assert {each.id: each.allocation for each in state.jobs.values()} == wanted
    taken = [node.index for node in state.cluster.nodes if not node.free]
    assert taken == sorted(piece.node for each in wanted.values() for piece in each.slices)


def test_a_logged_exchange_is_checked_and_replayed_as_one_step() -> None:
    state, (one, other) = running(1, 1)
    twin = load(dump(state), state.cluster.blank())
    plan = state.new_plan()
    plan.move_all([(one, on(1)), (other, on(0))])
    logged = decode_plan(encode_plan(plan))
    plan.rollback(0)
    for copy in (state, twin):
        copy.commit(checked_plan(copy, logged) if copy is state else replay(copy, logged))
        assert copy.send() == [Move("j0", on(1), 2), Move("j1", on(0), 2)]
    assert snapshot(twin) == snapshot(state)


@pytest.mark.parametrize(
    "second",
    [
        Decision("j1", on(1), on(2), together=True),  # occupied
        Decision("j1", on(1), None, "stop", together=True),
        Decision("j1", on(1), on(0, 3), together=True),  # not what it requested
        Decision("j3", None, on(0), together=True),  # a start
    ],
)
def test_an_invalid_exchange_is_refused_and_changes_nothing(second: Decision) -> None:
    state, _ = running(1, 1, 1)
    state.advance(0.0, [JobSubmitted(job(1, id="j3").spec)])
    before = snapshot(state)
    with pytest.raises(BadPlan):
        checked_plan(state, PlanRecord([Decision("j0", on(0), on(1)), second]))
    assert snapshot(state) == before


def test_two_moves_of_one_job_in_one_plan_are_one_action() -> None:
    state, (one, other) = running(1, 1)
    plan = state.new_plan()
    plan.move(one, on(2))
    plan.move_all([(one, on(1)), (other, on(3))])
    state.commit(plan)
    assert state.send() == [Move("j0", on(1), 2), Move("j1", on(3), 2)]
    check(state)


def test_the_end_that_a_start_carries_can_be_moved() -> None:
    state, (one, other) = running(1, 1)
    plan = state.new_plan()
    plan.extend(one, 50.0)
    logged = decode_plan(encode_plan(plan))
    plan.rollback(0)
    assert not plan.leases
    state.commit(checked_plan(state, logged))
    assert state.timers.at_s(TimerKind.LEASE, "j0") == 50.0
    plan = state.new_plan()
    plan.extend(one, 80.0)
    plan.stop(other, "test")
    with pytest.raises(InvariantBroken, match="only a job that is to go on"):
        plan.extend(other, 80.0)
    state.commit(plan)
    assert state.next_timer_s == 80.0
    with pytest.raises(BadPlan, match="not a number"):
        checked_plan(state, PlanRecord(leases=[("j0", math.nan)]))
    state.advance(80.0, [TimerDue()])
    assert one.is_expired
    with pytest.raises(BadPlan, match="only a job that is to go on"):
        checked_plan(state, PlanRecord(leases=[("j0", 99.0)]))
