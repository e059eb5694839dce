"""What the state does with trials: pauses, budgets, deadlines."""

from __future__ import annotations

from skep.core.cluster import Cluster, NodeSpec
from skep.core.events import (
    Exit,
    GroupFormed,
    JobHeld,
    JobReleased,
    JobSubmitted,
    ProgressReported,
    TasksExited,
    TasksStarted,
    TimerDue,
)
from skep.core.group import GroupSpec
from skep.core.job import JobState
from skep.core.model import GroupRef, JobSpec, gpu_shape
from skep.core.progress import Report
from skep.core.search import SearchSpec
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.timers import BUDGET, DEADLINE
from skep.policies.registry import Setting, build_planner


def world(**search: float) -> Scheduler:
    cluster = Cluster([NodeSpec("n0", 2)])
    scheduler = Scheduler(State(cluster), build_planner("fifo", Setting(cluster)))
    spec = SearchSpec("loss", rule="asha", first=1.0, **search)  # type: ignore[arg-type]
    jobs = [JobSpec(name, (gpu_shape(1),), group=GroupRef("s")) for name in "abc"]
    scheduler.step(0.0, [GroupFormed(GroupSpec("s", search=spec)), *map(JobSubmitted, jobs)])
    scheduler.step(1.0, [TasksStarted("a", 1.0, 1.0), TasksStarted("b", 1.0, 1.0)])
    return scheduler


def test_a_pause_stops_the_job_and_another_gets_its_gpu() -> None:
    scheduler = world()
    job = scheduler.state.jobs["a"]
    (stop,) = scheduler.step(2.0, [JobHeld("a", "wait", pauses=True)])
    assert (stop.job_id, job.state, job.is_ready) == ("a", JobState.RUNNING, False)
    (launch,) = scheduler.step(3.0, [TasksExited("a", Exit.PREEMPTED, 1.0)])
    assert (launch.job_id, job.state, job.hold, job.work_s) == ("c", JobState.PENDING, "wait", 1.0)
    assert scheduler.step(4.0, [JobReleased("a")]) == []
    assert job.is_ready
    assert [action.job_id for action in scheduler.step(5.0, [TasksExited("b", Exit.FINISHED, 4.0)])] == ["a"]


def test_a_pause_that_is_taken_back_before_the_exit_leaves_no_hold() -> None:
    scheduler = world()
    scheduler.step(2.0, [JobHeld("a", "wait", pauses=True)])
    scheduler.step(2.0, [JobReleased("a")])
    scheduler.step(3.0, [TasksExited("a", Exit.PREEMPTED, 1.0)])
    assert scheduler.state.jobs["a"].is_ready
    assert not scheduler.state.jobs["a"].hold


def test_a_hold_without_a_pause_leaves_a_running_job_alone() -> None:
    scheduler = world()
    assert scheduler.step(2.0, [JobHeld("a", "wait")]) == []
    assert not scheduler.state.jobs["a"].hold


def test_results_are_noted_and_a_hold_is_the_verdict() -> None:
    scheduler = world()
    scheduler.step(2.0, [ProgressReported("a", report=Report(1.0, 9.0, series={"loss": 2.0}))])
    trial = scheduler.state.groups["s"].trials["a"]
    assert (trial.results, trial.passed, trial.is_paused) == ([2.0], 0, False)
    scheduler.step(2.0, [JobHeld("a", "paused", pauses=True)])
    assert trial.is_paused
    scheduler.step(3.0, [JobReleased("a")])
    assert (trial.passed, trial.is_paused) == (1, False)


def test_budget_and_deadline_are_timers_that_end_all_trials() -> None:
    state = (scheduler := world(gpu_hours=20 / 3600, deadline_s=100.0)).state
    assert state.timers.at_s(BUDGET, "s") == 11.0  # two GPUs since 1 s
    assert state.timers.at_s(DEADLINE, "s") == 100.0
    scheduler.step(6.0, [TasksExited("a", Exit.FINISHED, 5.0)])
    assert state.timers.at_s(BUDGET, "s") == 16.0  # one of them
    scheduler.step(6.0, [TasksStarted("c", 1.0, 6.0)])
    actions = scheduler.step(11.0, [TimerDue()])
    assert {action.job_id for action in actions} >= {"b"}
    assert state.groups["s"].reason == "the budget of the search is spent: 0.00555556 GPU-hours"
    scheduler.step(12.0, [TasksExited(name, Exit.STOPPED, 1.0) for name in "bc"])
    assert not state.timers
