"""Timers in the state: what becomes of jobs when they are due, and that copies keep them."""

from __future__ import annotations

import math

from tests.support import take_trigger
from tests.support.builders import cluster
from tests.support.snapshot import snapshot

from skep.core.actions import Action, Launch, Stop
from skep.core.cluster import Cluster
from skep.core.events import (
    ClockStepped,
    Event,
    Exit,
    JobHeld,
    JobReleased,
    JobSubmitted,
    StopRequested,
    TasksExited,
    TasksStarted,
    TimerDue,
)
from skep.core.job import JobState
from skep.core.model import JobSpec, gpu_shape
from skep.core.snapshot import dump, fork, load
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.timers import LEASE, LIMIT, Timer, Timers
from skep.policies.registry import Setting, build_planner


class World:
    """One state, fifo, and an engine that starts whatever it is told."""

    def __init__(self, on: str = "1x2") -> None:
        self.cluster: Cluster = cluster(on)
        state = State(self.cluster)
        self.scheduler = Scheduler(state, build_planner("fifo", Setting(self.cluster)))
        self.now_s = 0.0

    @property
    def state(self) -> State:
        return self.scheduler.state

    def step(self, *events: Event, at_s: float | None = None) -> list[Action]:
        self.now_s = self.now_s if at_s is None else at_s
        actions = self.scheduler.step(self.now_s, list(events))
        starts = [TasksStarted(each.job_id, 1.0, self.now_s) for each in actions if isinstance(each, Launch)]
        return actions + self.step(*starts) if starts else actions

    def due(self) -> list[Action]:
        """The next timers, as the live world tells them."""
        at_s = self.state.next_timer_s
        return self.step(TimerDue(self.state.due(at_s)), at_s=at_s)


def job(name: str, gpus: int = 1, time_limit_s: float | None = None) -> JobSubmitted:
    return JobSubmitted(JobSpec(name, (gpu_shape(gpus),), time_limit_s=time_limit_s))


def copies(state: State) -> list[State]:
    return [fork(state), load(dump(state), state.cluster.blank())]


def test_the_next_one_is_the_earliest_that_still_counts() -> None:
    timers = Timers()
    assert (timers.next_s, timers.due(1e9)) == (math.inf, [])
    timers.set(LIMIT, "a", 30.0)
    timers.set(LEASE, "a", 10.0)
    timers.set(LIMIT, "b", 20.0)
    timers.set(LEASE, "a", 40.0)
    assert timers.next_s == 20.0
    assert timers.drop(LIMIT, "b")
    assert not timers.drop(LIMIT, "b")
    assert timers.due(35.0) == timers.due(35.0) == [Timer(30.0, LIMIT, "a")]
    timers.set(LIMIT, "a", 50.0)
    timers.set(LIMIT, "a", 30.0)
    assert timers.due(35.0) == [Timer(30.0, LIMIT, "a")], "set twice to the same moment it is one"
    assert timers.shifted(5.0).all() == [Timer(35.0, LIMIT, "a"), Timer(45.0, LEASE, "a")]


def test_a_limit_counts_what_a_job_has_held_in_all_its_starts() -> None:
    world = World()
    world.step(job("a", time_limit_s=100.0))
    world.step(TasksExited("a", Exit.PREEMPTED, 30.0), at_s=30.0)  # and started again at once
    assert world.state.next_timer_s == 100.0
    assert world.due() == [Stop("a", "its time limit of 100 s is over", 2)]
    assert world.state.next_timer_s == math.inf
    world.step(TasksExited("a", Exit.PREEMPTED, 100.0))
    assert world.state.jobs["a"].state is JobState.STOPPED


def test_an_exit_of_the_same_moment_comes_before_the_limit() -> None:
    world = World()
    world.step(job("a", time_limit_s=100.0))
    due = TimerDue(world.state.due(100.0))
    assert world.step(TasksExited("a", Exit.FINISHED, 100.0), due, at_s=100.0) == []
    assert world.state.jobs["a"].state is JobState.SUCCEEDED
    assert not world.state.timers


def test_a_back_off_ends_by_itself() -> None:
    world = World()
    world.step(job("a"))
    world.step(TasksExited("a", Exit.RETRIED, 0.0), JobHeld("a", "back-off", 50.0), at_s=10.0)
    assert world.state.jobs["a"].state is JobState.PENDING
    assert [type(action) for action in world.due()] == [Launch]
    assert (world.now_s, len(world.state.timers)) == (50.0, 0)


def test_what_owners_do_ends_a_back_off() -> None:
    for event in (JobHeld("a", "by ann"), JobReleased("a"), StopRequested("a", "by ann")):
        world = World("1x1")
        world.step(job("b"), job("a"))
        world.step(JobHeld("a", "back-off", 50.0))
        assert world.state.next_timer_s == 50.0
        world.step(event)
        assert world.state.next_timer_s == math.inf


def test_a_start_with_an_end_comes_back() -> None:
    world = World("1x1")
    world.step(job("a"), job("b"))
    world.state.timers.set(LEASE, "a", 40.0)
    assert world.due() == [Stop("a", "its lease is over", 1)]
    assert world.state.jobs["a"].state is JobState.RUNNING, "in the books until it has gone"
    assert world.step(TimerDue()) == [], "it is told to stop once"
    actions = world.step(TasksExited("a", Exit.PREEMPTED, 40.0), at_s=41.0)
    assert [action.job_id for action in actions] == ["a"], "fifo: it is first again"
    assert not world.state.jobs["a"].is_expired


def test_a_lease_that_ends_before_its_cells_were_free() -> None:
    """The one that was there takes its time to leave."""
    world = World("1x1")
    world.step(job("a"), job("b"))
    state = world.state
    a, b = state.jobs["a"], state.jobs["b"]
    plan = state.new_plan()
    allocation = a.allocation
    assert allocation is not None
    plan.stop(a, "test")
    plan.start(b, allocation)
    state.commit(plan)
    state.timers.set(LEASE, b.id, 10.0)
    assert [type(action) for action in world.step()] == [Stop]
    state.now_s = 10.0
    state.advance(state.now_s, [TimerDue(state.due(10.0))])
    assert (b.state, b.bound, state.pending_count) == (JobState.PENDING, None, 1)
    assert take_trigger(state).nodes_changed, "its cells are free, and no plan knows it"


def test_copies_keep_them_and_go_on_alike() -> None:
    world = World("1x3")
    world.step(job("a", time_limit_s=100.0), job("b"), job("c"))
    world.state.timers.set(LEASE, "b", 60.0)
    world.step(TasksExited("c", Exit.RETRIED, 0.0), JobHeld("c", "back-off", 80.0), at_s=10.0)
    for copy in copies(world.state):
        assert snapshot(copy) == snapshot(world.state)
        other = World("1x3")
        other.scheduler, other.now_s = Scheduler(copy, build_planner("fifo", Setting(copy.cluster))), world.now_s
        assert other.due() == [Stop("b", "its lease is over", 1)]
        again = fork(copy)
        assert again.jobs["b"].is_expired
        assert [type(action) for action in other.due()] == [Launch]
        assert other.due() == [Stop("a", "its time limit of 100 s is over", 1)]


def test_a_clock_that_is_set_moves_them_all() -> None:
    world = World()
    world.step(job("a", time_limit_s=100.0))
    world.step(ClockStepped(1e6), at_s=1e6 + 20.0)
    assert world.state.next_timer_s == 1e6 + 100.0
