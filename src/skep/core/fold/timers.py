"""Events at known times: back-offs, leases, time limits and searches end, planners are woken."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skep.core.events import TimerDue
from skep.core.fold.endings import expire, stop
from skep.core.fold.owners import release
from skep.core.fold.searches import search_over
from skep.core.job import Job
from skep.core.timers import BACK_OFF, LEASE, LIMIT, OF_SEARCHES, PLAN, Timer

if TYPE_CHECKING:
    from skep.core.state import State


def timer_due(state: State, event: TimerDue) -> None:
    """A timer that is no longer set is ignored: it was dropped by an event of the same instant."""
    for timer in event.due or state.due(state.now_s) or (Timer(state.now_s, PLAN),):
        if timer.kind is PLAN:
            state.wake().is_timer = True
            state.wake_s = math.inf
        elif state.timers.drop(timer.kind, timer.job_id):
            if timer.kind in OF_SEARCHES:
                search_over(state, timer.kind, timer.job_id)
                continue
            job = state.jobs[timer.job_id]
            if timer.kind is BACK_OFF:
                release(state, job)
            elif timer.kind is LEASE:
                expire(state, job)
            else:
                stop(state, job, f"its time limit of {job.spec.time_limit_s:g} s is over")


def limit(state: State, job: Job) -> None:
    assert job.spec.time_limit_s is not None
    left_s = job.spec.time_limit_s - job.run_s - (state.now_s - job.held_since_s)
    state.timers.set(LIMIT, job.id, state.now_s + left_s)
