"""Committing a plan: its decisions become the wanted state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skep.core.errors import InvariantBroken
from skep.core.fold.endings import close, end_group, unstart
from skep.core.job import FINAL, JobState
from skep.core.memory import JOB
from skep.core.plan import Plan
from skep.core.timers import LEASE
from skep.core.view import Trigger

if TYPE_CHECKING:
    from skep.core.state import State

PENDING, UNRUNNABLE = JobState.PENDING, JobState.UNRUNNABLE


def commit(state: State, plan: Plan) -> None:
    """Commit a plan whose decisions were tried on this state."""
    if plan.version != state.version:
        raise InvariantBroken(
            f"the plan was made on version {plan.version} of the state, which is now at version {state.version}"
        )
    state.version += 1
    state.decision_count += 1
    state.trigger, state.is_woken = Trigger(), False
    now_s, jobs, waits, dirty = state.now_s, state.jobs, state.waits, state.orders.dirty
    state.wake_s = math.inf if plan.wake_s is None else plan.wake_s
    for scope, cause in plan.refusals:
        waits.refuse(scope, cause, now_s)
    for job, scope in plan.joins:
        job.join(waits.of(scope, now_s), now_s)
    for decision in plan.decisions:
        job = jobs[decision.job_id]
        job.bound = decision.after
        job.decided_s = now_s
        if decision.before is None:
            state.pending_count -= 1
            if job.waiting is not None:
                job.leave(now_s)
            if decision.until_s is not None:
                state.timers.set(LEASE, job.id, decision.until_s)
        elif decision.after is None and job.held is None:
            unstart(state, job)
        dirty[job.seq] = job
        if state.orders.settings:  # those of a launch that this decision replaces
            state.orders.settings = [each for each in state.orders.settings if each.job_id != job.id]
    for change in plan.memory:
        if change.of is not JOB or jobs[change.key].state not in FINAL:
            state.memory.take_in(change)
    if plan.settings or plan.rejects or plan.ends or plan.leases:
        commit_rest(state, plan)


def commit_rest(state: State, plan: Plan) -> None:
    """What most plans do not have."""
    state.orders.settings += plan.settings
    for job, until_s in plan.leases:
        if job.allocation is not None:  # else a later step of the plan has stopped it
            state.timers.set(LEASE, job.id, until_s)
    # Ending a group may stop jobs that were just started, or jobs that are also to be rejected.
    for job, reason in plan.rejects:
        if job.state is not PENDING:
            continue
        state.pending_count -= 1
        job.reason = reason
        if job.waiting is not None:
            job.leave(state.now_s)
        close(state, job, UNRUNNABLE)
    for group_id, outcome, reason in plan.ends:
        end_group(state, state.groups[group_id], outcome, reason)
