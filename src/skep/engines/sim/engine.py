"""The simulator: the engine whose clock jumps.

It knows the truth that the scheduler does not: how much work each job needs and how fast it goes on what it got. It
carries out launches and stops at once, and reports what the trace, the speed model and the failure plan bring.
"""

from __future__ import annotations

import heapq
import math

from skep.core.actions import Action, Launch, Move, Resume, Stop, Suspend
from skep.core.cluster import WHOLE, Allocation, Cluster
from skep.core.events import (
    Batch,
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
from skep.core.job import in_proportion
from skep.engines.sim.outages import Outages
from skep.profiles.speed import Speed
from skep.traces.trace import TraceJob

FRUITLESS_MAX = 100_000
"""Runs in a row without any gain, after which a simulation that would go on for ever is looked at."""


class Task:
    """One job in the simulator: its work, and the run under way."""

    __slots__ = (
        "allocation",
        "begun_s",
        "done_s",
        "job",
        "neighbours",
        "progress_since_s",
        "rate",
        "row",
        "run",
        "saved_s",
        "saving_since_s",
        "starts",
        "target_s",
    )

    def __init__(self, row: int, job: TraceJob) -> None:
        self.row = row
        self.job = job
        self.allocation: Allocation | None = None
        self.neighbours: tuple[str, ...] = ()
        self.starts = 0
        self.begun_s = 0.0
        """Work done when the present run began."""
        self.run = 0
        """Counts everything that makes a milestone worked out before stale."""
        self.done_s = 0.0
        """Work done when the present rate began."""
        self.rate = 0.0
        self.target_s = 0.0
        """Work at the next milestone: the end, or where the rate changes."""
        self.progress_since_s = 0.0
        self.saving_since_s = 0.0
        """Checkpoints are taken every so often from here on."""
        self.saved_s = 0.0
        """Work at the last checkpoint before the present rate began."""

    def work_at(self, now_s: float) -> float:
        if now_s <= self.progress_since_s:
            return self.done_s
        return min(self.done_s + (now_s - self.progress_since_s) * self.rate, self.job.work_s)

    def saved_at(self, now_s: float, checkpoint_s: float) -> float:
        """Work at the last checkpoint."""
        if now_s <= self.saving_since_s:
            return self.saved_s
        count = (now_s - self.saving_since_s) // checkpoint_s if checkpoint_s else math.inf
        last_s = now_s if count == math.inf else self.saving_since_s + count * checkpoint_s
        return self.work_at(last_s) if last_s >= self.progress_since_s else self.saved_s


class Simulator:
    """Runs a trace. `restart_s` is what every start of a job but its first costs."""

    def __init__(
        self,
        jobs: list[TraceJob],
        cluster: Cluster,
        *,
        speed: Speed | None = None,
        restart_s: float = 30.0,
        checkpoint_s: float = 600.0,
        outages: Outages | None = None,
        finish_round_s: float = 0.0,
    ) -> None:
        self.cluster = cluster
        self.speed = speed
        self.restart_s = restart_s
        self.checkpoint_s = checkpoint_s
        self.finish_round_s = finish_round_s
        self.outages = outages or Outages.none()
        self.submissions = jobs
        self.next_submission = 0
        self.tasks: dict[str, Task] = {job.spec.id: Task(row, job) for row, job in enumerate(jobs)}
        self.running: dict[int, Task] = {}
        self.agenda: list[tuple[float, int, int, Task]] = []
        """Finishes and changes of rate: (at_s, row, run, task); those of an earlier run are stale."""
        self.open_count = sum(job.work_s < math.inf for job in jobs)
        self.ended_count = 0
        self.idle_timers = 0
        """Timers while nothing else was to come, since a job that will end was last started."""
        self.idle_timers_max = 10_000
        self.fruitless = 0
        """Runs cut short before they did any work, since one did some."""

    def observe(self, until_s: float) -> Batch | None:
        agenda = self.agenda
        while agenda and agenda[0][2] != agenda[0][3].run:
            heapq.heappop(agenda)
        submit_s = self._next_submit_s()
        own_s = min(agenda[0][0] if agenda else math.inf, submit_s)
        at_s = min(own_s, until_s, self.outages.next_s)
        if at_s == math.inf or (own_s == math.inf and self._is_over(until_s)):
            return None
        if self.fruitless > FRUITLESS_MAX and submit_s == math.inf and self._is_stuck(at_s):
            return None
        events: list[Event] = []
        while agenda and agenda[0][0] == at_s:
            _, _, run, task = heapq.heappop(agenda)
            if run == task.run:
                events.append(self._reached(task, at_s))
        if self.outages.next_s == at_s:
            self._node_changes(at_s, events)
        if submit_s == at_s:
            self._submit(at_s, events)
        if until_s == at_s:
            events.append(TimerDue())
        return Batch(at_s, events)

    def _next_submit_s(self) -> float:
        if self.next_submission < len(self.submissions):
            return self.submissions[self.next_submission].submit_s
        return math.inf

    def _is_over(self, until_s: float) -> bool:
        """Nothing runs that will end, nobody comes; timers and outages are left, and they must lead somewhere."""
        if not self.open_count:
            return True
        if until_s < self.outages.next_s:
            self.idle_timers += 1  # rounds go on for ever while somebody waits for what never ends
        return (until_s == math.inf and self.outages.all_up) or self.idle_timers > self.idle_timers_max

    def _is_stuck(self, at_s: float) -> bool:
        """Whether nobody gets on: each run ends before its restart is over, or before the next checkpoint."""
        self.fruitless = 0
        checkpoint_s = self.checkpoint_s if self.outages.next_s < math.inf else 0.0
        return not any(task.saved_at(at_s, checkpoint_s) > task.begun_s for task in self.running.values())

    def _submit(self, at_s: float, events: list[Event]) -> None:
        submissions = self.submissions
        number = self.next_submission
        while number < len(submissions) and submissions[number].submit_s == at_s:
            events.append(JobSubmitted(submissions[number].spec))
            number += 1
        self.next_submission = number

    def _reached(self, task: Task, at_s: float) -> Event:
        """The work a task was heading for is done: all of it, or up to where its rate changes."""
        if task.target_s >= task.job.work_s:
            return self._exit(task, Exit.FINISHED, task.job.work_s)
        return self._change_rate(task, at_s)

    def _exit(self, task: Task, exit: Exit, work_s: float) -> TasksExited:
        self.fruitless = 0 if work_s > task.begun_s or exit is Exit.FINISHED else self.fruitless + 1
        task.done_s = work_s
        task.rate = 0.0
        task.run += 1
        task.allocation = None
        del self.running[task.row]
        if exit is Exit.FINISHED:
            self.open_count -= 1
            self.ended_count += 1
        return TasksExited(task.job.spec.id, exit, work_s)

    def _node_changes(self, at_s: float, events: list[Event]) -> None:
        for node, is_lost in self.outages.take(at_s):
            if not is_lost:
                events.append(NodeBack(self.cluster.nodes[node].name))
                continue
            events.append(NodeLost(self.cluster.nodes[node].name))
            for task in list(self.running.values()):
                if task.allocation is not None and node in task.allocation.nodes():
                    neighbours = self._leave_shares(task)
                    kept_s = task.saved_at(at_s, self.checkpoint_s)
                    events.append(self._exit(task, Exit.NODE_LOST, kept_s))
                    events.extend(self._change_rate(other, at_s) for other in neighbours)

    # Actions ---------------------------------------------------------------------------------------------------

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        events: list[Event] = []
        for action in actions:
            task = self.tasks[action.job_id]
            if isinstance(action, Launch):
                self._launch(task, action.allocation, at_s, events)
            elif isinstance(action, Stop):
                neighbours = self._leave_shares(task)
                events.append(self._exit(task, Exit.PREEMPTED, task.work_at(at_s)))
                events.extend(self._change_rate(other, at_s) for other in neighbours)
            elif isinstance(action, Move):
                self._move(task, action, at_s, events)
            elif isinstance(action, Suspend):
                events.append(self._suspend(task, at_s))
            elif isinstance(action, Resume):
                events.append(self._change_rate(task, at_s))
        return events

    def _suspend(self, task: Task, at_s: float) -> ProgressReported:
        """It keeps what it has and makes no progress; whatever it was heading for is off."""
        task.saved_s = task.saved_at(at_s, self.checkpoint_s)
        task.done_s = task.work_at(at_s)
        task.progress_since_s = max(task.progress_since_s, at_s)
        task.rate = 0.0
        task.run += 1
        return ProgressReported(task.job.spec.id, task.done_s, 0.0)

    def _launch(self, task: Task, allocation: Allocation, at_s: float, events: list[Event]) -> None:
        self._begin(task, allocation, at_s)
        self.running[task.row] = task
        events.append(TasksStarted(task.job.spec.id, task.rate, task.progress_since_s))
        if self._is_shared(allocation):
            self._join_shares(task, at_s, events)

    def _is_shared(self, allocation: Allocation) -> bool:
        shares = any(piece.milli < WHOLE for piece in allocation.slices)
        return shares and self.speed is not None and self.speed.knows_sharing

    def _move(self, task: Task, action: Move, at_s: float, events: list[Event]) -> None:
        neighbours = self._leave_shares(task)
        task.done_s = task.work_at(at_s)
        self._begin(task, action.allocation, at_s)
        events.append(TasksMoved(task.job.spec.id, action.allocation, task.done_s, task.rate, task.progress_since_s))
        events.extend(self._change_rate(other, at_s) for other in neighbours)
        if self._is_shared(action.allocation):
            self._join_shares(task, at_s, events)

    def _begin(self, task: Task, allocation: Allocation, at_s: float) -> None:
        """Progress goes on from here, after the restart if it is one."""
        task.allocation = allocation
        task.progress_since_s = at_s + self.restart_s if task.starts else at_s
        task.saving_since_s = task.progress_since_s
        task.begun_s = task.saved_s = task.done_s
        task.starts += 1
        self._set_rate(task)

    def _set_rate(self, task: Task) -> None:
        """Work out the rate and when the next milestone is reached."""
        work_s = task.job.work_s
        assert task.allocation is not None
        task.rate, task.target_s = in_proportion(task.job.spec, task.allocation), work_s
        if self.speed is not None:
            neighbours = [self.tasks[name].job.spec for name in task.neighbours]
            task.rate, until_s = self.speed.rate(task.job.spec, task.allocation, neighbours, task.done_s)
            task.target_s = min(until_s, work_s)
        task.run += 1
        if task.target_s < math.inf and task.rate > 0:
            at_s = task.progress_since_s + (task.target_s - task.done_s) / task.rate
            if self.finish_round_s and task.target_s >= work_s:
                at_s = math.ceil(at_s / self.finish_round_s - 1e-9) * self.finish_round_s
            heapq.heappush(self.agenda, (at_s, task.row, task.run, task))
            self.idle_timers = 0

    def _change_rate(self, task: Task, at_s: float) -> ProgressReported:
        task.saved_s = task.saved_at(at_s, self.checkpoint_s)
        task.done_s = task.work_at(at_s)
        task.progress_since_s = max(task.progress_since_s, at_s)
        self._set_rate(task)
        return ProgressReported(task.job.spec.id, task.done_s, task.rate)

    # Several jobs on one gpu -----------------------------------------------------------------------------------

    def _join_shares(self, task: Task, at_s: float, events: list[Event]) -> None:
        """Find who else is on its gpus; everybody there goes at another speed from now on."""
        others = [other for other in self.running.values() if other is not task and shares_gpu(task, other)]
        if others:
            task.neighbours = tuple(other.job.spec.id for other in others)
            for other in others:
                other.neighbours = (*other.neighbours, task.job.spec.id)
            events.extend(self._change_rate(each, at_s) for each in (task, *others))

    def _leave_shares(self, task: Task) -> list[Task]:
        others = [self.tasks[name] for name in task.neighbours]
        for other in others:
            other.neighbours = tuple(name for name in other.neighbours if name != task.job.spec.id)
        task.neighbours = ()
        return others


def shares_gpu(one: Task, other: Task) -> bool:
    assert one.allocation is not None
    assert other.allocation is not None
    return any(
        mine.node == theirs.node and mine.gpus & theirs.gpus
        for mine in one.allocation.slices
        for theirs in other.allocation.slices
    )
