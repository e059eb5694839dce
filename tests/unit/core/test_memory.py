"""What policies remember: typed, and forgotten by the state itself."""

from __future__ import annotations

import msgspec
import pytest
from tests.support import cluster, job, snapshot, take_trigger, trace

from skep.core.cluster import Allocation, Slice
from skep.core.events import ClusterChanged, Event, Exit, JobSubmitted, PolicyChanged, PolicyFailed, TasksExited
from skep.core.memory import LENT, OWNED, Memory, MemoryChange, Of, Owned, Slot, values_of
from skep.core.record import decode_plan, encode_plan, replay
from skep.core.snapshot import dump, fork, load
from skep.core.state import State


class Note(msgspec.Struct, frozen=True, array_like=True):
    number: int
    words: tuple[str, ...] = ()


NOTE = Slot("note", Note)
TOTAL = Slot("total", Note, Of.ALL)
PER_VC = Slot("per vc", Note, Of.VC)

ONE = Allocation((Slice(0, 0b1),), 1)
OTHER = Allocation((Slice(0, 0b10),), 1)


def state_with_notes() -> State:
    """Jobs `a` (VC red) runs and `b` (VC blue) waits; something is remembered of both, of VCs, and in all."""
    state = State(cluster("1x4"))
    for entry in trace(job(1, id="a", vc="red"), job(1, id="b", vc="blue")).jobs:
        state.advance(state.now_s, [JobSubmitted(entry.spec)])
    plan = state.new_plan()
    plan.start(state.jobs["a"], ONE)
    plan.remember(OWNED, "a", Owned(ONE, ((0, 0),)))
    for name in ("a", "b"):
        plan.remember(NOTE, name, Note(1, (name,)))
    plan.remember(TOTAL, "", Note(2))
    for vc in ("red", "blue"):
        of_vc = plan.part(lambda books: books, (vc, ""))
        of_vc.remember(TOTAL, "", Note(3, (vc,)))
        of_vc.remember(PER_VC, vc, Note(4, (vc,)))
        for change in of_vc.memory:
            plan.keep(change)
    state.commit(plan)
    state.send()
    take_trigger(state)
    return state


def slots_of(state: State, name: str) -> set[str]:
    return set(state.memory.jobs.get(name, ()))


def test_it_is_kept_until_it_is_forgotten() -> None:
    state = state_with_notes()
    memory = state.memory
    assert (NOTE.get(memory, "a"), TOTAL.get(memory), PER_VC.get(memory, "red")) == (Note(1, ("a",)), Note(2), None)
    red = memory.part("red", "")
    assert (TOTAL.get(red), PER_VC.get(red, "red"), NOTE.get(red, "a")) == (
        Note(3, ("red",)),
        Note(4, ("red",)),
        Note(1, ("a",)),
    )
    plan = state.new_plan()
    plan.remember(NOTE, "a", None)
    plan.remember(NOTE, "b", Note(7))
    plan.remember(TOTAL, "", None)
    state.commit(plan)
    assert (NOTE.all(memory), TOTAL.get(memory)) == ({"b": Note(7)}, None)


def test_what_is_tried_is_taken_back() -> None:
    state = state_with_notes()
    plan = state.new_plan()
    plan.remember(NOTE, "a", Note(5))
    mark = plan.mark()
    plan.remember(NOTE, "a", Note(6))
    plan.rollback(mark)
    assert plan.memory == [MemoryChange(Of.JOB, "a", "note", Note(5))]


def test_a_job_takes_its_part_with_it() -> None:
    state = state_with_notes()
    state.advance(state.now_s, [TasksExited("a", Exit.FINISHED, 1.0)])
    assert "a" not in state.memory.jobs
    plan = state.new_plan()
    plan.remember(NOTE, "a", Note(9))  # its planner hears of the end only now
    state.commit(plan)
    assert list(state.memory.jobs) == ["b"]


@pytest.mark.parametrize(
    ("event", "left_of_a", "left_of_b", "parts"),
    [
        (PolicyChanged("fifo"), {"owned"}, set(), set()),
        (PolicyFailed("las", "oops", "fifo"), {"owned"}, set(), set()),
        (PolicyFailed("las", "oops", "fifo", "red"), {"owned"}, {"note"}, {"", "blue"}),
        (PolicyFailed("las", "oops", "fifo", "blue"), {"owned", "note"}, set(), {"", "red"}),
        (ClusterChanged("new", "1x4"), {"note"}, {"note"}, {"", "red", "blue"}),
    ],
)
def test_what_goes_with_a_policy_and_what_with_a_cluster(
    event: Event, left_of_a: set[str], left_of_b: set[str], parts: set[str]
) -> None:
    state = state_with_notes()
    state.advance(state.now_s, [event])
    assert (slots_of(state, "a"), slots_of(state, "b"), set(state.memory.parts)) == (left_of_a, left_of_b, parts)


def test_logs_snapshots_and_forks_keep_it_and_it_is_typed_again() -> None:
    state = state_with_notes()
    plan = state.new_plan()
    plan.remember(NOTE, "a", Note(5))
    plan.remember(NOTE, "a", Note(6))
    plan.remember(LENT, "b", True)
    logged = decode_plan(encode_plan(plan))
    assert len(logged.memory) == 2, "the last value of each name is enough"
    copies = (load(dump(state), cluster("1x4")), fork(state))
    state.commit(plan)
    for copy in copies:
        copy.commit(replay(copy, logged))
        assert snapshot(copy) == snapshot(state)
        assert (NOTE.get(copy.memory, "a"), NOTE.get(copy.memory, "b")) == (Note(6), Note(1, ("b",)))
        assert OWNED.get(copy.memory, "a") == Owned(ONE, ((0, 0),))
        assert TOTAL.get(copy.memory.part("red", "")) == Note(3, ("red",))
        copy.memory.jobs.clear()
    assert NOTE.get(state.memory, "a") == Note(6), "a copy has its own"


def test_what_other_parts_remember_can_be_forgotten() -> None:
    state = state_with_notes()
    for change in state.memory.others({("red", "")}):
        state.memory.take_in(change)
    assert values_of(state.memory)["parts"].keys() == {"red"}
    assert values_of(Memory()) == {"jobs": {}, "parts": {}}
