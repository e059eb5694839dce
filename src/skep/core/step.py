"""One step of the scheduler: fold what happened, decide, and say what to do about the difference.

Holds need no mechanism of their own: a job that was given cells others are still leaving is wanted there, so nobody
else gets them, and it is launched when the last of them has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from skep.core.actions import Action, Launch, Move, Resume, Stop, Suspend
from skep.core.cluster import WHOLE, Cluster, Slice
from skep.core.errors import InvariantBroken
from skep.core.events import Event
from skep.core.job import Job, JobState
from skep.core.nodes import rehouse
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.rounds import everything, gather, is_boundary, next_boundary
from skep.core.state import State
from skep.core.view import Trigger

PLANS_MAX = 1000
"""Of one step; a decision makes news only where it takes back a start that nobody was told of."""


class Change(msgspec.Struct):
    """What a `PolicyChanged` or `ClusterChanged` brings, made by those who can read files."""

    make: Callable[[Cluster], Planner]
    cluster: Cluster | None = None
    """Of a log that is older than events about nodes."""


class Scheduler:
    """The state and the planner that decides on it. The one place where decisions are made, in every world."""

    def __init__(self, state: State, planner: Planner) -> None:
        self.state = state
        self.planner = planner
        self.plans: list[Plan] = []
        """Of the last step, in turn."""
        self._attach()

    def _attach(self) -> None:
        self.planner.attach(self.state, self.state.memory)
        self.gathered = everything()
        """What a planner that decides in rounds has not been told yet."""

    def step(self, at_s: float, events: list[Event], change: Change | None = None) -> list[Action]:
        state = self.state
        state.now_s = at_s
        if change is not None and change.cluster is not None:
            rehouse(state, change.cluster)
        apply = state.apply
        for event in events:
            apply(event)
        is_reshaped = state.settle_nodes()
        if change is not None:
            self.planner = change.make(state.cluster)
        if change is not None or is_reshaped:
            self._attach()
        self.decide()
        if not state.dirty and not state.settings:
            return []
        return reconcile(state)

    def decide(self) -> None:
        """Ask the planner until nothing is news to it any more."""
        state = self.state
        self.plans = []
        while state.trigger.wakes:
            if len(self.plans) == PLANS_MAX:
                raise InvariantBroken(f"after {PLANS_MAX} decisions at one moment there is still something to decide")
            trigger = state.take_trigger()
            if self.planner.round_s:
                plan = self._plan_round(trigger)
            else:
                plan = self.planner.plan(state, state.memory, trigger)
            state.commit(plan)
            self.plans.append(plan)

    def _plan_round(self, trigger: Trigger) -> Plan:
        state, round_s = self.state, self.planner.round_s
        gather(self.gathered, trigger)
        if trigger.is_timer or is_boundary(state.now_s, round_s):
            gathered, self.gathered = self.gathered, Trigger()
            gathered.is_timer = True
            plan = self.planner.plan(state, state.memory, gathered)
        else:
            plan = state.new_plan()
        is_busy = state.pending_count or state.held_jobs or plan.decisions
        plan.wake_s = next_boundary(state.now_s, round_s) if is_busy else None
        return plan


def reconcile(state: State) -> list[Action]:
    """The actions that bring what is seen to what is wanted; launches that must wait stay dirty."""
    actions: list[Action] = []
    launches: list[Job] = []
    for job in state.dirty:
        if job.state is JobState.STOPPING or job.is_ending or job.is_expired:
            if job.held is not None and job.seq not in state.leaving:
                state.leaving[job.seq] = job
                state.moving.pop(job.seq, None)
                actions.append(Stop(job.id, stop_cause(job), job.launches))
        elif job.bound is None or job.bound == job.held:
            continue
        elif job.bound.resumes_as is not None:
            if job.bound.resumes_as == job.held:  # else it is still on its way there
                state.moving[job.seq] = job
                job.halting_since_s = state.now_s
                actions.append(Suspend(job.id, job.held_launch, job.bound.memory or "resident"))
        else:
            launches.append(job)
            if is_move(job):
                state.moving[job.seq] = job
    actions += settings_of(state)
    state.dirty = []
    blocked = blocked_of(state, launches) if launches and (state.leaving or state.moving) else ()
    for job in launches:
        allocation = job.bound
        assert allocation is not None
        if job.seq in blocked:
            state.dirty.append(job)
        elif resumes(job):
            actions.append(Resume(job.id, job.held_launch))
        elif job.held is not None:
            job.launches += 1
            actions.append(Move(job.id, allocation, job.launches))
        else:
            job.held = allocation
            job.launches += 1
            job.held_launch = job.launches
            actions.append(Launch(job.id, allocation, job.launches))
    return actions


def in_flight(state: State, job: Job) -> Action | None:
    """What the engine was told last to do with a job that is there, and has not answered yet."""
    if job.held is None:
        return None
    if job.seq in state.leaving:
        return Stop(job.id, stop_cause(job), job.launches)
    if job.seq in state.moving and job.launches > job.held_launch:
        assert job.bound is not None
        return Move(job.id, job.bound, job.launches)
    if job.seq in state.moving and job.bound is not None and job.bound.memory is not None:
        return Suspend(job.id, job.held_launch, job.bound.memory)
    if resumes(job) and job not in state.dirty:
        return Resume(job.id, job.held_launch)
    return None


def stop_cause(job: Job) -> str:
    if job.is_ending:
        return job.reason
    return "its lease is over" if job.is_expired else "preempted"


def settings_of(state: State) -> list[Action]:
    """What jobs are to be told that still run as they did when that was decided."""
    told, state.settings = state.settings, []
    return [each for each in told if (job := state.jobs[each.job_id]).held_launch == each.launch and is_there(job)]


def is_there(job: Job) -> bool:
    return job.held is not None and job.state is JobState.RUNNING and not job.is_ending


def resumes(job: Job) -> bool:
    """Whether all that is wanted of a job that stands still is to go on there."""
    return job.held is not None and job.held.resumes_as is not None and job.held.resumes_as == job.bound


def blocked_of(state: State, launches: list[Job]) -> set[int]:
    """Who must wait: somebody still is where the job is to go, or still runs where it is to go on. Moves do not wait
    for moves: two jobs may swap their cells, and only the engine, which is told of both, can carry that out. So a move
    does wait for one that waits itself."""
    going, moving = list(state.leaving.values()), list(state.moving.values())
    halting = [job for job in moving if job.bound is not None and job.bound.is_suspended]
    before_moves, before_others = held_by_node(going + halting), held_by_node(going + moving)
    blocked = {job.seq for job in launches if is_behind(job, before_moves if is_move(job) else before_others)}
    moves = [job for job in launches if is_move(job)]
    waiting = [job for job in moves if job.seq in blocked]
    for first in waiting:  # which grows
        held = held_by_node([first])
        behind = [job for job in moves if job.seq not in blocked and is_behind(job, held)]
        blocked.update(job.seq for job in behind)
        waiting += behind
    return blocked


def is_move(job: Job) -> bool:
    return job.held is not None and not resumes(job)


def held_by_node(jobs: Iterable[Job]) -> dict[int, list[Slice]]:
    """What these jobs, as seen, have on each node."""
    found: dict[int, list[Slice]] = {}
    for job in jobs:
        for piece in job.held.slices if job.held is not None else ():
            found.setdefault(piece.node, []).append(piece)
    return found


def is_behind(job: Job, held: dict[int, list[Slice]]) -> bool:
    """Whether others have, of what is held on each node, part of what the job is to have."""
    wanted = job.bound.slices if job.bound is not None else ()
    return any(overlaps(mine, theirs) for mine in wanted for theirs in held.get(mine.node, ()))


def overlaps(mine: Slice, theirs: Slice) -> bool:
    """Whether both, on one node, need the same gpus, or its cpus, memory or shares."""
    both_whole = mine.milli == theirs.milli == WHOLE
    books = (mine.cpu_milli and theirs.cpu_milli) or (mine.memory_mib and theirs.memory_mib)
    return bool(mine.gpus & theirs.gpus or books or not both_whole)
