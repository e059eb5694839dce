"""Adopting a state: what the simulator must know of jobs that another engine has run so far.

The state has what was seen: where jobs are, their progress, what is saved, what is in flight. It does not have the
remaining work; the caller estimates that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.core.actions import Action, Launch, Suspend
from skep.core.cluster import MemoryPlace
from skep.core.errors import InvariantBroken
from skep.core.events import Batch, Event, Solved
from skep.core.job import Job
from skep.core.orders import in_flight
from skep.core.progress import Gauge
from skep.core.solving import outstanding
from skep.core.state import State
from skep.engines.sim.task import SimTask, batch_in, has_steps

if TYPE_CHECKING:
    from skep.engines.sim.engine import Simulator


def take_up(simulator: Simulator, state: State) -> None:
    """Bring the simulator, which has a task for every open job, to the position of the state."""
    check_future(simulator, state)
    simulator.rates.since_s = state.now_s
    simulator.outages.down |= {state.cluster.by_name[name].index for name in state.health.lost}
    for job_id, task in simulator.tasks.items():
        if job_id in state.jobs:
            restore(task, state.jobs[job_id], state)
    there = [(simulator.tasks[job.id], job) for job in state.held_jobs.values()]
    for task, job in there:
        simulator.running[task.row] = task
        take_up_reports(simulator, state, task, job)
        simulator.rates.join(task)
    events: list[Event] = []
    going = [(task, job) for task, job in there if not job.is_halted and not halts(simulator, state, task, job)]
    for task, job in going:
        go_on(simulator, state, task, job, events)
    events += simulator.execute(state.now_s, unanswered(state))
    lost = "the question was asked of a server, and its answer is not known here"
    events += [Solved(asked.number, at, error=lost) for at, asked in outstanding(state.memory)]
    if events:
        simulator.first = Batch(state.now_s, events)


def check_future(simulator: Simulator, state: State) -> None:
    soonest_s = min(simulator.outages.next_s, simulator.submit_s)
    if soonest_s < state.now_s:
        raise InvariantBroken(f"arrivals or outages begin at {soonest_s}, before the time of the state, {state.now_s}")


def restore(task: SimTask, job: Job, state: State) -> None:
    """What the task has done, and where it is."""
    task.done_s = job.work_s * task.unit
    task.saved_s = task.begun_s = job.saved_s * task.unit
    task.starts = job.launches
    if job.held is not None:
        is_begun = job.seq in state.held_jobs and job.launches == job.held_launch
        task.starts -= not is_begun  # a launch or a move that is done below
        task.rate, task.shown_rate = job.rate * task.unit, job.rate
        task.allocation = job.held.resumes_as or job.held
        task.batch_size = batch_in(job.settings)
        task.progress_since_s, task.saving_since_s = job.progress_since_s, job.saving_since_s
        task.is_suspended, task.halts_as = job.is_halted, job.held.memory
        task.restart_left_s = job.restart_left_s
        task.share = task.told_share = job.share


def take_up_reports(simulator: Simulator, state: State, task: SimTask, job: Job) -> None:
    """What was logged of a running job is not logged again."""
    progress = state.known.progress.get(job.id)
    if simulator.gauges is not None and has_steps(task) and progress is not None and progress.launch == job.held_launch:
        gauge = simulator.gauges[task.row] = Gauge(task.starts, None, progress.at_s)
        gauge.logged_speed = progress.report.steps_per_s


def halts(simulator: Simulator, state: State, task: SimTask, job: Job) -> bool:
    """True if it was sent a suspension, which then continues."""
    memory = halts_as(state, job)
    if memory is not None:
        halt(simulator, task, job, memory)
    return memory is not None


def go_on(simulator: Simulator, state: State, task: SimTask, job: Job, events: list[Event]) -> None:
    simulator.rates.set(task, state.now_s)
    if task.rate / task.unit != job.rate or task.share != task.told_share:  # the simulator knows the job's speed better
        task.rate = job.rate * task.unit
        events.append(simulator._change_rate(task, state.now_s))


def halts_as(state: State, job: Job) -> MemoryPlace | None:
    """Where the memory of a job that was sent a suspension goes, also if it is to resume by now: then it is still being
    copied."""
    if job.seq not in state.orders.moving:
        return None
    if job.bound is not None and job.bound.memory is not None:
        return job.bound.memory
    return None if job.rate else "swapped"


def halt(simulator: Simulator, task: SimTask, job: Job, memory: MemoryPlace) -> None:
    task.done_s = job.work_at(job.halting_since_s) * task.unit
    task.restart_left_s = max(job.progress_since_s - job.halting_since_s, 0.0)
    task.is_suspended, task.halts_as = True, memory
    simulator.rates.note(task, job.halting_since_s + simulator._copy_s(task))


def unanswered(state: State) -> list[Action]:
    """Actions in flight at the previous engine, which are done at once here. Suspensions are handled above."""
    actions: list[Action] = []
    for job in state.jobs.values():
        if job.held is not None and job.seq not in state.held_jobs:
            actions.append(Launch(job.id, job.held, job.held_launch))
        told = in_flight(state, job)
        if told is not None and not isinstance(told, Suspend):
            actions.append(told)
    return actions
