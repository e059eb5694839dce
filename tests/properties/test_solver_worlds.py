"""Policies that solve beside the scheduler: runs are sound with answers at once, late and missing; replays and forks
give the same, also inside VCs."""

from __future__ import annotations

import copy

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import SharedWorld, shared_worlds
from tests.support import World, check, snapshot
from tests.support.solving import SOLVING, Late
from tests.support.world import WorldCourse
from worlds import examples, fork_of, worlds

from skep.core.record import fold
from skep.core.state import State

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
