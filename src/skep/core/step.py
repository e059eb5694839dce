"""One step of the scheduler: fold what happened, decide, and say what to do about the difference.

Holds need no mechanism of their own: a job that was given cells others are still leaving is wanted there, so nobody
else gets them, and it is launched when the last of them has gone.
"""

from __future__ import annotations

from skep.core.actions import Action, Launch, Move, Stop
from skep.core.cluster import WHOLE, Allocation
from skep.core.events import Event
from skep.core.job import Job, JobState
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.state import State


class Scheduler:
    """The state and the planner that decides on it. The one place where decisions are made, in every world."""

    def __init__(self, state: State, planner: Planner) -> None:
        self.state = state
        self.planner = planner
        planner.attach(state, state.memory)

    def step(self, at_s: float, events: list[Event]) -> list[Action]:
        state = self.state
        state.now_s = at_s
        apply = state.apply
        for event in events:
            apply(event)
        while state.trigger.wakes:
            plan = self.planner.plan(state, state.memory, state.take_trigger())
            state.commit(plan)
        if not state.dirty:
            return []
        return reconcile(state)


def reconcile(state: State) -> list[Action]:
    """The actions that bring what is seen to what is wanted; launches that must wait stay dirty."""
    actions: list[Action] = []
    launches: list[Job] = []
    for job in state.dirty:
        if job.state is JobState.STOPPING:
            if job.seq not in state.leaving:
                state.leaving[job.seq] = job
                state.moving.pop(job.seq, None)
                actions.append(Stop(job.id, "preempted"))
        elif job.bound is not None and job.bound is not job.held:
            launches.append(job)
            if job.held is not None:
                state.moving[job.seq] = job
    state.dirty = []
    for job in launches:
        allocation = job.bound
        assert allocation is not None
        if (state.leaving or state.moving) and is_blocked(state, job, allocation):
            state.dirty.append(job)
        elif job.held is not None:
            actions.append(Move(job.id, allocation))
        else:
            job.held = allocation
            job.launches += 1
            actions.append(Launch(job.id, allocation))
    return actions


def is_blocked(state: State, job: Job, allocation: Allocation) -> bool:
    """Whether somebody still is where the job is to go. Moves do not wait for moves: two jobs may swap their cells,
    and only the engine, which is told of both, can carry that out."""
    others = list(state.leaving.values())
    if job.held is None:
        others += state.moving.values()
    return any(overlaps(allocation, other.held) for other in others if other.held is not None)


def overlaps(one: Allocation, other: Allocation) -> bool:
    """Whether both need the same gpus, or the cpus, memory or shares of the same node."""
    for mine in one.slices:
        for theirs in other.slices:
            if mine.node == theirs.node:
                both_whole = mine.milli == theirs.milli == WHOLE
                books = (mine.cpu_milli and theirs.cpu_milli) or (mine.memory_mib and theirs.memory_mib)
                if mine.gpus & theirs.gpus or books or not both_whole:
                    return True
    return False


def replay(state: State, logged: Plan) -> Plan:
    """The same decisions, tried and kept on another state: how a logged plan is applied without the planner."""
    plan = Plan(state)
    for decision in logged.decisions:
        job = state.jobs[decision.job_id]
        if decision.after is None:
            plan.stop(job, decision.cause)
        elif decision.before is None:
            plan.start(job, decision.after)
        else:
            plan.move(job, decision.after)
    plan.joins = [(state.jobs[job.id], scope) for job, scope in logged.joins]
    plan.rejects = [(state.jobs[job.id], reason) for job, reason in logged.rejects]
    plan.refusals = logged.refusals
    plan.memory = logged.memory
    plan.wake_s = logged.wake_s
    return plan
