"""Jobs that exchange their GPUs, and leases that are extended: runs are sound, replays and forks give the same, also
inside VCs."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import SharedWorld, planner_of, shared_worlds
from test_kernel import replay_and_compare
from tests.support import World, cluster, job, trace
from tests.support.exchange import EXCHANGE
from tests.support.shared_invariants import check_shared
from worlds import examples, fork_of, worlds

POLICIES = [f"{EXCHANGE}:every_s=40", f"{EXCHANGE}:every_s=33.3,lease_s=75"]


@st.composite
def exchanging(draw: st.DrawFn) -> World:
    return msgspec.structs.replace(draw(worlds("fifo", eventful=True)), policy=draw(st.sampled_from(POLICIES)))


@st.composite
def exchanging_vcs(draw: st.DrawFn) -> SharedWorld:
    world = draw(shared_worlds(calm=True))
    for vc in world.layout.vcs.values():
        if draw(st.sampled_from([True, True, False])):
            vc.policy = draw(st.sampled_from(POLICIES))
    return world


def test_runs_have_what_they_are_drawn_for() -> None:
    world = World(trace(*(job(1, work=1000.0) for _ in range(4))), cluster("4x1"), POLICIES[1], restart_s=7.0)
    course = world.run()
    rows = list(course.state.jobs.values())
    assert sum(each.migrations for each in rows) > 20
    assert all(each.state.is_final for each in rows)


@examples(50)
@given(world=exchanging())
def test_a_run_is_sound(world: World) -> None:
    course = world.begin()
    course.finish(world.checker(course.state))


@examples(40)
@given(data=st.data())
def test_a_fork_goes_on_like_the_original(data: st.DataObject) -> None:
    original, fork = fork_of(data, data.draw(exchanging()))
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


@examples(40)
@given(data=st.data())
def test_a_replay_gives_the_same_state_and_goes_on_alike(data: st.DataObject) -> None:
    replay_and_compare(data, data.draw(exchanging()))


@examples(40)
@given(world=exchanging_vcs())
def test_virtual_clusters_hold(world: SharedWorld) -> None:
    world.run()


@examples(30)
@given(data=st.data())
def test_a_fork_of_virtual_clusters_goes_on_like_the_original(data: st.DataObject) -> None:
    original, fork = fork_of(data, data.draw(exchanging_vcs()))
    check_shared(fork.state, planner_of(fork))
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()
