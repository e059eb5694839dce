"""Events about the tasks of jobs, as engines report them: started, suspended, resumed, moved, exited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.core.cluster import WHOLE, Allocation
from skep.core.events import (
    Exit,
    ProgressReported,
    SuspendRefused,
    TasksExited,
    TasksMoved,
    TasksPlaced,
    TasksResumed,
    TasksStarted,
    TasksSuspended,
)
from skep.core.fold.endings import end, push_out
from skep.core.fold.searches import note_result, watch_budget
from skep.core.fold.timers import limit
from skep.core.job import Job, JobState, in_proportion, is_beside_others
from skep.core.knowledge import place_of
from skep.core.timers import LIMIT

if TYPE_CHECKING:
    from skep.core.state import State

LAUNCHING, RUNNING, PENDING = JobState.LAUNCHING, JobState.RUNNING, JobState.PENDING
SUSPENDED, SUCCEEDED, STOPPED = JobState.SUSPENDED, JobState.SUCCEEDED, JobState.STOPPED

PREEMPTED = Exit.PREEMPTED
ENDS = {Exit.FINISHED: SUCCEEDED, Exit.FAILED: JobState.FAILED, Exit.STOPPED: STOPPED}


def tasks_started(state: State, event: TasksStarted) -> None:
    job = state.jobs.get(event.job_id)
    if job is None or job.held is None or job.seq in state.held_jobs or 0 < event.launch < job.held_launch:
        return  # stale or duplicate
    now_s = state.now_s
    if job.state is LAUNCHING:
        job.state = RUNNING
    if job.start_s is None:
        job.start_s = now_s
    job.held_since_s = now_s
    run_on(job, job.held, event)
    state.held_jobs[job.seq] = job
    if job.spec.time_limit_s is not None:
        limit(state, job)
    if job.spec.group is not None:
        watch_budget(state, job)
    state.trigger.started.append(job)
    if is_beside_others(job):
        state.wake().is_slowed = True
    if now_s > job.decided_s:
        wake_others(state)


def tasks_placed(state: State, event: TasksPlaced) -> None:
    """Book what the engine gave instead of what was wanted. Where that is taken, the job is stopped: the planner finds
    another place for it."""
    job = state.jobs.get(event.job_id)
    if job is None or job.held is None or job.bound is None or is_late(job, event.launch):
        return  # stale, or about to leave
    given = event.allocation
    if given is None or not state.cluster.exchange(job.bound, given, job.seq):
        push_out(state, job)
    else:
        job.allocation = job.bound = given
        job.held = given if event.launch == job.held_launch else job.held
    state.wake().nodes_changed = True


def tasks_moved(state: State, event: TasksMoved) -> None:
    job = state.jobs.get(event.job_id)
    if job is None or job.held is None or (event.launch and event.launch <= job.held_launch):
        return  # stale or duplicate
    if job.seq not in state.held_jobs:  # the report of its start is late or lost
        tasks_started(state, TasksStarted(job.id, event.rate, event.progress_since_s, job.held_launch))
    before = job.held_gpus
    settle(state, job)
    job.held = event.allocation
    run_on(job, event.allocation, event)
    if job.held_gpus == before:
        job.migrations += 1
    else:
        job.resizes += 1
    job.work_s = job.saved_s = event.work_s
    state.report_count += 1
    job.held_launch = event.launch or job.launches
    job.limit_milli, job.settings = WHOLE, {}
    if job.spec.group is not None:
        watch_budget(state, job)
    state.orders.moving.pop(job.seq, None)
    if job.held_launch == job.launches:  # else it has already been sent elsewhere
        follow_up(state, job)
    if state.now_s > job.decided_s:
        wake_others(state)


def tasks_suspended(state: State, event: TasksSuspended) -> None:
    job = state.jobs.get(event.job_id)
    if job is None or job.seq not in state.held_jobs or job.is_halted or is_late(job, event.launch):
        return  # stale or duplicate
    assert job.held is not None
    job.restart_left_s = max(job.progress_since_s - max(job.halting_since_s, job.held_since_s), 0.0)
    settle(state, job)
    job.held = job.held.suspended(event.memory)
    job.held_gpus = 0
    job.work_s, job.rate, job.progress_since_s = event.work_s, 0.0, state.now_s
    job.saved_s = job.saved_s if event.saved_s is None else event.saved_s
    state.timers.drop(LIMIT, job.id)
    state.orders.moving.pop(job.seq, None)
    follow_up(state, job)
    if state.now_s > job.decided_s:
        wake_others(state)


def tasks_resumed(state: State, event: TasksResumed) -> None:
    """On request, or because the engine's lease of the suspension expired."""
    job = state.jobs.get(event.job_id)
    if job is None or job.held is None or job.held.resumes_as is None or is_late(job, event.launch):
        return  # stale or duplicate
    job.held = job.held.resumes_as
    job.held_since_s = state.now_s
    run_on(job, job.held, event)
    state.report_count += 1
    job.work_s = event.work_s
    if job.spec.time_limit_s is not None:
        limit(state, job)
    follow_up(state, job)
    if state.now_s > job.decided_s:
        wake_others(state)


