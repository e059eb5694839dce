"""Actions for the engine: the difference between the wanted and the seen state.

There are no separate reservations: a job whose cells others are still leaving already has them in the wanted state, so
no other job gets them, and it is launched when the last of them has exited.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from skep.core.actions import Action, JobSetting, Launch, Move, Reshare, Resume, Stop, Suspend
from skep.core.cluster import WHOLE, Allocation, Slice
from skep.core.job import Job, JobState

if TYPE_CHECKING:
    from skep.core.state import State

STOPPING = JobState.STOPPING


class Orders:
    """Jobs with actions due, and jobs whose actions the engine has not answered yet."""

    __slots__ = ("dirty", "leaving", "moving", "settings")

    def __init__(self) -> None:
        self.dirty: list[Job] = []
        """Jobs whose wanted and seen allocations may differ."""
        self.settings: list[JobSetting] = []
        """Settings for running jobs."""
        self.leaving: dict[int, Job] = {}
        """Jobs that were sent a stop and have not exited yet, by seq."""
        self.moving: dict[int, Job] = {}
        """Jobs that were sent a move or a suspension and have not answered yet, by seq."""


def reconcile(state: State) -> list[Action]:
    """The actions that bring the seen state to the wanted one. Launches that must wait stay dirty."""
    orders = state.orders
    actions: list[Action] = []
    launches: list[Job] = []
    changes: list[Job] = []
    for job in orders.dirty:
        if job.held is not None:
            halt_or_change(state, job, actions, launches, changes)
        elif job.bound is not None:
            launches.append(job)
    orders.dirty = []
    if orders.settings:
        actions += settings_of(state)
    if not launches:
        return actions
    blocked = blocked_of(orders, launches, changes) if changes or orders.leaving or orders.moving else ()
    for job in changes:
        if tells_terms(job, blocked):
            actions.append(Reshare(job.id, job.held_launch, reshared(job)))
    for job in launches:
        allocation = job.bound
        assert allocation is not None
        if blocked and job.seq in blocked and allocation != job.held:
            orders.dirty.append(job)
        elif job.held is None:
            job.held = allocation
            job.launches = job.held_launch = launch = job.launches + 1
            actions.append(Launch(job.id, allocation, launch))
        elif job.held != allocation:  # else it was decided about twice in one plan, or needed only other terms
            continue_on(orders, job, allocation, actions)
    return actions


def halt_or_change(state: State, job: Job, actions: list[Action], launches: list[Job], changes: list[Job]) -> None:
    """Stop or suspend a job that holds something. If it is to run somewhere else, or otherwise than now, it is added to
    `launches` and `changes`."""
    orders = state.orders
    if job.state is STOPPING or job.is_ending or job.is_expired:
        if job.seq not in orders.leaving:
            orders.leaving[job.seq] = job
            orders.moving.pop(job.seq, None)
            actions.append(Stop(job.id, stop_cause(job), job.launches))
    elif job.bound is None or job.bound == job.held:
        return
    elif job.bound.resumes_as is not None:
        if job.bound.resumes_as == job.held:  # else it is still moving there
            orders.moving[job.seq] = job
            job.halting_since_s = state.now_s
            actions.append(Suspend(job.id, job.held_launch, job.bound.memory or "resident"))
    else:
        launches.append(job)
        changes.append(job)


def continue_on(orders: Orders, job: Job, allocation: Allocation, actions: list[Action]) -> None:
    """Resume the job, or move it."""
    if resumes(job):
        actions.append(Resume(job.id, job.held_launch))
    else:
        orders.moving[job.seq] = job
        job.launches += 1
        actions.append(Move(job.id, allocation, job.launches))


def in_flight(state: State, job: Job) -> Action | None:
    """The action in flight for this job: the last one that the engine has not answered."""
    if job.held is None:
        return None
    if job.seq in state.orders.leaving:
        return Stop(job.id, stop_cause(job), job.launches)
    if job.seq in state.orders.moving and job.launches > job.held_launch:
        assert job.bound is not None
        return Move(job.id, job.bound, job.launches)
    if job.seq in state.orders.moving and job.bound is not None and job.bound.memory is not None:
        return Suspend(job.id, job.held_launch, job.bound.memory)
    if resumes(job) and job not in state.orders.dirty:
        return Resume(job.id, job.held_launch)
    return None


def stop_cause(job: Job) -> str:
    if job.is_ending:
        return job.reason
    return "its lease is over" if job.is_expired else "preempted"


def settings_of(state: State) -> list[Action]:
    """Settings for jobs that are still in the launch for which the settings were decided."""
    told, state.orders.settings = state.orders.settings, []
    return [each for each in told if (job := state.jobs[each.job_id]).held_launch == each.launch and is_there(job)]


def is_there(job: Job) -> bool:
    return job.held is not None and job.state is JobState.RUNNING and not job.is_ending


def resumes(job: Job) -> bool:
    """True if a suspended job is to be resumed where it is, under any terms."""
    before = job.held.resumes_as if job.held is not None else None
    return before is not None and job.bound is not None and (before == job.bound or job.bound.has_seats_of(before))


def is_reshare(job: Job) -> bool:
    """True if the only change wanted for the job is other terms in the same place."""
    return job.held is not None and job.bound is not None and job.bound.has_seats_of(job.held)


def tells_terms(job: Job, blocked: Container[int]) -> bool:
    """True if the job's terms must be sent now: it runs with other terms, or is about to."""
    if job.seq in blocked or job.held is None:
        return False
    return (is_reshare(job) and job.held != job.bound) or (resumes(job) and job.held.resumes_as != job.bound)


