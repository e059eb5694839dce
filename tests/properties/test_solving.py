"""Policies that solve beside the scheduler: runs are sound with answers at once, late and missing; replays and forks
give the same, also inside VCs."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import SharedWorld, shared_worlds
from tests.support import World, check, cluster, job, snapshot, trace
from tests.support.solving import SOLVING
from tests.support.world import WorldCourse
from worlds import examples, fork_of, worlds

from skep.core.actions import Action
from skep.core.events import Event, Solved
from skep.core.record import Entry, decode, encode, fold, record
from skep.core.solving import solver_status
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.delayed import Delayed

POLICIES = [SOLVING, f"{SOLVING}:fails_every=3"]


@st.composite
def solving(draw: st.DrawFn) -> World:
    return msgspec.structs.replace(draw(worlds("fifo", eventful=True)), policy=draw(st.sampled_from(POLICIES)))


@st.composite
def solving_vcs(draw: st.DrawFn) -> SharedWorld:
    world = draw(shared_worlds(calm=True))
    for vc in world.layout.vcs.values():
        if draw(st.booleans()):
            vc.policy = draw(st.sampled_from(POLICIES))
    return world


class Logged(Scheduler):
    """Keeps the log of its steps."""

    def step(self, at_s: float, events: list[Event], change: object = None) -> list[Action]:
        actions = super().step(at_s, events)
        logged = Entry(at_s, events, [record(plan) for plan in self.plans])
        self.log = [*getattr(self, "log", []), decode(encode(logged))]
        return actions


class Late(WorldCourse):
    """A course whose answers come after a while."""

    def __init__(self, world: World, delay_s: float) -> None:
        state = State(world.cluster.blank())
        engine = Delayed(world.engine(state.cluster), delay_s) if delay_s else world.engine(state.cluster)
        answers = {"answers": engine.ask} if delay_s else {}
        super().__init__(Logged(state, world.planner(), **answers), engine)


@examples(60)
@given(world=solving(), delay_s=st.sampled_from([0.0, 13.0, 200.0]))
def test_a_run_is_sound_and_its_log_gives_the_same_state(world: World, delay_s: float) -> None:
    course = Late(world, delay_s)
    course.finish(world.checker(course.state))
    again = State(world.cluster.blank())
    for entry in course.scheduler.log:
        fold(again, entry)
    check(again)
    assert snapshot(again) == snapshot(course.state)


@examples(40)
@given(data=st.data())
def test_a_fork_goes_on_like_the_original(data: st.DataObject) -> None:
    original, fork = fork_of(data, data.draw(solving()))
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


@examples(30)
@given(data=st.data())
def test_a_simulator_that_adopts_a_question_without_an_answer_goes_on(data: st.DataObject) -> None:
    world = msgspec.structs.replace(data.draw(worlds("fifo", calm=True)), policy=SOLVING)
    course = Late(world, 500.0)
    for _ in range(data.draw(st.integers(1, 4))):
        course.advance()
    copied = WorldCourse(course.scheduler, copy.copy(course.engine.world)).adopt(
        msgspec.structs.replace(world, script=())
    )
    copied.finish()
    assert all(job.state.is_final for job in copied.state.jobs.values() if job.is_ready)


@examples(40)
@given(world=solving_vcs())
def test_virtual_clusters_hold(world: SharedWorld) -> None:
    world.run()


def test_a_late_answer_decides_when_it_comes() -> None:
    world = World(trace(job(1, work=100.0), job(1, work=100.0, at=10.0)), cluster("1x1"), SOLVING)
    course = Late(world, 30.0)
    course.finish()
    assert [each.start_s for each in course.state.jobs.values()] == [30.0, 130.0]


def test_without_an_answer_the_last_one_stays_in_force() -> None:
    jobs = [job(1, work=100.0, at=at) for at in (0.0, 0.0, 0.0, 50.0)]
    course = World(trace(*jobs), cluster("1x1"), f"{SOLVING}:fails_every=3").begin()
    course.advance()
    (status,) = solver_status(course.state.memory)
    assert (status.answered_s, status.error, status.failures) == (None, "no order for 3 jobs", 1)
    reason = course.scheduler.planner.explain(course.state, course.state.memory, None).reason
    assert reason == "there is no answer of the solver yet; the last failed: no order for 3 jobs"
    course.advance()  # a fourth job: four have an order, so the last one runs
    assert course.running() == {"j3"}
    (status,) = solver_status(course.state.memory)
    assert (status.answered_s, status.error) == (50.0, "")
    course.advance()  # it ends; three are left, for which there is no answer
    (status,) = solver_status(course.state.memory)
    assert (status.answered_s, status.failures) == (50.0, 1)
    assert course.running() == {"j2"}, "the answer for four jobs is still in force"


def test_a_bug_of_a_solver_ends_a_simulation() -> None:
    world = World(trace(job(1)), cluster("1x1"), f"{SOLVING}:fails_every=-1")
    with pytest.raises(ZeroDivisionError):
        world.run()


def test_an_answer_nobody_waits_for_changes_nothing() -> None:
    course = World(trace(job(1)), cluster("1x1"), SOLVING).begin()
    course.advance()
    before = solver_status(course.state.memory)
    course.state.advance(1.0, [Solved(999, answer=b"")])
    assert solver_status(course.state.memory) == before
    assert not course.state.is_woken
