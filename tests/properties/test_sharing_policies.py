"""Every policy that shares GPUs, with jobs that ask for any mode, claim, label and priority at once: every invariant
holds after every step, no decision goes on without end, and a fork goes on alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, node, trace
from worlds import examples, fork_of, outages, policy_specs

from skep.core.job import JobState
from skep.core.needs import Need
from skep.core.share import MIG_PARTS, MODES, SHARED, Share
from skep.policies.place.beside import Beside
from skep.policies.place.labelled import Labelled
from skep.policies.place.lanes import Lanes
from skep.policies.registry import policies
from skep.traces.trace import TraceJob

SHARING = sorted(name for name, policy in policies().items() if Need.SHARE in policy.needs())
LABELS = st.sampled_from(["", "", "x", "y"])
every_sharing_policy = pytest.mark.parametrize("name", SHARING)


@st.composite
def sharing_jobs(draw: st.DrawFn) -> TraceJob:
    mode = draw(st.sampled_from(["", "", *sorted(SHARED)]))
    milli = draw(st.sampled_from(MIG_PARTS if mode == "mig" else (1000, 1000, 500, 300)))
    kept, ephemeral = draw(st.sampled_from([(0.0, 0.0), (1.0, 4.0), (2.0, 6.0), (1.0, 9.0)]))
    share = Share(
        mode,
        limit_milli=draw(st.sampled_from([0, milli, 1000 if not mode or MODES[mode].may_exceed else milli])),
        weight=draw(st.sampled_from([1, 1, 3])),
        affinity=draw(LABELS),
        anti_affinity=draw(LABELS),
        exclusion=draw(LABELS),
        persistent_gib=kept,
        ephemeral_gib=ephemeral,
        claim=draw(st.sampled_from(["guaranteed", "opportunistic", "auto"])),
    )
    return job(
        draw(st.sampled_from([1, 1, 1, 2, 4])),
        work=draw(st.integers(1, 600).map(float)),
        at=draw(st.integers(0, 300).map(float)),
        priority=draw(st.sampled_from([0, 0, -1, 1, 50])),
        vc=draw(st.sampled_from(["a", "b"])),
        model=draw(st.sampled_from(["", "vgg16", "resnet50"])),
        gpu_milli=milli,
        gpu_mem_gib=kept + ephemeral,
        share=share if draw(st.booleans()) else None,
        preemptible=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def sharing_worlds(
    draw: st.DrawFn, name: str, nodes: tuple[int, int] = (1, 3), jobs: tuple[int, int] = (2, 14)
) -> World:
    """So many nodes and jobs, at least and at most."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=nodes[0], max_size=nodes[1]))
    return World(
        trace(*draw(st.lists(sharing_jobs(), min_size=jobs[0], max_size=jobs[1]))),
        cluster([node(size, gpu_mem_gib=16) for size in sizes]),
        draw(policy_specs(name)),
        restart_s=draw(st.sampled_from([0.0, 7.0])),
        checkpoint_s=draw(st.sampled_from([0.0, 25.0])),
        round_s=draw(st.sampled_from([0.0, 0.0, 47.5])),
        outages=draw(outages(len(sizes))) if draw(st.booleans()) else (),
    )


@every_sharing_policy
@examples(60)
@given(data=st.data())
def test_every_step_holds_whatever_jobs_ask_for(name: str, data: st.DataObject) -> None:
    world = data.draw(sharing_worlds(name))
    course = world.begin()
    course.finish(world.checker(course.state))
    assert not [each for each in course.state.jobs.values() if each.state is JobState.SUSPENDED]


@every_sharing_policy
@examples(20)
@given(data=st.data())
def test_a_fork_goes_on_alike(name: str, data: st.DataObject) -> None:
    original, fork = fork_of(data, data.draw(sharing_worlds(name)))
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


@examples(20)
@given(data=st.data())
def test_a_fork_goes_on_alike_while_the_profiling_partition_is_resized(data: st.DataObject) -> None:
    world = data.draw(sharing_worlds("lucid", nodes=(4, 6), jobs=(14, 24)))
    original, fork = fork_of(data, world)
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


@pytest.mark.parametrize(("name", "place"), [("kubeshare", Labelled), ("salus", Lanes)])
@examples(30)
@given(data=st.data())
def test_the_index_finds_what_a_look_at_every_gpu_finds(name: str, place: type[Beside], data: st.DataObject) -> None:
    world = data.draw(sharing_worlds(name))
    indexed = world.begin()
    indexed.finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "is_indexed", lambda self, job: False)
        scanned = world.begin()
        scanned.finish()
    assert scanned.csv() == indexed.csv()
