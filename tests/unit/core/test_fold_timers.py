"""Timers that are due: back-offs, leases, time limits, wake-ups."""

from __future__ import annotations

import math

import pytest
from tests.support import World, cluster, job, trace
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.actions import Stop
from skep.core.events import Exit, JobHeld, TasksExited, TimerDue
from skep.core.job import JobState
from skep.core.timers import BACK_OFF, LEASE, LIMIT, PLAN, Timer


@pytest.fixture
def world() -> ByHand:
    """Job `a`, with a limit of 100 s, runs since 10 s; `b` is pending."""
    world = ByHand(job(id="a", time_limit_s=100.0), job(id="b"))
    world.state.now_s = 10.0
    world.start("a", gpus(0, 0b1))
    return world


def test_a_back_off_that_ends_releases_the_job(world: ByHand) -> None:
    world.apply(JobHeld("b", "wait", until_s=20.0))
    trigger = world.apply(TimerDue((Timer(20.0, BACK_OFF, "b"),)), at_s=20.0)
    assert [each.id for each in trigger.submitted] == ["b"]
    assert world["b"].hold == ""


def test_a_job_at_its_limit_is_stopped_for_good(world: ByHand) -> None:
    world.apply(TimerDue((Timer(110.0, LIMIT, "a"),)), at_s=110.0)
    assert (world["a"].is_ending, world["a"].reason) == (True, "its time limit of 100 s is over")
    assert [type(action) for action in world.state.send()] == [Stop]


def test_a_timer_that_was_dropped_in_the_same_instant_is_ignored(world: ByHand) -> None:
    world.apply(TasksExited("a", Exit.FINISHED, 100.0), TimerDue((Timer(110.0, LIMIT, "a"),)), at_s=110.0)
    assert world["a"].state is JobState.SUCCEEDED


def test_the_end_of_a_lease_stops_a_job_as_if_preempted(world: ByHand) -> None:
    world.decide(lambda plan: plan.start(world["b"], gpus(1, 0b1), until_s=30.0))
    world.apply(TimerDue((Timer(30.0, LEASE, "b"),)), at_s=30.0)
    assert (world["b"].is_expired, world["b"].is_ending) == (True, False)
    assert [action.job_id for action in world.state.send()] == ["b"]
    trigger = world.apply(TasksExited("b", Exit.PREEMPTED, 0.0, 1))
    assert [each.id for each in trigger.returned] == ["b"]
    assert (world["b"].state, world["b"].is_expired) == (JobState.PENDING, False)


def test_a_wake_up_is_used_up(world: ByHand) -> None:
    world.decide(lambda plan: plan.wake(40.0))
    trigger = world.apply(TimerDue((Timer(40.0, PLAN),)), at_s=40.0)
    assert trigger.is_timer
    assert world.state.wake_s == math.inf


def test_without_names_everything_that_is_due_counts(world: ByHand) -> None:
    world.apply(JobHeld("b", "wait", until_s=20.0))
    trigger = world.apply(TimerDue(()), at_s=25.0)
    assert not trigger.is_timer, "the planner's own wake-up is not due"
    assert [each.id for each in trigger.submitted] == ["b"]
    assert not world["a"].is_ending
    world.decide(lambda plan: plan.wake(40.0))
    assert world.apply(TimerDue(()), at_s=40.0).is_timer


def test_the_timer_of_a_job_is_no_boundary_of_a_round() -> None:
    jobs = trace(job(id="a", work=1000.0, time_limit_s=70.0), job(id="b", work=10.0))
    course = World(jobs, cluster("1x1"), "fifo", round_s=60.0).begin()
    course.finish()
    assert [row.start_s for row in course.rows()] == [0.0, 120.0]


def test_a_lease_that_ends_before_its_job_was_launched_frees_what_was_booked() -> None:
    world = ByHand(job(id="a"), job(id="b"), on="1x1")
    world.start("a", gpus(0, 0b1))
    world.decide(
        lambda plan: plan.stop(world["a"], "b"), lambda plan: plan.start(world["b"], gpus(0, 0b1), until_s=30.0)
    )
    trigger = world.apply(TimerDue((Timer(30.0, LEASE, "b"),)), at_s=30.0)
    assert (world["b"].state, world["b"].bound, world.state.cluster.nodes[0].free) == (JobState.PENDING, None, 1)
    assert (trigger.returned, trigger.nodes_changed) == ([world["b"]], True)
