"""Jobs that share GPUs, against a naive twin: progress is added up between events from who sits beside whom."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from tests.support.world import WorldCourse
from worlds import examples, outages

from skep.core.cluster import Allocation
from skep.core.events import Event, Exit, TasksExited, TasksMoved, TasksStarted
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.engines.sim.outages import Outages
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob

FACTOR = 0.5


@st.composite
def sharing_jobs(draw: st.DrawFn) -> TraceJob:
    return job(
        draw(st.sampled_from([1, 1, 1, 2])),
        gpu_milli=draw(st.sampled_from([250, 300, 500, 500, 1000])),
        work=float(draw(st.sampled_from([0, 10, 50, 50, 100, 100, 300]))),
        at=float(draw(st.sampled_from([0, 0, 0, 25, 50, 120]))),
    )


@st.composite
def sharing_worlds(draw: st.DrawFn) -> World:
    where = cluster(draw(st.sampled_from(["1x1", "1x2", "2x1", "2x2"])))
    return World(
        trace(*draw(st.lists(sharing_jobs(), min_size=2, max_size=8))),
        where,
        draw(st.sampled_from(["fifo", "fifo:walk=skip", "srtf", "las:lead=40", "tiresias-l:queues=60"])),
        restart_s=draw(st.sampled_from([0.0, 7.0])),
        checkpoint_s=draw(st.sampled_from([0.0, 25.0])),
        outages=draw(st.sampled_from([(), draw(outages(len(where.nodes)))])),
    )


def begin(world: World) -> WorldCourse:
    state = State(world.cluster.blank())
    profile = read_native(f"default: {{sharing: {FACTOR}}}", "profile.yaml")
    lost = [(down_s, node, True) for node, down_s, _ in world.outages]
    back = [(up_s, node, False) for node, _, up_s in world.outages]
    engine = Simulator(
        world.trace.jobs,
        state.cluster,
        speed=profile.speed(state.cluster),
        restart_s=world.restart_s,
        checkpoint_s=world.checkpoint_s,
        outages=Outages(lost + back),
    )
    return WorldCourse(Scheduler(state, world.planner()), engine)


class Twin:
    """Who holds what since when, and the work that follows from it. Knows neither milestones nor rates."""

    def __init__(self, world: World, state: State) -> None:
        self.restart_s, self.checkpoint_s = world.restart_s, world.checkpoint_s
        self.state = state
        self.needed = {entry.spec.id: entry.work_s for entry in world.trace.jobs}
        self.done = dict.fromkeys(self.needed, 0.0)
        self.starts = dict.fromkeys(self.needed, 0)
        self.held: dict[str, tuple[Allocation, float]] = {}
        """Where each job is, and from when on it makes progress."""
        self.now_s = 0.0

    def __call__(self, at_s: float, events: list[Event]) -> None:
        self._pass_time(at_s)
        for event in events:
            if isinstance(event, TasksStarted | TasksMoved):
                held = self.state.jobs[event.job_id].held
                assert held is not None
                restart_s = self.restart_s if self.starts[event.job_id] else 0.0
                self.held[event.job_id] = (held, at_s + restart_s)
                self.starts[event.job_id] += 1
            elif isinstance(event, TasksExited):
                self._leave(event)

    def _pass_time(self, at_s: float) -> None:
        moments = {self.now_s, at_s} | {since_s for _, since_s in self.held.values() if self.now_s < since_s < at_s}
        for start_s, end_s in itertools.pairwise(sorted(moments)):
            for name, (allocation, since_s) in self.held.items():
                if since_s <= start_s:
                    self.done[name] += (end_s - start_s) * self._rate(name, allocation)
        self.now_s = at_s
        for name in self.held:
            assert self.done[name] <= self.needed[name] + 1e-6, f"{name} should have ended"

    def _rate(self, name: str, allocation: Allocation) -> float:
        mine = gpus_of(allocation)
        others = sum(bool(mine & gpus_of(held)) for other, (held, _) in self.held.items() if other != name)
        return FACTOR ** (others if len(mine) == 1 else min(others, 1))

    def _leave(self, event: TasksExited) -> None:
        name = event.job_id
        del self.held[name]
        if event.exit is Exit.NODE_LOST:  # back to its last checkpoint
            assert self.done[name] - self.checkpoint_s - 1e-6 <= event.work_s <= self.done[name] + 1e-6
        else:
            assert event.work_s == pytest.approx(self.done[name], abs=1e-6)
        if event.exit is Exit.FINISHED:
            assert self.done[name] == pytest.approx(self.needed[name], abs=1e-6)
        self.done[name] = event.work_s


def gpus_of(allocation: Allocation) -> set[tuple[int, int]]:
    """(node, GPU) of whatever it holds a part of; whole GPUs have no neighbours, so they may count as well."""
    return {(piece.node, gpu) for piece in allocation.slices for gpu in range(64) if piece.gpus >> gpu & 1}


@examples(200)
@given(world=sharing_worlds())
def test_neighbours_slow_each_other_while_they_are_there_and_no_longer(world: World) -> None:
    course = begin(world)
    twin = Twin(world, course.state)
    course.finish(twin)
    assert not course.engine.rates.tenants
    assert not twin.held


@pytest.mark.parametrize("policy", ["e-las:lead=0.1,scale=100,weight=0.7", "las:lead=60"])
def test_a_neighbour_that_starts_moves_the_next_crossing(policy: str) -> None:
    """The first job slows down at 50, so that its key rises faster; a look at that moment changes nothing."""
    jobs = [
        job(gpu_milli=400, work=300.0),
        job(gpu_milli=700, at=5.0, work=50.0),
        job(gpu_milli=300, at=50.0, work=500.0),
    ]
    looked_at = [*jobs, job(8, at=50.001)]
    seen = [starts_of(entries, policy)[:3] for entries in (jobs, looked_at)]
    assert seen[0] == pytest.approx(seen[1], abs=1e-3)


def starts_of(entries: list[TraceJob], policy: str) -> list[float | None]:
    course = begin(World(trace(*entries), cluster("1x1"), policy, restart_s=0.0, checkpoint_s=0.0))
    while course.advance():
        pass
    return [job.start_s for job in course.state.jobs.values()]
