"""Makes the change that a reason names, on a fork of a run, and says whether the job starts."""

from __future__ import annotations

import math

from tests.support import World
from tests.support.world import WorldCourse

from skep.core.events import Event, Exit, JobReleased, NodeBack, NodeUndrained, StopRequested, TasksExited, TimerDue
from skep.core.job import Job, JobState
from skep.core.refusal import Change, End, Refusal, Release, Succeed, Undrain, Wait
from skep.core.state import State
from skep.core.timers import PLAN, Timer
from skep.core.why import why


def explained(course: WorldCourse, job: Job) -> Refusal:
    return why(course.state, course.scheduler.planner, job)


def can_be_made(state: State, changes: tuple[Change, ...]) -> bool:
    """Jobs that do not run yet cannot be made to succeed; nodes that are about to change do so when jobs end."""
    needed = [each for each in changes if isinstance(each, Succeed)]
    is_cut = any(isinstance(each, End) and each.more for each in changes)
    if is_cut or any(each.groups for each in needed) or state.health.changes:
        return False
    jobs = [state.jobs.get(name) for each in needed for name in each.jobs]
    return all(job is not None and job.state is JobState.RUNNING for job in jobs)


def starts_with(course: WorldCourse, world: World, job: Job, changes: tuple[Change, ...]) -> bool:
    """True if the job starts when all of these changes are made at once."""
    fork = course.fork(world.planner())
    launches = job.launches
    waits = [each.until_s for each in changes if isinstance(each, Wait) and each.until_s is not None]
    at_s = max([fork.state.now_s, *waits])
    stops = [StopRequested(name, "to see") for each in changes if isinstance(each, End) for name in each.jobs]
    exits = fork.engine.execute(fork.state.now_s, fork.scheduler.step(fork.state.now_s, stops))
    make(fork, at_s, [*exits, *(event for each in changes for event in events_of(each, fork.state, job, at_s))])
    if fork.scheduler.planner.round_s and fork.state.wake_s < math.inf:
        make(fork, fork.state.wake_s, [TimerDue(fork.state.due(fork.state.wake_s))])
    mine = fork.state.jobs[job.id]
    is_ended_by_group = mine.state.is_final and mine.spec.group is not None  # of which another member was stopped
    return mine.launches > launches or mine.allocation is not None or is_ended_by_group


def make(course: WorldCourse, at_s: float, events: list[Event]) -> None:
    """And everything that follows at the same instant."""
    scheduler = course.scheduler
    actions = scheduler.step(at_s, events)
    while actions or scheduler.solved:
        actions = scheduler.step(at_s, [*course.engine.execute(at_s, actions), *scheduler.take_solved()])


def events_of(change: Change, state: State, job: Job, at_s: float) -> list[Event]:
    match change:
        case Undrain(nodes):
            lost = [NodeBack(name) for name in nodes if name in state.health.lost]
            return [*lost, *(NodeUndrained(name) for name in nodes if name in state.health.drained)]
        case End():
            return []  # before: they exit together with the other changes
        case Succeed(jobs):
            return [TasksExited(name, Exit.FINISHED, 0.0) for name in jobs]
        case Release():
            return [JobReleased(job.id)]
        case Wait():
            return [TimerDue(state.due(at_s) or (Timer(at_s, PLAN),))]
        case _:
            raise AssertionError(change)
