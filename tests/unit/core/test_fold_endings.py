"""What follows when jobs end: those that need them, and starts that are taken back."""

from __future__ import annotations

import pytest
from tests.support import job, take_trigger
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.actions import Launch
from skep.core.events import (
    Exit,
    JobHeld,
    JobReleased,
    JobsForgotten,
    JobSubmitted,
    PriorityChanged,
    StopRequested,
    TasksExited,
)
from skep.core.fold.endings import leave_group
from skep.core.job import JobState
from skep.core.model import GroupRef, JobSpec, gpu_shape


def needy(name: str, *needs: str) -> JobSubmitted:
    return JobSubmitted(JobSpec(name, (gpu_shape(1),), needs=needs))


def test_all_that_need_a_job_go_on_when_it_has_succeeded() -> None:
    world = ByHand(job(id="a"), job(id="b"))
    trigger = world.apply(needy("c", "a"), needy("d", "a", "b"), needy("e", "a"))
    assert trigger.submitted == []
    world.apply(StopRequested("c", "not wanted"))
    world.start("a", gpus(0, 0b1))
    trigger = world.apply(TasksExited("a", Exit.FINISHED, 1.0))
    assert [each.id for each in trigger.submitted] == ["e"], "c was stopped, d still needs b"
    world.start("b", gpus(0, 0b1))
    assert [each.id for each in world.apply(TasksExited("b", Exit.FINISHED, 1.0)).submitted] == ["d"]


def test_all_that_need_a_job_end_when_it_has_not_succeeded() -> None:
    world = ByHand(job(id="a"))
    world.apply(needy("c", "a"), needy("d", "c"), needy("e", "a"))
    world.start("a", gpus(0, 0b1))
    world.apply(TasksExited("a", Exit.FAILED, 1.0))
    assert {name: world[name].state for name in "cde"} == dict.fromkeys("cde", JobState.STOPPED)
    assert world["c"].reason == "needs a, which ended as failed"
    assert world.state.pending_count == 0
    world.apply(needy("f", "a"), needy("g", "nosuch"))
    assert (world["f"].state, world["g"].state) == (JobState.STOPPED, JobState.PENDING)


def test_a_start_that_is_taken_back_before_its_launch_is_pending_again() -> None:
    """Its cells are still being left by another job, so no launch was sent."""
    world = ByHand(job(id="a"), job(id="b"), on="1x1")
    world.start("a", gpus(0, 0b1))
    a, b = world["a"], world["b"]
    world.decide(lambda plan: plan.stop(a, "b"), lambda plan: plan.start(b, gpus(0, 0b1), until_s=50.0))
    assert not any(isinstance(action, Launch) for action in world.actions)
    assert (b.state, world.state.pending_count) == (JobState.LAUNCHING, 0)
    plan = world.state.new_plan()
    plan.stop(b, "a")
    world.state.commit(plan)
    assert (b.state, b.bound, world.state.pending_count) == (JobState.PENDING, None, 1)
    assert take_trigger(world.state).returned == [b]
    assert world.state.timers.all() == [], "its lease has not begun"


def test_only_jobs_that_have_ended_are_forgotten() -> None:
    world = ByHand(job(id="a"), job(id="b"))
    world.start("a", gpus(0, 0b1))
    world.apply(TasksExited("a", Exit.FINISHED, 1.0))
    world.apply(JobsForgotten(("a", "b")))
    assert list(world.state.jobs) == ["b"]


@pytest.mark.parametrize("is_held", [False, True])
def test_another_priority_puts_a_job_into_another_place_of_the_queue(is_held: bool) -> None:
    world = ByHand(job(id="a"))
    if is_held:
        world.apply(JobHeld("a", "wait"))
    trigger = world.apply(PriorityChanged("a", 5))
    a = world["a"]
    assert (a.spec.priority, a.rank) == (5, -5)
    assert trigger.withdrawn == [a]
    assert trigger.submitted == ([] if is_held else [a])


def test_the_priority_of_a_running_job_stays() -> None:
    world = ByHand(job(id="a"))
    world.start("a", gpus(0, 0b1))
    world.apply(PriorityChanged("a", 5))
    assert (world["a"].spec.priority, world["a"].rank) == (0, 0)


def test_hold_and_release() -> None:
    world = ByHand(job(id="a"))
    assert world.apply(JobReleased("a")).submitted == [], "it was not held"
    trigger = world.apply(JobHeld("a", "back-off", 50.0))
    assert (trigger.withdrawn, world["a"].hold, world.state.timers.next_s) == ([world["a"]], "back-off", 50.0)
    trigger = world.apply(JobReleased("a"))
    assert (trigger.submitted, world["a"].hold, bool(world.state.timers)) == ([world["a"]], "", False)
    world.start("a", gpus(0, 0b1))
    world.apply(JobHeld("a", "too late"))
    assert world["a"].hold == ""


def test_a_stop_of_what_is_over_changes_nothing() -> None:
    world = ByHand(job(id="a"), job(id="b"))
    world.apply(StopRequested("a", "first"), StopRequested("a", "second"))
    assert (world["a"].state, world["a"].reason, world.state.pending_count) == (JobState.STOPPED, "first", 1)
    world.start("b", gpus(0, 0b1))
    world.apply(StopRequested("b", "first"), StopRequested("b", "second"))
    assert (world["b"].is_ending, world["b"].reason) == (True, "first")
    world.apply(TasksExited("b", Exit.PREEMPTED, 1.0))
    assert world["b"].state is JobState.STOPPED


def test_a_job_that_has_ended_is_not_among_the_open_ones() -> None:
    world = ByHand(job(id="a"), job(id="b"))
    world.start("a", gpus(0, 0b1))
    world.apply(TasksExited("a", Exit.FINISHED, 1.0))
    assert world.state.open_jobs == {world["b"].seq: world["b"]}


@pytest.mark.parametrize(("group", "member"), [("nosuch", "a"), ("g", "nosuch"), ("g", "a")])
def test_a_group_counts_the_end_of_each_member_once(group: str, member: str) -> None:
    world = ByHand()
    world.apply(*(JobSubmitted(job(id=name, group=GroupRef("g")).spec) for name in "ab"), StopRequested("a", ""))
    leave_group(world.state, GroupRef(group), member, JobState.FAILED)
    assert (world.state.groups["g"].left, world.state.groups["g"].members["a"]) == (1, JobState.STOPPED)
