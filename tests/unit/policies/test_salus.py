"""Salus: which jobs get into which lane of a GPU, and how they run there."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, node, trace
from tests.support.world import WorldCourse

from skep.core.share import Share
from skep.core.why import why
from skep.policies.place.lanes import Found, LaneMemory, find_lane
from skep.traces.trace import TraceJob

GIB = 1024


def laned(name: str, persistent: float, ephemeral: float, **more: object) -> TraceJob:
    share = Share(persistent_gib=persistent, ephemeral_gib=ephemeral)
    return job(1, id=name, gpu_mem_gib=persistent + ephemeral, share=share, **{"work": 1e6, **more})


def begun(*jobs: TraceJob, policy: str = "salus", gpus: int = 1) -> WorldCourse:
    course = World(trace(*jobs), cluster([node(gpus, gpu_mem_gib=16)]), policy).begin()
    course.advance()
    return course


def lanes(course: WorldCourse) -> dict[str, str | None]:
    """The lane of each job; none for one that waits."""
    found = ((each.id, each.allocation) for each in course.state.jobs.values())
    return {name: None if held is None else held.slices[0].group for name, held in found}


# The worked example: C = 16, A(2, 6) opens a lane, B(1, 5) too, C(1, 4) joins B's, D(1, 7) finds no way in.
EXAMPLE = (laned("a", 2, 6), laned("b", 1, 5), laned("c", 1, 4), laned("d", 1, 7))


def test_the_worked_example_of_lanes() -> None:
    course = begun(*EXAMPLE)
    assert lanes(course) == {"a": "a", "b": "b", "c": "b", "d": None}
    assert course.state.cluster.nodes[0].memory_left(0) == 1 * GIB


@pytest.mark.parametrize(
    ("need", "free", "sizes", "found"),
    [
        pytest.param(LaneMemory(2, 6), 8, {}, Found(0), id="a lane of its own"),
        pytest.param(
            LaneMemory(1, 4), 2, {"a": 6, "b": 5}, Found(1, "b", 5), id="the smallest lane that is large enough"
        ),
        pytest.param(LaneMemory(1, 7), 2, {"a": 6, "b": 5}, Found(2, "a", 6), id="a lane is enlarged by what it lacks"),
        pytest.param(
            LaneMemory(1, 6), 3, {"a": 4, "b": 5}, Found(2, "a", 4), id="the smallest lane that can be enlarged"
        ),
        pytest.param(LaneMemory(1, 7), 1, {"a": 6, "b": 5}, None, id="no room to enlarge one"),
        pytest.param(LaneMemory(3, 1), 2, {"a": 6}, None, id="no room for what it always needs"),
    ],
)
def test_how_a_job_gets_into_a_lane(need: LaneMemory, free: int, sizes: dict[str, int], found: Found | None) -> None:
    assert find_lane(need, free, sizes) == found


def test_jobs_of_a_lane_take_turns_and_lanes_run_at_once() -> None:
    course = begun(*EXAMPLE)
    rates = {each.id: each.rate for each in course.state.jobs.values() if each.allocation is not None}
    # Without a profile each lane is taken to use all of the GPU, so two lanes have half of it each.
    assert rates == {"a": pytest.approx(0.5), "b": pytest.approx(0.25), "c": pytest.approx(0.25)}


def test_a_lane_shrinks_when_its_largest_job_leaves() -> None:
    course = begun(laned("a", 1, 14, work=10.0), laned("b", 1, 2), laned("c", 2, 11))
    assert lanes(course) == {"a": "a", "b": "a", "c": None}
    course.advance()  # a ends: its lane is as large as b needs, and c has room for one of its own
    assert lanes(course) == {"a": None, "b": "a", "c": "c"}
    assert course.state.cluster.nodes[0].memory_left(0) == 0


@pytest.mark.parametrize(
    ("within", "running"), [("fifo", {"a"}), ("pack", {"a", "b"}), ("rr", {"a", "b", "c"}), ("fair", {"a", "b", "c"})]
)
def test_who_runs_within_a_gpu(within: str, running: set[str]) -> None:
    assert begun(*EXAMPLE, policy=f"salus:within={within}").running() == running


def test_fair_turns_make_memory_times_time_equal() -> None:
    # In one lane: 12 GiB against 6 GiB, so the smaller one gets twice the turns.
    course = begun(laned("a", 2, 10), laned("b", 2, 4), policy="salus:within=fair")
    assert lanes(course) == {"a": "a", "b": "a"}
    jobs = course.state.jobs
    assert jobs["b"].rate / jobs["a"].rate == pytest.approx(2.0, rel=0.01)


def test_an_idle_gpu_goes_first_and_whole_gpus_are_left_alone() -> None:
    course = begun(laned("a", 1, 1), laned("b", 1, 1), job(2, id="c"), laned("d", 1, 1), gpus=4)
    placed = {each.id: each.allocation for each in course.state.jobs.values()}
    assert {name: held.slices[0].gpus for name, held in placed.items() if held is not None} == {
        "a": 1,
        "b": 2,
        "c": 12,
        "d": 1,
    }


@pytest.mark.parametrize("within", ["fifo", "pack", "rr", "fair"])
def test_a_job_that_finds_too_little_memory_says_so(within: str) -> None:
    """One GPU is free, and too small."""
    where = cluster([node(1, gpu_mem_gib=8), node(1, gpu_mem_gib=16)])
    course = World(trace(laned("a", 9, 1), laned("b", 9, 0)), where, f"salus:within={within}").begin()
    course.advance()
    found = why(course.state, course.scheduler.planner, course.state.jobs["b"])
    assert "too little GPU memory is left on the nodes with enough free GPUs; job a holds what it needs" in found.reason
    assert found.remedy == "job a ending"
