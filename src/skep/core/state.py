"""The one mutable thing: the cluster, the jobs, the policy's memory, folded from events and plans.

`apply` takes in what happened, `commit` what was decided. Nothing else changes the state, neither looks at a clock,
and the same sequence always gives the same state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from skep.core.cluster import Cluster
from skep.core.errors import InvariantBroken
from skep.core.events import (
    Event,
    Exit,
    JobSubmitted,
    NodeBack,
    NodeLost,
    ProgressReported,
    TasksExited,
    TasksMoved,
    TasksStarted,
    TimerDue,
)
from skep.core.job import Job, JobState
from skep.core.plan import Plan
from skep.core.refusal import Waiting

LAUNCHING, RUNNING, PENDING = JobState.LAUNCHING, JobState.RUNNING, JobState.PENDING

ENDS = {Exit.FINISHED: JobState.SUCCEEDED, Exit.FAILED: JobState.FAILED, Exit.STOPPED: JobState.STOPPED}


class Trigger:
    """What woke the planner: everything of one instant that could change its mind."""

    __slots__ = ("ended", "is_timer", "nodes_changed", "returned", "submitted")

    def __init__(self) -> None:
        self.submitted: list[Job] = []
        self.returned: list[Job] = []
        """Pending again: preempted, or their node was lost."""
        self.ended: list[Job] = []
        self.nodes_changed = False
        self.is_timer = False

    @property
    def wakes(self) -> bool:
        return bool(self.submitted or self.ended or self.returned or self.is_timer or self.nodes_changed)


class State:
    """Everything the scheduler knows. Planners read it; only `apply` and `commit` write it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.now_s = 0.0
        self.jobs: dict[str, Job] = {}
        self.memory: dict[str, Any] = {}
        self.wake_s = math.inf
        self.trigger = Trigger()
        """What happened since the last decision."""
        self.dirty: list[Job] = []
        """Jobs for which wanted and seen may differ."""
        self.leaving: dict[int, Job] = {}
        """Jobs that were told to stop and have not gone yet, by seq."""
        self.moving: dict[int, Job] = {}
        """Jobs that are to go on elsewhere and still are where they were, by seq."""
        self.waiting: dict[str, Waiting] = {}
        self.needed_by: dict[str, list[Job]] = {}
        self.held_jobs: dict[int, Job] = {}
        """Jobs that hold part of the cluster, as seen, by seq in order of their start."""
        self.pending_count = 0
        self.event_count = 0
        self.decision_count = 0
        self._apply: dict[type, Callable[[Any], None]] = {
            JobSubmitted: self._job_submitted,
            TasksStarted: self._tasks_started,
            TasksExited: self._tasks_exited,
            TasksMoved: self._tasks_moved,
            ProgressReported: self._progress_reported,
            NodeLost: self._node_lost,
            NodeBack: self._node_back,
            TimerDue: self._timer_due,
        }

    def apply(self, event: Event) -> None:
        self.event_count += 1
        self._apply[type(event)](event)

    def _job_submitted(self, event: JobSubmitted) -> None:
        spec = event.job
        if spec.id in self.jobs:
            raise InvariantBroken(f"job {spec.id} was submitted twice")
        job = self.jobs[spec.id] = Job(spec, len(self.jobs), self.now_s)
        self.pending_count += 1
        for needed in spec.needs:
            other = self.jobs.get(needed)
            if other is None or other.state is not JobState.SUCCEEDED:
                job.needs_left += 1
                self.needed_by.setdefault(needed, []).append(job)
        if not job.needs_left:
            self.trigger.submitted.append(job)

    def _tasks_started(self, event: TasksStarted) -> None:
        job = self.jobs[event.job_id]
        if job.held is None or job.seq in self.held_jobs:
            return  # late or told twice
        if job.state is LAUNCHING:
            job.state = RUNNING
        if job.start_s is None:
            job.start_s = self.now_s
        job.held_since_s = self.now_s
        job.held_gpus = job.held.gpus
        job.rate = event.rate
        job.progress_since_s = event.progress_since_s
        self.held_jobs[job.seq] = job

    def _tasks_moved(self, event: TasksMoved) -> None:
        job = self.jobs[event.job_id]
        before = job.held_gpus
        self._settle(job)
        job.held = event.allocation
        job.held_gpus = event.allocation.gpus
        if job.held_gpus == before:
            job.migrations += 1
        else:
            job.resizes += 1
        job.work_s = event.work_s
        job.rate = event.rate
        job.progress_since_s = event.progress_since_s
        self.moving.pop(job.seq, None)

    def _settle(self, job: Job) -> None:
        """Book what the job has held since the last change."""
        held_s = self.now_s - job.held_since_s
        job.run_s += held_s
        job.service_gpu_s += held_s * job.held_gpus
        job.held_since_s = self.now_s

    def _tasks_exited(self, event: TasksExited) -> None:
        job = self.jobs[event.job_id]
        if job.held is None:
            return  # late or told twice: what is finished stays finished
        if job.seq in self.held_jobs:  # else it never came to run
            self._settle(job)
            del self.held_jobs[job.seq]
        job.held_gpus = 0
        job.held = None
        job.rate = 0.0
        job.work_s = event.work_s
        self.leaving.pop(job.seq, None)
        if self.moving:
            self.moving.pop(job.seq, None)
        job.allocation = None
        if job.bound is not None:
            self.cluster.give(job.bound)
            job.bound = None
        final = ENDS.get(event.exit)
        if final is not None:
            self._end(job, final)
            return
        if event.exit is Exit.PREEMPTED:
            job.preemptions += 1
        else:
            # Whatever waited for its cells was free to count on them; what it lost may wake others.
            self.trigger.nodes_changed = True
        job.state = PENDING
        job.pending_since_s = self.now_s
        self.pending_count += 1
        self.trigger.returned.append(job)

    def _end(self, job: Job, state: JobState) -> None:
        job.state = state
        job.finish_s = self.now_s
        self.trigger.ended.append(job)
        if self.needed_by and state is JobState.SUCCEEDED:
            for waiting in self.needed_by.pop(job.id, ()):
                waiting.needs_left -= 1
                if not waiting.needs_left:
                    self.trigger.submitted.append(waiting)

    def _progress_reported(self, event: ProgressReported) -> None:
        job = self.jobs[event.job_id]
        job.work_s = event.work_s
        job.rate = event.rate
        job.progress_since_s = self.now_s

    def _node_lost(self, event: NodeLost) -> None:
        self.cluster.lose(self.cluster.by_name[event.node])
        self.trigger.nodes_changed = True

    def _node_back(self, event: NodeBack) -> None:
        self.cluster.restore(self.cluster.by_name[event.node])
        self.trigger.nodes_changed = True

    def _timer_due(self, event: TimerDue) -> None:
        self.trigger.is_timer = True
        self.wake_s = math.inf

    def take_trigger(self) -> Trigger:
        trigger = self.trigger
        self.trigger = Trigger()
        return trigger

    def commit(self, plan: Plan) -> None:
        """Make a plan whose decisions were tried on this very state the wanted one."""
        self.decision_count += 1
        now_s = self.now_s
        self.wake_s = math.inf if plan.wake_s is None else plan.wake_s
        for job, reason in plan.rejects:
            job.state = JobState.UNRUNNABLE
            job.reason = reason
            self.pending_count -= 1
        for scope, cause in plan.refusals:
            self._waiting(scope).become(cause, now_s)
        for job, scope in plan.joins:
            job.join(self._waiting(scope), now_s)
        for decision in plan.decisions:
            job = self.jobs[decision.job_id]
            job.bound = decision.after
            if decision.before is None:
                self.pending_count -= 1
                job.leave(now_s)
            elif decision.after is None and job.held is None:
                self._unstart(job)
            self.dirty.append(job)
        for key, value in plan.memory.items():
            if value is None:
                self.memory.pop(key, None)
            else:
                self.memory[key] = value

    def _unstart(self, job: Job) -> None:
        """It was stopped before its launch was ever asked for: it waits again as if nothing had been."""
        job.state = PENDING
        self.pending_count += 1
        self.trigger.returned.append(job)

    def _waiting(self, scope: str) -> Waiting:
        waiting = self.waiting.get(scope)
        if waiting is None:
            waiting = self.waiting[scope] = Waiting(self.now_s)
        return waiting
