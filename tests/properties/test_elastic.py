"""Elastic jobs under AFS: they grow and shrink within their range, and everything else holds as for any job."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import SharedWorld, planner_of, shared_worlds
from tests.support import World, cluster, job, trace
from tests.support.invariants import Checker
from tests.support.shared_invariants import check_shared
from tests.support.world import WorldCourse
from worlds import examples, fork_of, policy_specs, worlds

from skep.core.events import Event, TasksMoved, TasksStarted
from skep.core.job import JobState
from skep.core.step import Scheduler
from skep.policies.shared.vc import CELLS, NUMBERS, PRIVATE
from skep.traces.trace import TraceJob

OTHERS = ("fifo", "sjf", "srtf", "srsf", "drf", "yarn-cs")

RATE_MAX = 12.0
"""No job is more than so many times as fast as it asked for."""


@st.composite
def elastic(draw: st.DrawFn, world: World) -> World:
    """The world, some of whose jobs accept a range around what they ask for, with restarts that count or do not."""
    jobs = [stretched(draw, entry) for entry in world.trace.jobs]
    knobs = draw(st.sampled_from(["restart=0", "restart=0", "restart=5,horizon=100"]))
    policy = f"{world.policy}{',' if ':' in world.policy else ':'}{knobs}"
    trace = msgspec.structs.replace(world.trace, jobs=jobs)
    return msgspec.structs.replace(world, trace=trace, policy=policy)


@st.composite
def reporting(draw: st.DrawFn, world: World) -> World:
    """The world, whose jobs report speeds that differ between jobs of one model."""
    steps = st.sampled_from([None, 10, 100, 1000])
    jobs = [
        msgspec.structs.replace(entry, spec=msgspec.structs.replace(entry.spec, model="bert", steps=draw(steps)))
        for entry in world.trace.jobs
    ]
    return msgspec.structs.replace(world, trace=msgspec.structs.replace(world.trace, jobs=jobs), always_reports=True)


def stretched(draw: st.DrawFn, entry: TraceJob) -> TraceJob:
    if draw(st.integers(0, 3)) == 0:
        return entry
    asked = entry.spec.shapes[0].gpus
    low = draw(st.sampled_from([1, 1, 2, None]))
    high = draw(st.sampled_from([asked, asked + 1, 8, 12, None]))
    if low is not None and high is not None and low > high:
        low = high or None
    spec = msgspec.structs.replace(entry.spec, min_gpus=low, max_gpus=high or None)
    return msgspec.structs.replace(entry, spec=spec)


class Follow:
    """An observer that also looks at every size and rate."""

    def __init__(self, world: World, course: WorldCourse) -> None:
        self.state = course.state
        self.checker = Checker(
            course.state,
            checkpoint_s=world.checkpoint_s,
            rate_max=RATE_MAX,
            work_s={entry.spec.id: entry.work_s for entry in world.trace.jobs},
        )
        self.moves = dict.fromkeys((entry.spec.id for entry in world.trace.jobs), 0)

    def __call__(self, at_s: float, events: list[Event]) -> None:
        self.checker(at_s, events)
        for event in events:
            if isinstance(event, TasksMoved):
                self.moves[event.job_id] += 1
            if isinstance(event, TasksStarted | TasksMoved):
                job = self.state.jobs[event.job_id]
                assert job.held is not None
                expected = 1.0 if job.spec.gpu_range is None else job.held.gpus / job.gpus
                assert event.rate == pytest.approx(expected)

    def finish(self) -> None:
        self.checker.check_done()
        for each in self.state.jobs.values():
            assert each.resizes + each.migrations == self.moves[each.id]
            assert each.spec.gpu_range is not None or not each.resizes


def run(world: World) -> WorldCourse:
    course = world.begin()
    follow = Follow(world, course)
    course.finish(follow)
    follow.finish()
    return course


@examples(150)
@given(data=st.data())
def test_a_run_is_sound_and_everybody_gets_through(data: st.DataObject) -> None:
    world = data.draw(worlds("afs-l").flatmap(elastic))
    course = run(world)
    assert course.csv() == run(world).csv()


@pytest.mark.parametrize("sharing", [CELLS, PRIVATE, NUMBERS])
@examples(30)
@given(data=st.data())
def test_sizes_are_divided_anew_in_virtual_clusters(sharing: str, data: st.DataObject) -> None:
    """In each round jobs shrink, grow, start and are stopped together, on cells that some of them leave."""
    world = data.draw(elastic_vcs()).shared_as(sharing)
    for vc in world.layout.vcs.values():
        vc.policy = ""
    round_s = data.draw(st.sampled_from([10.0, 60.0]))
    course = msgspec.structs.replace(world, policy="optimus", round_s=round_s).begin()

    def look(at_s: float, events: object) -> None:
        if at_s % round_s == 0:  # between two boundaries the planner does not hear of ends
            check_shared(course.state, planner_of(course))

    course.finish(look)


@examples(60)
@given(data=st.data())
def test_work_is_what_was_held_in_proportion(data: st.DataObject) -> None:
    """With no restarts to pay and no failures, gpu-seconds held are the gpu-seconds asked for."""
    world = data.draw(worlds("afs-l", calm=True).flatmap(elastic))
    work = {entry.spec.id: entry.work_s for entry in world.trace.jobs}
    for row in run(world).rows():
        if row.state == JobState.SUCCEEDED:
            assert row.service_gpu_s == pytest.approx(work[row.job_id] * row.gpus, abs=1e-3)


@examples(60)
@given(data=st.data())
def test_a_fork_goes_on_like_the_original(data: st.DataObject) -> None:
    world = data.draw(worlds("afs-l").flatmap(elastic))
    original, fork = fork_of(data, world)
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


@examples(60)
@given(data=st.data())
def test_another_policy_can_take_over_and_hand_back(data: st.DataObject) -> None:
    """Jobs keep the size they have until the new policy stops them; whatever could run has finished in the end."""
    world = data.draw(worlds("afs-l").flatmap(elastic))
    other = msgspec.structs.replace(world, policy=data.draw(st.sampled_from(OTHERS).flatmap(policy_specs)))
    course = world.begin()
    follow = Follow(world, course)
    for after in (other, world):
        for _ in range(data.draw(st.integers(0, 12), label="batches")):
            course.advance(follow)
        course = WorldCourse(Scheduler(course.state, after.planner()), course.engine)
        look_around(course, follow)
    course.finish(follow)
    follow.finish()


def look_around(course: WorldCourse, follow: Follow) -> None:
    """Let a new planner decide at once."""
    state = course.state
    state.wake().nodes_changed = True
    actions = course.scheduler.step(state.now_s, [])
    while actions:
        events = course.engine.execute(state.now_s, actions)
        actions = course.scheduler.step(state.now_s, events)
        follow(state.now_s, events)


@pytest.mark.parametrize("sharing", [CELLS, PRIVATE, NUMBERS])
@examples(80)
@given(data=st.data())
def test_virtual_clusters_hold_with_jobs_that_grow_and_shrink(sharing: str, data: st.DataObject) -> None:
    world = data.draw(elastic_vcs()).shared_as(sharing)
    course = world.begin()
    follow = Follow(world, course)

    def look(at_s: float, events: list[Event]) -> None:
        follow(at_s, events)
        if not world.round_s or at_s % world.round_s == 0:
            check_shared(course.state, planner_of(course))

    course.finish(look)
    follow.finish()


@examples(60)
@given(data=st.data())
def test_a_fork_of_virtual_clusters_goes_on_like_the_original(data: st.DataObject) -> None:
    original, fork = fork_of(data, data.draw(elastic_vcs(calm=True)))
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


@st.composite
def elastic_vcs(draw: st.DrawFn, *, calm: bool = False) -> SharedWorld:
    """Most VCs use AFS, the others policies that lend and borrow; jobs of all of them may accept a range."""
    world = draw(shared_worlds(policies=("fifo", "srsf", "drf"), calm=calm))
    for vc in world.layout.vcs.values():
        if draw(st.sampled_from([True, True, False])):
            vc.policy = "afs-l:restart=0"
    trace = msgspec.structs.replace(world.trace, jobs=[stretched(draw, entry) for entry in world.trace.jobs])
    return msgspec.structs.replace(world, trace=trace)


@st.composite
def rewritten(draw: st.DrawFn) -> tuple[World, World]:
    """The same work, written as one GPU for long or as several for a shorter time."""
    long, short = [], []
    for number in range(draw(st.integers(2, 8))):
        work_s, at_s = draw(st.sampled_from([60, 100, 120, 600, 600])), draw(st.sampled_from([0, 0, 0, 10, 20, 60]))
        parts = draw(st.sampled_from([2, 3, 5, 5, 6]))
        bounds = {"min_gpus": 1, "max_gpus": draw(st.sampled_from([2, 5, 8])), "id": f"j{number}"}
        long.append(job(1, work=float(work_s * parts), at=float(at_s), **bounds))
        short.append(job(parts, work=float(work_s), at=float(at_s), **bounds))
    where = cluster(draw(st.sampled_from(["1x4", "1x5", "2x4", "1x8"])))
    policy = draw(st.sampled_from(["afs-l:restart=0", "afs-l", "afs-l:restart=5,horizon=100"]))
    restart_s = draw(st.sampled_from([0.0, 30.0]))
    worlds = [World(trace(*jobs), where, policy, restart_s=restart_s) for jobs in (long, short)]
    return worlds[0], worlds[1]


@examples(200)
@given(pair=rewritten())
def test_the_same_work_gives_the_same_result_however_it_is_written(pair: tuple[World, World]) -> None:
    results = [
        [(row.start_s, row.finish_s, row.resizes, row.preemptions) for row in run(world).rows()] for world in pair
    ]
    assert results[0] == results[1]
