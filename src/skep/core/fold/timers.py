"""Events at known times: back-offs, leases and time limits end, planners are woken."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skep.core.events import TimerDue
from skep.core.fold.endings import stop, unstart
from skep.core.fold.owners import release
from skep.core.job import Job
from skep.core.timers import BACK_OFF, LEASE, LIMIT, PLAN, Timer

if TYPE_CHECKING:
    from skep.core.state import State


def timer_due(state: State, event: TimerDue) -> None:
    """A timer that is no longer set is ignored: it was dropped by an event of the same instant."""
    for timer in event.due or (*state.timers.due(state.now_s), Timer(state.now_s, PLAN)):
        if timer.kind is PLAN:
            state.wake().is_timer = True
            state.wake_s = math.inf
        elif state.timers.drop(timer.kind, timer.job_id):
            job = state.jobs[timer.job_id]
            if timer.kind is BACK_OFF:
                release(state, job)
            elif timer.kind is LEASE:
                expire(state, job)
            else:
                stop(state, job, f"its time limit of {job.spec.time_limit_s:g} s is over")


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


def limit(state: State, job: Job) -> None:
    assert job.spec.time_limit_s is not None
    left_s = job.spec.time_limit_s - job.run_s - (state.now_s - job.held_since_s)
    state.timers.set(LIMIT, job.id, state.now_s + left_s)
