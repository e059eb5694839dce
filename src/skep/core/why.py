"""Why a pending job does not run: one answer for all interfaces.

What keeps the job out of the queue (a hold, other jobs, a limit) is known here; what it lacks in the queue is the
planner's answer. If both keep it from starting, both are said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from skep.core.job import Job, JobState
from skep.core.ports import Planner
from skep.core.refusal import NEVER, READY, Cause, Refusal, Release, Succeed, Wait, listed, ready, remedy_of
from skep.core.state import State
from skep.core.timers import BACK_OFF


def why(state: State, planner: Planner, job: Job, limit: Refusal | None = None) -> Refusal:
    """`limit`: the job is held by this limit, which the state does not know."""
    gates = list(gates_of(state, job, limit))
    found = planner.explain(state, state.memory, job)
    if found.code == READY and planner.round_s and state.wake_s < math.inf:
        found = ready(state.now_s, state.wake_s)
    if not gates or found.code == NEVER:
        return found
    every = [*gates, *([found] if found.code != READY else ())]
    changes = tuple(change for each in every for change in each.changes)
    reason, remedy = "; ".join(each.reason for each in every), remedy_of(changes, state.now_s)
    return msgspec.structs.replace(gates[0], reason=reason, remedy=remedy, changes=changes)


def gates_of(state: State, job: Job, limit: Refusal | None) -> Iterator[Refusal]:
    """What keeps a job out of the queue."""
    if limit is not None:
        yield limit
    elif job.hold:
        until_s = state.timers.at_s(BACK_OFF, job.id)
        if until_s is None:
            yield Refusal("held", Cause.CONSTRAINT, f"held: {job.hold}", "", (Release(job.id),))
        else:
            left = f"{max(until_s - state.now_s, 0):,.0f} s left"
            yield Refusal("back-off", Cause.CONSTRAINT, f"held: {job.hold}, {left}", "", (Wait(until_s),))
    if job.needs_left:
        jobs = tuple(name for name in job.spec.needs if not has_succeeded(state.jobs.get(name)))
        groups = tuple(
            name for name in job.spec.needs_groups if name in state.groups and not state.groups[name].has_ended
        )
        names = [*(f"job {name}" for name in jobs), *(f"group {name}" for name in groups)]
        yield Refusal("needs", Cause.ORDER, f"waits for {listed(names)}", "", (Succeed(jobs, groups),))


def has_succeeded(job: Job | None) -> bool:
    return job is not None and job.state is JobState.SUCCEEDED
