"""Gandiva where jobs of few sizes come and go, share, grow, shrink and move: every invariant holds, a fork and an
adopted run go on alike, and every job ends."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from test_kernel import replay_and_compare
from tests.support import World, cluster, job, node, snapshot, trace
from worlds import examples, fork_of, outages, policy_specs, scripts

from skep.core.job import JobState
from skep.traces.trace import TraceJob


@st.composite
def crowd_jobs(draw: st.DrawFn) -> TraceJob:
    """Few sizes, so that jobs find others to take turns with; some elastic, some with GPU memory."""
    size = draw(st.sampled_from([1, 1, 2, 2, 4, 8]))
    elastic = {"min_gpus": max(size // 2, 1), "max_gpus": size * 2} if draw(st.integers(0, 3)) == 0 else {}
    return job(
        size,
        work=draw(st.integers(1, 900).map(float)),
        at=draw(st.integers(0, 400).map(float)),
        model=draw(st.sampled_from(["", "vgg16", "resnet50"])),
        priority=draw(st.sampled_from([0, 0, 0, 1])),
        gpu_mem_gib=draw(st.sampled_from([0.0, 0.0, 5.0, 9.0])),
        vc=draw(st.sampled_from(["a", "b"])),
        **elastic,
    )


@st.composite
def crowds(draw: st.DrawFn) -> World:
    jobs = draw(st.lists(crowd_jobs(), min_size=2, max_size=16))
    sizes = draw(st.lists(st.sampled_from([4, 4, 8, 2]), min_size=1, max_size=4))
    kinds = draw(st.sampled_from([("v100",), ("v100", "k80")]))
    where = cluster([node(size, kinds[at % len(kinds)], gpu_mem_gib=16) for at, size in enumerate(sizes)])
    world = World(
        trace(*jobs),
        where,
        draw(policy_specs("gandiva")),
        restart_s=draw(st.sampled_from([0.0, 7.0, 30.0])),
        checkpoint_s=draw(st.sampled_from([0.0, 25.0, 600.0])),
        round_s=draw(st.sampled_from([0.0, 0.0, 47.5])),
        outages=draw(outages(len(sizes))) if draw(st.booleans()) else (),
    )
    return msgspec.structs.replace(world, script=draw(scripts(world))) if draw(st.booleans()) else world


@examples(80)
@given(world=crowds())
def test_every_step_holds_and_every_job_ends(world: World) -> None:
    """GPU memory and guarantees are counted by the checker after every step."""
    course = world.begin()
    course.finish(world.checker(course.state))
    assert not [each for each in course.state.jobs.values() if each.state is JobState.SUSPENDED]


@examples(40)
@given(data=st.data())
def test_a_fork_goes_on_alike(data: st.DataObject) -> None:
    world = data.draw(crowds())
    original, fork = fork_of(data, world)
    original.finish()
    fork.finish()
    assert snapshot(fork.state) == snapshot(original.state)


@examples(30)
@given(data=st.data())
def test_an_adopted_run_ends_like_one_that_was_not(data: st.DataObject) -> None:
    world = data.draw(crowds())
    original, _ = fork_of(data, world)
    adopted = original.adopt(world)
    adopted.finish()
    original.finish()
    assert adopted.csv() == original.csv()


@examples(30)
@given(data=st.data())
def test_a_replay_ends_in_the_same_state(data: st.DataObject) -> None:
    replay_and_compare(data, data.draw(crowds()))
