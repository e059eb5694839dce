"""Requests of owners: jobs are submitted, held, released, given another priority, altered, stopped, dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.core.errors import InvariantBroken
from skep.core.events import (
    GroupFormed,
    JobAltered,
    JobHeld,
    JobReleased,
    JobsForgotten,
    JobSubmitted,
    PriorityChanged,
    StopRequested,
)
from skep.core.fold.endings import close_group, end_needy, end_pending, expire, stop, withdraw
from skep.core.fold.searches import begin_search, is_paused, note_verdict
from skep.core.group import GroupSpec, current, forget, form
from skep.core.job import Job, JobState
from skep.core.model import GroupRef, shown_to
from skep.core.timers import BACK_OFF

if TYPE_CHECKING:
    from skep.core.state import State

PENDING = JobState.PENDING


def job_submitted(state: State, event: JobSubmitted) -> None:
    spec = event.job if state.shows is None else shown_to(state.shows(event.job.vc), event.job)
    job = Job(spec, state.submitted_count, state.now_s)
    state.suit(job)
    if state.jobs.setdefault(spec.id, job) is not job:
        raise InvariantBroken(f"job {spec.id} was submitted twice")
    state.open_jobs[job.seq] = job
    job.hold = event.hold
    state.submitted_count += 1
    state.pending_count += 1
    state.known.note_request(job)
    if spec.group is not None and not join_group(state, spec.group, job):
        return
    for needed in spec.needs:
        other = state.jobs.get(needed)
        if other is not None and other.state.is_final and other.state is not JobState.SUCCEEDED:
            end_needy(state, job, other.id, other.state)
            return
        if other is None or other.state is not JobState.SUCCEEDED:
            job.needs_left += 1
            state.needed_by.setdefault(needed, []).append(job)
    if spec.needs_groups and not await_groups(state, job):
        return
    if job.needs_left or job.hold:
        job.is_ready = False
    else:
        state.wake().submitted.append(job)


def join_group(state: State, ref: GroupRef, job: Job) -> bool:
    """Add the job to its group. False if the outcome of the group is already known; the job is then ended."""
    group = current(state.groups, ref.id)
    group.join(job.id)
    if group.outcome is not None:
        end_pending(state, job, group.reason)
    return group.outcome is None


def await_groups(state: State, job: Job) -> bool:
    """Let the job wait for the groups it needs. False if one of them has failed; the job is then ended."""
    for needed in job.spec.needs_groups:
        group = state.groups.get(needed) or form(state.groups, GroupSpec(needed))
        if not group.has_ended:
            job.needs_left += 1
            group.needed_by.append(job.id)
        elif group.outcome is not None and group.outcome is not JobState.SUCCEEDED:
            end_needy(state, job, group.spec.name or group.id, group.outcome)
            return False
    return True


def job_held(state: State, event: JobHeld) -> None:
    job = state.jobs[event.job_id]
    if event.pauses:
        pause(state, job, event.reason)
    elif job.state is PENDING and not (event.until_s is not None and is_paused(state, job)):
        note_verdict(state, job, is_paused=False)  # another reason than its search; a back-off does not end a pause
        job.hold = event.reason
        job.set_ready()
        state.timers.drop(BACK_OFF, job.id)
        if event.until_s is not None:
            state.timers.set(BACK_OFF, job.id, event.until_s)
        withdraw(state, job)


def pause(state: State, job: Job, reason: str) -> None:
    """A job that runs is pending again, and held, when its tasks have exited."""
    if job.state.is_final or job.is_ending:
        return
    job.hold = reason
    job.set_ready()
    note_verdict(state, job, is_paused=True)
    if job.state is not PENDING:
        expire(state, job)
    if job.state is PENDING:
        withdraw(state, job)


def job_released(state: State, event: JobReleased) -> None:
    release(state, state.jobs[event.job_id])


def release(state: State, job: Job) -> None:
    if job.spec.group is not None:
        note_verdict(state, job, is_paused=False)
    if not job.hold:
        return
    job.hold = ""
    job.set_ready()
    if job.state is PENDING:
        state.timers.drop(BACK_OFF, job.id)
        if job.is_ready:
            state.wake().submitted.append(job)


def priority_changed(state: State, event: PriorityChanged) -> None:
    job = state.jobs[event.job_id]
    if job.state is PENDING:
        job.spec = msgspec.structs.replace(job.spec, priority=event.priority)
        job.rank = -event.priority
        withdraw(state, job)
        if job.is_ready:
            state.wake().submitted.append(job)


def job_altered(state: State, event: JobAltered) -> None:
    """Planners look at everything again, because none of them knows the job under what it asked for before."""
    job = state.jobs[event.job.id]
    if job.state is PENDING:
        if event.job.vc != job.spec.vc:
            state.memory.jobs.pop(job.id, None)  # of the policy of another VC
        job.ask(event.job if state.shows is None else shown_to(state.shows(event.job.vc), event.job))
        state.suit(job)
        job.leave(state.now_s)
        state.wake().nodes_changed = True


def stop_requested(state: State, event: StopRequested) -> None:
    stop(state, state.jobs[event.job_id], event.reason)


def jobs_forgotten(state: State, event: JobsForgotten) -> None:
    state.known.let_go()
    for job_id in event.job_ids:
        job = state.jobs[job_id]
        if job.state.is_final:
            del state.jobs[job_id]
            if job.spec.group is not None:
                forget(state.groups, job.spec.group, job_id)


def group_formed(state: State, event: GroupFormed) -> None:
    group = state.groups.get(event.group.id)
    if group is None or group.has_ended:
        formed = form(state.groups, event.group)
        begin_search(state, formed)
        if formed.outcome is not None:
            close_group(state, formed)
    else:
        group.spec = event.group
