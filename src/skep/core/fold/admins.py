"""Events caused by admins: the policy, the VCs of the cluster, the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.core.events import ClockStepped, ClusterChanged, PolicyChanged, PolicyFailed, Solved
from skep.core.fold.endings import push_out
from skep.core.job import JobState
from skep.core.solving import settle

if TYPE_CHECKING:
    from skep.core.state import State


def policy_changed(state: State, event: PolicyChanged) -> None:
    """The memory of the previous planner is dropped; ownership of cells stays."""
    push_out_suspended(state, "")
    if "" not in state.faults and state.policy not in ("", event.policy):
        state.previous_policy = state.policy
    elif "" in state.faults:
        state.previous_policy = state.faults.pop("").instead
    state.policy = event.policy
    state.memory.drop_policy(list(state.memory.jobs), "")
    plan_anew(state, "")


def policy_failed(state: State, event: PolicyFailed) -> None:
    """The failed decision left no trace in the state; the new policy must look at everything."""
    push_out_suspended(state, event.vc)
    state.faults[event.vc] = event
    if not event.vc:
        state.policy, state.previous_policy = event.instead, ""
    jobs = [name for name in state.memory.jobs if event.vc in ("", state.jobs[name].spec.vc)]
    state.memory.drop_policy(jobs, event.vc)
    plan_anew(state, f"{event.vc}/" if event.vc else "")


def cluster_changed(state: State, event: ClusterChanged) -> None:
    """Which cells of its VC a job has is derived again from where it runs; all other memory stays."""
    state.faults = {vc: fault for vc, fault in state.faults.items() if not vc}
    state.memory.drop_beneath()
    plan_anew(state, "")


def clock_stepped(state: State, event: ClockStepped) -> None:
    """No time has passed: every stored time is moved by the same amount."""
    by_s = event.by_s
    for job in (job for job in state.jobs.values() if not job.state.is_final):
        job.pending_since_s += by_s
        job.decided_s += by_s
        job.held_since_s += by_s
        job.progress_since_s += by_s
        job.saving_since_s += by_s
        job.halting_since_s += by_s
    for group in state.groups.values():
        group.deadline_at_s += by_s
    state.known.shift(by_s)
    state.report_count += 1
    state.timers = state.timers.shifted(by_s)
    state.wake_s += by_s
    state.waits.shift(by_s)
    state.wake().nodes_changed = True


def push_out_suspended(state: State, vc: str) -> None:
    """Stop suspended jobs, of a VC or all: another planner may not know which to resume. They return to the queue like
    other stopped jobs."""
    for job in list(state.held_jobs.values()):
        if job.state is JobState.SUSPENDED and vc in ("", job.spec.vc):
            state.memory.jobs.pop(job.id, None)
            push_out(state, job)


def plan_anew(state: State, prefix: str) -> None:
    """Drop the waiting scopes (with that prefix), which are named by the previous planner."""
    dropped = {id(waiting) for waiting in state.waits.drop(prefix)}
    for job in state.jobs.values():
        if job.waiting is not None and id(job.waiting) in dropped:
            job.leave(state.now_s)
    state.wake().nodes_changed = True


def solved(state: State, event: Solved) -> None:
    if settle(state.memory, state.now_s, event):
        state.wake().solved.append(event.at)
