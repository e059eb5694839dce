"""What is noted of the trials of a search (`core/search.py`): their results, and the end of its budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skep.core.fold.endings import end_group
from skep.core.group import Group
from skep.core.job import Job, JobState
from skep.core.progress import Report
from skep.core.search import Trial
from skep.core.timers import BUDGET, DEADLINE, TimerKind

if TYPE_CHECKING:
    from skep.core.state import State


def searched_by(state: State, job: Job) -> Group | None:
    """The search that the job is a trial of."""
    group = state.groups.get(job.spec.group.id) if job.spec.group is not None else None
    return group if group is not None and group.spec.search is not None else None


def awaits(state: State, job: Job, report: Report) -> bool:
    """True if the rule of its search waits for this report."""
    group = searched_by(state, job)
    if group is None or group.spec.search is None:
        return False
    return group.trials.get(job.id, Trial()).result_of(group.spec.search, report) is not None


def begin_search(state: State, group: Group) -> None:
    search = group.spec.search
    if search is not None and search.deadline_s is not None and group.outcome is None:
        group.deadline_at_s = state.now_s + search.deadline_s
        state.timers.set(DEADLINE, group.id, group.deadline_at_s)


def note_result(state: State, job: Job, report: Report) -> None:
    group = searched_by(state, job)
    if group is None or group.spec.search is None:
        return
    trial = group.trials.get(job.id)
    if trial is None:
        trial = group.trials[job.id] = Trial(begun_s=job.run_at(state.now_s))
    trial.take_in(group.spec.search, report)


def is_paused(state: State, job: Job) -> bool:
    group = searched_by(state, job)
    return group is not None and job.id in group.trials and group.trials[job.id].is_paused


def note_verdict(state: State, job: Job, *, is_paused: bool) -> None:
    """The trial is to pause at the rung that it has reached, or to go on."""
    group = searched_by(state, job)
    trial = group.trials.get(job.id) if group is not None else None
    if trial is None:
        return
    if is_paused:
        trial.is_paused = trial.passed < len(trial.results)
    else:
        trial.passed, trial.is_paused = len(trial.results), False


def watch_budget(state: State, job: Job) -> None:
    """A trial holds other GPUs than before: the budget is spent sooner or later."""
    group = searched_by(state, job)
    if group is None or group.spec.search is None or group.spec.search.gpu_hours is None or group.outcome is not None:
        return
    left = group.spec.search.gpu_hours * 3600 - spent_gpu_s(state, group)
    speed = sum([state.jobs[name].held_gpus for name in group.members])
    at_s = state.now_s + max(left, 0.0) / speed if speed else math.inf
    if at_s < math.inf:
        state.timers.set(BUDGET, group.id, at_s)
    else:
        state.timers.drop(BUDGET, group.id)


def spent_gpu_s(state: State, group: Group) -> float:
    """Of all its trials so far."""
    return sum([state.jobs[name].service_at(state.now_s) for name in group.members])


def search_over(state: State, kind: TimerKind, group_id: str) -> None:
    """Its deadline has come, or its budget is spent."""
    group = state.groups.get(group_id)
    search = group.spec.search if group is not None else None
    if group is None or search is None:
        return
    if kind is DEADLINE:
        why = f"the deadline of the search came after {search.deadline_s or 0:g} s"
    else:
        why = f"the budget of the search is spent: {search.gpu_hours or 0:g} GPU-hours"
    end_group(state, group, JobState.SUCCEEDED, why)
