"""Actions for the engine: the difference between what is wanted and what was sent.

There are no separate reservations: a job whose cells others are still leaving already has them in the wanted state, so
no other job gets them, and it is launched when the last of them has exited.

`reconcile` computes the difference and changes nothing; `State.send` books the actions as sent (`note_sent`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from skep.core.actions import Action, JobSetting, Launch, Limit, Move, Reshare, Resume, Stop, Suspend, Tune
from skep.core.cluster import WHOLE, Slice
from skep.core.job import Job, JobState

if TYPE_CHECKING:
    from skep.core.state import State

STOPPING = JobState.STOPPING


class Orders:
    """Jobs with actions due, and jobs whose actions the engine has not answered yet, by seq."""

    __slots__ = ("dirty", "leaving", "moving", "settings")

    def __init__(self) -> None:
        self.dirty: dict[int, Job] = {}
        """Jobs for which an action may be due."""
        self.settings: list[JobSetting] = []
        """Settings that are due, or wait for the launch for which they are meant."""
        self.leaving: dict[int, Job] = {}
        """Jobs that were sent a stop and have not exited yet."""
        self.moving: dict[int, Job] = {}
        """Jobs that were sent a move or a suspension and have not answered yet."""


def reconcile(state: State) -> tuple[list[Action], dict[int, Job]]:
    """The actions that are due, and the jobs whose actions must wait. Stops and suspensions come first, then settings,
    other terms, and at last what uses the cells: launches, moves, resumptions."""
    orders = state.orders
    actions: list[Action] = []
    halted: list[Job] = []
    launches: list[Job] = []
    changes: list[Job] = []
    for job in orders.dirty.values():
        if job.held is None:
            if job.bound is not None:
                launches.append(job)
        elif (action := halt(orders, job)) is not None:
            actions.append(action)
            halted.append(job)
        elif is_to_change(job):
            launches.append(job)
            changes.append(job)
    if orders.settings:
        actions += settings_of(state)
    if not launches:
        return actions, {}
    is_alone = not (changes or halted or orders.leaving or orders.moving)
    blocked = () if is_alone else blocked_of(orders, halted, launches, changes)
    for job in changes:
        if job.bound is not None and tells_terms(job, blocked):
            actions.append(Reshare(job.id, job.held_launch, job.bound))
    waiting: dict[int, Job] = {}
    for job in launches:
        allocation = job.bound
        assert allocation is not None
        if job.seq in blocked:
            waiting[job.seq] = job
        elif job.held is None:
            actions.append(Launch(job.id, allocation, job.launches + 1))
        elif resumes(job):
            actions.append(Resume(job.id, job.held_launch))
        elif not is_reshare(job):
            actions.append(Move(job.id, allocation, job.launches + 1))
    return actions, waiting


def halt(orders: Orders, job: Job) -> Stop | Suspend | None:
    """The stop or suspension that is due for a job which holds something."""
    if is_to_leave(job):
        return None if job.seq in orders.leaving else Stop(job.id, stop_cause(job), job.launches)
    wanted = job.bound
    if wanted is not None and wanted.resumes_as is not None and wanted.resumes_as == job.held:
        return Suspend(job.id, job.held_launch, wanted.memory or "resident")
    return None


def is_to_leave(job: Job) -> bool:
    return job.state is STOPPING or job.is_ending or job.is_expired


def is_to_change(job: Job) -> bool:
    """True if the job is to run somewhere else, or otherwise than now."""
    wanted = job.bound
    return wanted is not None and wanted.resumes_as is None and wanted != job.held and not is_to_leave(job)


# What was sent -----------------------------------------------------------------------------------------------------


def note_sent(state: State, actions: list[Action], waiting: dict[int, Job]) -> None:
    """Book these actions as sent; what must wait stays due. Resumptions leave nothing to book."""
    orders = state.orders
    for action in actions:
        job = state.jobs[action.job_id]
        if isinstance(action, Launch):
            job.held = action.allocation
            job.launches = job.held_launch = action.launch
        elif isinstance(action, Stop):
            orders.leaving[job.seq] = job
            orders.moving.pop(job.seq, None)
        elif isinstance(action, Move):
            job.launches = action.launch
            orders.moving[job.seq] = job
        elif isinstance(action, Suspend):
            job.halting_since_s = state.now_s
            orders.moving[job.seq] = job
        elif isinstance(action, Reshare):  # the engine changes terms at once, so the job holds them from now on
            memory = job.held.memory if job.held is not None else None
            job.held = action.allocation if memory is None else action.allocation.suspended(memory)
        elif isinstance(action, Limit):
            job.limit_milli = action.milli
        elif isinstance(action, Tune):
            job.settings = {**job.settings, **action.settings}
    orders.dirty = waiting
    if orders.settings:
        orders.settings = [each for each in orders.settings if is_ahead(state, each)]


# What is in flight, and what must wait -----------------------------------------------------------------------------


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
    if resumes(job) and job.seq not in state.orders.dirty:
        return Resume(job.id, job.held_launch)
    return None


def stop_cause(job: Job) -> str:
    if job.is_ending:
        return job.reason
    if job.hold:
        return f"paused: {job.hold}"
    return "its lease is over" if job.is_expired else "preempted"


def settings_of(state: State) -> list[Action]:
    """Settings for jobs that are still in the launch for which the settings were decided."""
    due = state.orders.settings
    return [each for each in due if (job := state.jobs[each.job_id]).held_launch == each.launch and is_there(job)]


def is_ahead(state: State, setting: JobSetting) -> bool:
    """True if the launch for which it is meant is to come: it does not run yet, is on its way, or must wait."""
    job, orders = state.jobs[setting.job_id], state.orders
    if setting.launch == job.launches:
        return job.state is JobState.LAUNCHING or (job.seq in orders.moving and job.held_launch < setting.launch)
    return setting.launch > job.launches and job.seq in orders.dirty and job.bound is not None


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


def blocked_of(orders: Orders, halted: list[Job], launches: list[Job], changes: list[Job]) -> set[int]:
    """The jobs that must wait: another job still is where this one is to go, or still runs where this one is to
    resume. Moves do not wait for moves: two jobs may swap their cells, and only the engine, which gets both moves, can
    carry that out. A move does wait for a move that is itself waiting. Other terms wait as moves do, those of a job
    that is to have its GPUs to itself also for neighbours that move away; and everything waits for a job that still has
    its old terms."""
    moving = [*orders.leaving.values(), *orders.moving.values(), *halted]
    if not changes:  # they are started: nothing waits for them
        held = held_by_node(moving)
        return {job.seq for job in launches if is_behind(job, held)}
    moves = [job for job in changes if is_move(job)]
    halting = [job for job in orders.moving.values() if job.bound is not None and job.bound.is_suspended]
    before_moves = held_by_node([*orders.leaving.values(), *halting, *halted])
    before_others = held_by_node(moving + moves)
    stays = {job.seq for job in changes if is_move(job) or is_reshare(job)}
    blocked = {job.seq for job in launches if is_behind(job, before_moves if job.seq in stays else before_others)}
    alone = [job for job in changes if is_reshare(job) and job.bound is not None and not job.bound.mode()]
    blocked.update(job.seq for job in alone if is_beside(job, before_others))
    waiting = [job for job in launches if job.seq in stays & blocked]
    for first in waiting:  # `waiting` grows in the loop
        held = held_by_node([first])
        others, must_wait = (launches, is_beside) if is_reshare(first) else (moves, is_behind)
        behind = [job for job in others if job.seq not in blocked and must_wait(job, held)]
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


def is_beside(job: Job, held: dict[int, list[Slice]]) -> bool:
    """True if others have some of the GPUs that the job is to have."""
    assert job.bound is not None
    return any(mine.gpus & theirs.gpus for mine in job.bound.slices for theirs in held.get(mine.node, ()))


def overlaps(mine: Slice, theirs: Slice) -> bool:
    """True if both need the same GPUs, or the CPUs, memory or shares, of one node."""
    if mine.gpus & theirs.gpus or not mine.milli == theirs.milli == WHOLE:
        return True
    is_same = (mine.cpu_milli and theirs.cpu_milli) or (mine.memory_mib and theirs.memory_mib)
    return bool(is_same or {name for name, _ in mine.extras} & {name for name, _ in theirs.extras})
