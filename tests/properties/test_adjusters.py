"""Adjusters after any order and placement: every invariant holds, a fork goes on alike, and every job ends."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from test_kernel import replay_and_compare
from tests.support import World, cluster, job, snapshot, trace
from tests.support.adjusters import ADJUSTED, ADJUSTERS, ORDERS
from worlds import examples, fork_of, worlds

from skep.core.job import JobState

COMBINED = ["slices", "compact", "slices+compact", "turns", "turns+pack+rebalance", "migrate+turns", "grow+migrate"]
COMBINED += ["deflate", "deflate+turns+throttle", "+".join(name for name in ADJUSTERS if name != "slices")]
"""Suspensions by hand and share groups are not combined: a job that is suspended keeps its seat."""


@st.composite
def adjusted(draw: st.DrawFn) -> World:
    world = draw(worlds("fifo", eventful=True))
    order, place = draw(st.sampled_from(sorted(ORDERS))), draw(st.sampled_from(["any", "consolidate"]))
    adjust, preempts = draw(st.sampled_from(COMBINED)), draw(st.sampled_from("yn"))
    knobs = f"order={order},placed={place},adjusted={adjust},preempts={'yes' if preempts == 'y' else 'no'}"
    return msgspec.structs.replace(world, policy=f"{ADJUSTED}:{knobs}")


@examples(50)
@given(world=adjusted())
def test_every_step_holds_and_no_job_stays_suspended(world: World) -> None:
    course = world.begin()
    course.finish(world.checker(course.state))
    assert not [each for each in course.state.jobs.values() if each.state is JobState.SUSPENDED]


@examples(30)
@given(data=st.data())
def test_a_fork_goes_on_alike(data: st.DataObject) -> None:
    world = data.draw(adjusted())
    original, fork = fork_of(data, world)
    original.finish()
    fork.finish()
    assert snapshot(fork.state) == snapshot(original.state)


@examples(20)
@given(data=st.data())
def test_a_replay_ends_in_the_same_state(data: st.DataObject) -> None:
    replay_and_compare(data, data.draw(adjusted()))


def test_slices_let_a_short_job_pass_a_long_one() -> None:
    world = World(trace(job(4, work=400.0), job(4, work=50.0, at=10.0)), cluster("1x4"), f"{ADJUSTED}:adjusted=slices")
    course = world.run()
    long, short = course.state.jobs.values()
    assert short.finish_s is not None
    assert long.finish_s is not None
    assert short.finish_s < long.finish_s == 450.0
    assert long.preemptions == short.preemptions == 0


def test_a_move_makes_room_in_the_same_plan() -> None:
    """At 50 s one GPU is free on each node. Job a moves beside job b, so that job c, which needs a node, starts."""
    jobs = [job(1, work=50.0, id="early"), job(1, work=200.0, id="a"), job(1, work=200.0, id="b")]
    jobs.append(job(2, work=20.0, at=50.0, id="c"))
    course = World(trace(*jobs), cluster("2x2"), f"{ADJUSTED}:adjusted=compact,placed=consolidate").run()
    assert course.state.jobs["c"].start_s == 50.0
    assert [each.migrations for each in course.state.jobs.values()] == [0, 1, 0, 0]
