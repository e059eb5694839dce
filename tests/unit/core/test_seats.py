"""Which rank sits on which GPU: derived from the masks, or given and then kept."""

from __future__ import annotations

import msgspec
import pytest
from test_plan_steps import TWO, state_with
from tests.support import World, cluster, job, trace

from skep.core.actions import Move
from skep.core.allocation import Allocation, Seat, Slice, sits_right
from skep.core.checked import BadPlan, checked_plan
from skep.core.events import TasksMoved
from skep.core.plan import Decision
from skep.core.record import PlanRecord, decode_plan, encode_plan, replay
from skep.core.snapshot import dump, fork, load

PS_AND_WORKERS = Allocation(
    (Slice(0, 0b11110, role=1, tasks=2), Slice(1, role=0), Slice(1, 0b11, role=1), Slice(2, role=0)), 6
)
SWAPPED = TWO.seated([Seat(0, 0, (2,)), Seat(0, 0, (1,))])


def test_by_default_tasks_have_equal_parts_lowest_first_role_by_role() -> None:
    assert PS_AND_WORKERS.seating() == [
        Seat(0, 1),
        Seat(0, 2),
        Seat(1, 0, (1, 2)),
        Seat(1, 0, (3, 4)),
        Seat(1, 1, (0, 1)),
    ]


def test_tasks_that_share_a_gpu_all_have_it() -> None:
    assert Allocation((Slice(0, 0b1, milli=300, tasks=2),), 0.6).seating() == [Seat(0, 0, (0,)), Seat(0, 0, (0,))]


def test_only_roles_that_sit_otherwise_are_written_down() -> None:
    usual = PS_AND_WORKERS.seating()
    assert PS_AND_WORKERS.seated(usual) == PS_AND_WORKERS
    other = [*usual[:2], usual[4], *usual[2:4]]
    seated = PS_AND_WORKERS.seated(other)
    assert {seat.role for seat in seated.seats} == {1}
    assert seated.seating() == other
    assert b"seats" not in msgspec.msgpack.encode(PS_AND_WORKERS)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(seated), type=Allocation) == seated


def test_what_keeps_seats() -> None:
    assert SWAPPED.suspended("resident").seating() == SWAPPED.seating()
    assert SWAPPED.renumbered({0: 3}).seating() == [Seat(0, 3, (2,)), Seat(0, 3, (1,))]
    assert SWAPPED.on_terms(mode="slice", milli=500, limit=1000).seating() == SWAPPED.seating()
    assert not SWAPPED.has_seats_of(TWO)


WRONG = {
    "a gpu that the job does not have": [Seat(0, 0, (0,)), Seat(0, 0, (1,))],
    "the same gpu twice": [Seat(0, 0, (1,)), Seat(0, 0, (1,))],
    "another node": [Seat(0, 1, (1,)), Seat(0, 0, (2,))],
    "a task too few": [Seat(0, 0, (1, 2))],
    "one with both and one with none": [Seat(0, 0, (1, 2)), Seat(0, 0, ())],
    "a role that is not there": [Seat(1, 0, (1,)), Seat(1, 0, (2,))],
}


@pytest.mark.parametrize("seats", WRONG.values(), ids=WRONG)
def test_seats_that_are_not_those_of_the_slices_are_refused(seats: list[Seat]) -> None:
    wrong = msgspec.structs.replace(TWO, seats=tuple(seats))
    assert not sits_right(wrong)
    with pytest.raises(BadPlan, match="on GPUs that are not in"):
        checked_plan(state_with(running=False), PlanRecord(decisions=[Decision("b", None, wrong)]))


def test_other_seats_are_a_move_and_stay() -> None:
    state = state_with(running=True)
    plan = state.new_plan()
    plan.move(state.jobs["b"], SWAPPED)
    logged = decode_plan(encode_plan(plan))
    again = fork(state)
    state.commit(plan)
    assert state.send() == [Move("b", SWAPPED, 2)]
    state.advance(state.now_s, [TasksMoved("b", SWAPPED, 0.0, 1.0, 0.0, 2)])
    assert state.jobs["b"].held == SWAPPED
    assert load(dump(state), cluster("2x4")).jobs["b"].bound == SWAPPED
    again.commit(replay(again, logged))
    assert again.jobs["b"].bound == SWAPPED


def test_the_simulator_keeps_them() -> None:
    course = World(trace(job(2, work=100.0, id="b")), cluster("2x4"), "fifo").begin()
    course.advance()
    state = course.state
    held = state.jobs["b"].held
    assert held is not None
    seats = held.seating()
    plan = state.new_plan()
    plan.move(state.jobs["b"], held.seated(reversed(seats)))
    state.commit(plan)
    state.advance(state.now_s, list(course.engine.execute(state.now_s, state.send())))
    found = state.jobs["b"].held
    assert found is not None
    assert found.seating() == seats[::-1]
    assert state.jobs["b"].migrations == 1


def test_seats_of_one_role_sit_right_beside_another_role_with_the_usual_ones() -> None:
    usual = PS_AND_WORKERS.seating()
    seated = PS_AND_WORKERS.seated([*usual[:2], usual[4], *usual[2:4]])
    assert sits_right(seated)
    assert not sits_right(msgspec.structs.replace(seated, seats=seated.seats[:2]))