def suspend_refused(state: State, event: SuspendRefused) -> None:
    job = state.jobs.get(event.job_id)
    if job is not None and job.state is SUSPENDED and not job.is_halted and not is_late(job, event.launch):
        push_out(state, job)


def tasks_exited(state: State, event: TasksExited) -> None:
    job = state.jobs.get(event.job_id)
    if job is None or job.held is None or 0 < event.launch < job.held_launch:
        return  # stale or duplicate: a finished job stays finished
    seq, orders = job.seq, state.orders
    if seq in state.held_jobs:  # otherwise it never started to run
        settle(state, job)
        del state.held_jobs[seq]
    if state.timers.by_job:
        state.timers.drop_all(job.id)
    is_unplanned = job.is_expired
    job.is_expired = False
    job.held_gpus = 0
    job.held = None
    job.share = None
    job.limit_milli = WHOLE
    if job.settings:
        job.settings = {}
    job.rate = 0.0
    job.work_s = job.saved_s = event.work_s
    if orders.leaving:
        orders.leaving.pop(seq, None)
    if orders.moving:
        orders.moving.pop(seq, None)
    job.allocation = None
    if job.bound is not None:
        state.cluster.give(job.bound, seq)
        job.bound = None
    if job.spec.group is not None:
        watch_budget(state, job)
    final = ENDS.get(event.exit)
    if job.is_ending:
        if final is None:
            final = STOPPED
        elif final is not STOPPED:
            job.reason = ""  # it was the reason of a stop that came too late: the job ended by itself
    if final is not None:
        end(state, job, final)
        return
    if event.exit is PREEMPTED:
        job.preemptions += not is_unplanned  # the end of a run that was started with one is no preemption
    else:
        job.retries += event.exit is Exit.RETRIED
        is_unplanned = True
    if is_unplanned:
        # No plan has counted on its cells before: they may be what others wait for.
        state.wake().nodes_changed = True
    job.state = PENDING
    job.pending_since_s = state.now_s
    state.pending_count += 1
    state.wake().returned.append(job)
    if job.hold:  # it was paused
        state.trigger.withdrawn.append(job)


def progress_reported(state: State, event: ProgressReported) -> None:
    job = state.jobs.get(event.job_id)
    if job is None or job.seq not in state.held_jobs or is_late(job, event.launch):
        return
    state.report_count += 1
    if event.report is not None:
        state.known.note_report(state.now_s, job, event.report, place_of(job, state.held_jobs, state.cluster))
        if job.spec.group is not None:
            note_result(state, job, event.report)
    if not job.is_halted and (event.share is not None or event.work_s is not None):
        job.busy_gpu_s += job.busy_unbooked_at(state.now_s)
    if event.share is not None and not job.is_halted:
        book_service(state, job)
        job.share, job.share_since_s = event.share, state.now_s
    if event.work_s is None or job.is_halted:
        return  # its progress in seconds is unknown, or it was suspended by then
    if event.rate is not None:
        job.rate, job.is_rate_known = event.rate, True
    job.work_s = event.work_s
    job.saved_s = job.saved_s if event.saved_s is None else event.saved_s
    job.progress_since_s = max(job.progress_since_s, state.now_s)  # the restart in progress continues


def run_on(job: Job, held: Allocation, event: TasksStarted | TasksMoved | TasksResumed) -> None:
    """The job runs on this allocation. If its rate is unknown, work is booked in proportion to the GPUs."""
    job.held_gpus = held.gpus
    job.gpu_count = held.gpu_count()
    job.share = event.share
    job.is_rate_known = event.rate is not None
    job.rate = in_proportion(job.spec, held) if event.rate is None else event.rate
    job.progress_since_s = job.saving_since_s = event.progress_since_s


def settle(state: State, job: Job) -> None:
    """Book what the job has held since the last change."""
    now_s = state.now_s
    if job.held is not None and job.held.resumes_as is None:  # else it is suspended
        service_gpu_s = job.unbooked_at(now_s)
        job.service_gpu_s += service_gpu_s
        is_all = job.progress_since_s <= job.held_since_s and job.rate  # no restart: the usual case, without a call
        job.busy_gpu_s += service_gpu_s if is_all else job.busy_unbooked_at(now_s)
        state.known.note_use(job.spec.vc, service_gpu_s)
        job.run_s += now_s - job.held_since_s
    job.share_since_s = None
    job.held_since_s = now_s


def book_service(state: State, job: Job) -> None:
    service_gpu_s = job.unbooked_at(state.now_s)
    job.service_gpu_s += service_gpu_s
    state.known.note_use(job.spec.vc, service_gpu_s)


def follow_up(state: State, job: Job) -> None:
    """If what is wanted of the job has changed since the last action, send another one."""
    if job.bound is not None and job.bound != job.held:
        state.orders.dirty[job.seq] = job


def wake_others(state: State) -> None:
    """A job that starts or moves cannot be preempted meanwhile. If that took time, jobs that were refused because of it
    are tried again now."""
    state.wake().nodes_changed = True


def is_late(job: Job, launch: int) -> bool:
    """True if the report belongs to an earlier launch than the current one."""
    return 0 < launch < job.held_launch