def reshared(job: Job) -> Allocation:
    """The action with the job's new terms; the job holds them from now on."""
    assert job.held is not None
    assert job.bound is not None
    job.held = job.bound if job.held.memory is None else job.bound.suspended(job.held.memory)
    return job.bound


def blocked_of(orders: Orders, launches: list[Job], changes: list[Job]) -> set[int]:
    """The jobs that must wait: another job still is where this one is to go, or still runs where this one is to
    resume. Moves do not wait for moves: two jobs may swap their cells, and only the engine, which gets both moves, can
    carry that out. A move does wait for a move that is itself waiting. Other terms wait as moves do, and everything
    waits for a job that still has its old terms."""
    if not changes:  # they are started: nothing waits for them
        held = held_by_node([*orders.leaving.values(), *orders.moving.values()])
        return {job.seq for job in launches if is_behind(job, held)}
    moves = [job for job in launches if is_move(job)]
    going, moving = list(orders.leaving.values()), [*orders.moving.values(), *moves]
    halting = [job for job in moving if job.bound is not None and job.bound.is_suspended]
    before_moves, before_others = held_by_node(going + halting), held_by_node(going + moving)
    stays = {job.seq for job in launches if is_move(job) or is_reshare(job)}
    blocked = {job.seq for job in launches if is_behind(job, before_moves if job.seq in stays else before_others)}
    waiting = [job for job in launches if job.seq in stays & blocked]
    for first in waiting:  # `waiting` grows in the loop
        held = held_by_node([first])
        others = launches if is_reshare(first) else moves
        behind = [job for job in others if job.seq not in blocked and is_behind(job, held)]
        blocked.update(job.seq for job in behind)
        waiting += behind
    return blocked


def is_move(job: Job) -> bool:
    return job.held is not None and not resumes(job) and not is_reshare(job)


def held_by_node(jobs: Iterable[Job]) -> dict[int, list[Slice]]:
    """What these jobs hold on each node."""
    found: dict[int, list[Slice]] = {}
    for job in jobs:
        for piece in job.held.slices if job.held is not None else ():
            found.setdefault(piece.node, []).append(piece)
    return found


def is_behind(job: Job, held: dict[int, list[Slice]]) -> bool:
    """True if others hold, on some node, part of what the job is to get."""
    assert job.bound is not None
    for mine in job.bound.slices:
        for theirs in held.get(mine.node, ()):
            if overlaps(mine, theirs):
                return True
    return False


def overlaps(mine: Slice, theirs: Slice) -> bool:
    """True if both need the same GPUs, or the CPUs, memory or shares, of one node."""
    if mine.gpus & theirs.gpus or not mine.milli == theirs.milli == WHOLE:
        return True
    return bool((mine.cpu_milli and theirs.cpu_milli) or (mine.memory_mib and theirs.memory_mib))
