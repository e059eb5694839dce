"""The end of runs, jobs and groups, and its consequences: other jobs become eligible, are rejected, or end too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skep.core.events import GroupEnded
from skep.core.group import Group
from skep.core.job import Job, JobState
from skep.core.model import GroupRef
from skep.core.timers import LEASE, OF_SEARCHES

if TYPE_CHECKING:
    from skep.core.state import State

NEEDS = "needs "
"""The reason of a job that ended because another one did not succeed begins with it."""
PENDING, UNRUNNABLE = JobState.PENDING, JobState.UNRUNNABLE


def withdraw(state: State, job: Job) -> None:
    job.leave(state.now_s)
    state.wake().withdrawn.append(job)


def stop(state: State, job: Job, reason: str) -> None:
    if job.state.is_final or job.is_ending:
        return
    if job.state is PENDING:
        end_pending(state, job, reason)
        return
    job.reason = reason
    if job.held is not None:
        job.is_ending = True
        state.orders.dirty[job.seq] = job
        return
    assert job.bound is not None  # it still waits for others to leave its cells
    state.cluster.give(job.bound, job.seq)
    job.allocation = job.bound = None
    end(state, job, JobState.STOPPED)


def end_pending(state: State, job: Job, reason: str, ended_as: JobState = JobState.STOPPED) -> None:
    state.pending_count -= 1
    job.needs_left = 0
    job.set_ready()
    job.reason = reason
    withdraw(state, job)
    close(state, job, ended_as)


def end_needy(state: State, job: Job, needed: str, ended_as: JobState) -> None:
    never = ended_as is JobState.UNRUNNABLE
    how = "can never run" if never else f"ended as {ended_as}"
    end_pending(state, job, f"{NEEDS}{needed}, which {how}", JobState.UNRUNNABLE if never else JobState.STOPPED)


def end(state: State, job: Job, ended_as: JobState) -> None:
    state.wake().ended.append(job)
    close(state, job, ended_as)


def close(state: State, job: Job, ended_as: JobState) -> None:
    """The job has ended: jobs that need it become eligible or are rejected."""
    job.state = job.ended = ended_as
    del state.open_jobs[job.seq]
    state.known.note_end(job)
    if state.memory.jobs:
        state.memory.jobs.pop(job.id, None)
    if state.timers.by_job:
        state.timers.drop_all(job.id)
    if ended_as is not UNRUNNABLE:  # which never began
        job.finish_s = state.now_s
    if state.needed_by:
        answer(state, state.needed_by.pop(job.id, ()), job.id, ended_as)
    if job.spec.group is not None:
        leave_group(state, job.spec.group, job.id, ended_as)


def answer(state: State, needy: Iterable[Job], needed: str, ended_as: JobState) -> None:
    for waiting in needy:
        if waiting.state is not PENDING:
            continue
        if ended_as is not JobState.SUCCEEDED:
            end_needy(state, waiting, needed, ended_as)
            continue
        waiting.needs_left -= 1
        waiting.set_ready()
        if waiting.is_ready:
            state.wake().submitted.append(waiting)


def unstart(state: State, job: Job) -> None:
    """The job was stopped before its launch was sent: it is pending again."""
    state.timers.drop(LEASE, job.id)
    job.state = PENDING
    state.pending_count += 1
    state.wake().returned.append(job)


def expire(state: State, job: Job) -> None:
    """The job is stopped as if preempted; the planner is informed when it has exited."""
    if job.held is not None:
        job.is_expired = True
        state.orders.dirty[job.seq] = job
    elif job.bound is not None:  # it still waits for others to leave its cells
        state.cluster.give(job.bound, job.seq)
        job.allocation = job.bound = None
        state.wake().nodes_changed = True  # no plan has counted on its cells before
        unstart(state, job)


def push_out(state: State, job: Job) -> None:
    """Stop a job where it is: it is pending again when its tasks have exited."""
    assert job.bound is not None
    state.cluster.give(job.bound, job.seq)
    job.allocation = job.bound = None
    job.state = JobState.STOPPING
    state.orders.dirty[job.seq] = job


def leave_group(state: State, ref: GroupRef, member: str, ended_as: JobState) -> None:
    group = state.groups.get(ref.id)
    if group is None or member not in group.members or group.members[member] is not None:
        return  # it belonged to an earlier group of that id, which has ended
    was_open = group.outcome is None
    group.note_end(member, ref.role, ended_as)
    if group.has_ended:
        close_group(state, group)
    elif was_open and group.outcome is not None:
        stop_members(state, group)


def group_ended(state: State, event: GroupEnded) -> None:
    group = state.groups.get(event.group_id)
    if group is not None:
        end_group(state, group, event.outcome, event.reason)


def end_group(state: State, group: Group, outcome: JobState, reason: str) -> None:
    if group.outcome is not None:
        return
    group.outcome, group.reason = outcome, reason
    if group.has_ended:
        close_group(state, group)
    else:
        stop_members(state, group)


def stop_members(state: State, group: Group) -> None:
    for name in [name for name, ended_as in group.members.items() if ended_as is None]:
        if name in state.jobs:
            stop(state, state.jobs[name], group.reason)
        else:
            end_group(state, state.groups[name], JobState.STOPPED, group.reason)


def close_group(state: State, group: Group) -> None:
    """No member is left: jobs that need the group become eligible or are rejected."""
    assert group.outcome is not None
    for kind in OF_SEARCHES if group.spec.search is not None else ():
        state.timers.drop(kind, group.id)
    needy = [state.jobs[name] for name in group.needed_by]
    group.needed_by = []
    answer(state, needy, group.spec.name or group.id, group.outcome)
    if group.spec.within is not None:
        leave_group(state, group.spec.within, group.id, group.outcome)
