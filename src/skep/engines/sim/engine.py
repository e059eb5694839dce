"""The simulator: the engine whose clock jumps.

It knows what the scheduler does not: how much work each job needs and how fast it runs on its allocation. It executes
launches and stops at once, and reports the events of the trace, the speed model and the failure plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Self, TypedDict, Unpack

from skep.core.actions import Action, Launch, Move, Reshare, Resume, Stop, Suspend, Tune
from skep.core.cluster import UNLIMITED, Allocation, Cluster, MemoryPlace
from skep.core.events import (
    Batch,
    Event,
    Exit,
    GroupFormed,
    JobSubmitted,
    NodeBack,
    NodeLost,
    ProgressReported,
    TasksExited,
    TasksMoved,
    TasksResumed,
    TasksStarted,
    TimerDue,
)
from skep.core.group import GroupSpec
from skep.core.progress import Gauge, Report
from skep.core.search import SearchSpec
from skep.core.state import State
from skep.engines.sim.adopt import take_up
from skep.engines.sim.outages import Outages
from skep.engines.sim.rates import Rates, Slices
from skep.engines.sim.task import (
    SimTask,
    batch_in,
    halted_as,
    has_steps,
    progress_of,
    report_of,
    set_mark,
    told_share,
)
from skep.engines.sim.turns import Turns
from skep.profiles.sharing import Costs
from skep.profiles.speed import Speed
from skep.traces.trace import TraceJob

FRUITLESS_MAX = 100_000
"""The number of runs in a row without progress after which the simulation is checked for a livelock."""

SWAP_GIB_PER_S = 10.0
"""How fast the memory of a GPU is copied to its node: somewhat less than the bandwidth of PCIe 3.0 with 16 lanes."""


FINISHED, PREEMPTED = Exit.FINISHED, Exit.PREEMPTED


class SimulatorOptions(TypedDict, total=False):
    """Options that `adopt` passes on."""

    speed: Speed | None
    restart_s: float
    checkpoint_s: float
    finish_round_s: float
    swap_gib_per_s: float
    groups: tuple[GroupSpec, ...]
    reports: bool
    costs: Costs | None
    slices: Slices


class Simulator:
    """Runs a trace. `restart_s` is the cost of every start of a job except its first; with `reports`, jobs that know
    their steps or epochs report progress."""

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
        swap_gib_per_s: float = SWAP_GIB_PER_S,
        groups: tuple[GroupSpec, ...] = (),
        reports: bool = False,
        costs: Costs | None = None,
        slices: Slices = "rate",
    ) -> None:
        self.rates = Rates(cluster, speed, costs, slices, finish_round_s)
        self.restart_s = restart_s
        self.has_first_restart = speed is not None and speed.has_first_restart
        self.checkpoint_s = checkpoint_s
        self.swap_gib_per_s = swap_gib_per_s
        self.outages = outages or Outages.none()
        self.groups = groups
        self.searches = {group.id: group.search for group in groups if group.search is not None}
        self.gauges: dict[int, Gauge] | None = {} if reports else None
        """For runs that report progress, by row. Between two changes of its rate a run has nothing new to report."""
        self.submissions = jobs
        self.next_submission = 0
        self.submit_s = jobs[0].submit_s if jobs else math.inf
        self.tasks: dict[str, SimTask] = {}
        """The jobs that are submitted and not finished."""
        self.running: dict[int, SimTask] = {}
        self.open_count = sum([job.work_s < math.inf or job.spec.time_limit_s is not None for job in jobs])
        """Jobs that will end, by themselves or by their limit."""
        self.ended_count = 0
        self.idle_timers = 0
        """The number of timers in a row with nothing else to come, since a job that will end was last started."""
        self.idle_timers_max = 10_000
        self.fruitless = 0
        """The number of runs in a row that were cut short before they did any work."""
        self.first: Batch | None = None
        """Events of an adopted state that are known immediately."""

    @classmethod
    def adopt(
        cls,
        state: State,
        estimates: Mapping[str, float],
        arrivals: Sequence[TraceJob] = (),
        outages: Outages | None = None,
        **options: Unpack[SimulatorOptions],
    ) -> Self:
        """Continue from a state, dumped or forked between two steps, that any engine has produced.

        `estimates` has the work of jobs that have not ended, by id: all of it, in seconds at the job's reference, so
        the remaining work is that minus what the state has as done. A job that has done as much ends at once, one
        without an estimate never. `arrivals` are submitted later, in the order of their times; `groups` of the options
        are those of arrivals that the state does not know.
        """
        open_jobs = [job for job in state.jobs.values() if not job.state.is_final]
        known = [TraceJob(job.submit_s, estimates.get(job.id, math.inf), job.spec) for job in open_jobs]
        simulator = cls([*known, *arrivals], state.cluster, outages=outages, **options)
        for _ in known:
            simulator.take_submission()
        take_up(simulator, state)
        return simulator

    def observe(self, until_s: float) -> Batch | None:
        if self.first is not None:
            first, self.first = self.first, None
            return first
        rates = self.rates
        if until_s < rates.since_s:
            until_s = rates.since_s
        submit_s, outage_s = self.submit_s, self.outages.next_s
        if rates.turns is not None:
            self._play_turns(rates.turns, min(submit_s, until_s, outage_s))
        milestone_s = rates.next_s()
        own_s = milestone_s if milestone_s < submit_s else submit_s
        at_s = own_s if own_s < until_s else until_s
        if outage_s < at_s:
            at_s = outage_s
        if own_s < math.inf:
            self.idle_timers = 0
        elif at_s == math.inf or self._is_over(until_s):
            return None
        if self.fruitless > FRUITLESS_MAX and submit_s == math.inf and self._is_stuck(at_s):
            return None
        events: list[Event] = []
        if milestone_s == at_s:
            self._reach_milestones(at_s, events)
        if outage_s == at_s:
            self._node_changes(at_s, events)
        if submit_s == at_s:
            self._submit(at_s, events)
        if until_s == at_s:
            events.append(TimerDue())
        return Batch(at_s, events)

    def _play_turns(self, turns: Turns, until_s: float) -> None:
        """Play the turns that end before anything else happens."""
        while turns.next_s() < min(self.rates.next_s(), until_s) < math.inf:
            at_s, before, after = turns.end_first()
            for task in (before, after):
                self._settle(task, at_s)

    def _is_over(self, until_s: float) -> bool:
        """True if no run will end and no job will arrive: only timers and outages are left."""
        if not self.open_count:
            return True
        if until_s < self.outages.next_s:
            self.idle_timers += 1  # otherwise rounds never end while a job cannot start
        return (until_s == math.inf and self.outages.all_up) or self.idle_timers > self.idle_timers_max

    def _is_stuck(self, at_s: float) -> bool:
        """True if no job makes progress: each run ends before its restart is over, or before the next checkpoint."""
        self.fruitless = 0
        checkpoint_s = self.checkpoint_s if self.outages.next_s < math.inf else 0.0
        return not any(task.saved_at(at_s, checkpoint_s) > task.begun_s for task in self.running.values())

    def _submit(self, at_s: float, events: list[Event]) -> None:
        if not self.next_submission:
            events += map(GroupFormed, self.groups)
        while self.submit_s == at_s:
            events.append(JobSubmitted(self.take_submission().spec))

    def take_submission(self) -> TraceJob:
        """The next job: from now on it has a task."""
        number, jobs = self.next_submission, self.submissions
        job = jobs[number]
        task = self.tasks[job.spec.id] = SimTask(number, job, self.rates.speed)
        if job.curve is not None and (search := self._search_of(task)) is not None:
            set_mark(task, search)
        self.next_submission = number = number + 1
        self.submit_s = jobs[number].submit_s if number < len(jobs) else math.inf
        return job

    def _search_of(self, task: SimTask) -> SearchSpec | None:
        """The search whose trial reports at its rungs."""
        group = task.job.spec.group
        search = self.searches.get(group.id) if group is not None else None
        return search if search is not None and search.rule != "none" and has_steps(task) else None

    def _reach_milestones(self, at_s: float, events: list[Event]) -> None:
        """Tasks that reached their milestone: all of their work, or the point where their rate changes.

        All that end now end before any rate changes, so that jobs due at one instant do not drift apart by rounding.
        """
        ending: list[SimTask] = []
        changing: dict[int, SimTask] = {}
        for task in self.rates.take(at_s):
            if task.halts_as is not None:
                events.append(halted_as(task, task.halts_as))
            elif task.target_s < task.work_s:
                task.done_s, task.progress_since_s = task.target_s, at_s
                if task.done_s >= task.mark_s and (search := self._search_of(task)) is not None:
                    set_mark(task, search)
                    events.append(progress_of(task, report_of(task, task.done_s, self.rates.speed)))
                changing[task.row] = task
            else:
                ending.append(task)
        for task in ending:
            self._exit(task, FINISHED, task.work_s, events, changing)
        if changing:
            self._change_rates(changing, at_s, events)

    def _exit(
        self, task: SimTask, exit: Exit, work_s: float, events: list[Event], changing: dict[int, SimTask]
    ) -> None:
        """The only way a run ends. The jobs that are now alone on their GPUs are added to those whose speed changes."""
        if exit is FINISHED:
            self.fruitless = 0
            self.open_count -= 1
            self.ended_count += 1
            told_s = task.job.work_s
            del self.tasks[task.id]
        else:
            self.fruitless = 0 if work_s > task.begun_s else self.fruitless + 1
            told_s = work_s / task.unit
        if task.places:
            changing |= self.rates.leave(task)
        task.done_s = work_s
        task.run += 1
        task.allocation = None
        del self.running[task.row]
        is_gauged = self.gauges is not None and self.gauges.pop(task.row, None) is not None
        if is_gauged or (task.job.curve is not None and has_steps(task)):
            events.append(progress_of(task, report_of(task, work_s, self.rates.speed)))
        task.rate = 0.0
        events.append(TasksExited(task.id, exit, told_s))

    def _node_changes(self, at_s: float, events: list[Event]) -> None:
        changing: dict[int, SimTask] = {}
        nodes: list[Event] = []
        for node, is_lost in self.outages.take(at_s):
            name = self.rates.cluster.nodes[node].name
            nodes.append(NodeLost(name) if is_lost else NodeBack(name))
            for task in list(self.running.values()) if is_lost else ():
                if task.allocation is not None and node in task.allocation.nodes():
                    kept_s = task.saved_at(at_s, self.checkpoint_s)
                    self._exit(task, Exit.NODE_LOST, kept_s, events, changing)
        self._change_rates(changing, at_s, events)
        events += nodes

    # Actions ---------------------------------------------------------------------------------------------------

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        events: list[Event] = []
        left: dict[int, SimTask] | None = None
        for action in actions:
            task = self.tasks[action.job_id]
            if type(action) is Launch:
                self._launch(task, action.allocation, at_s, events)
            elif isinstance(action, Stop):
                self._stop(task, at_s, events)
            elif isinstance(action, Move):
                left = self._leave_all(actions, at_s) if left is None else {}
                self._move(task, action, at_s, events, left)
            elif isinstance(action, Suspend):
                self._suspend(task, action.memory, at_s, events)
            elif isinstance(action, Resume):
                self._resume(task, at_s, events)
            elif isinstance(action, Reshare):
                self._reshare(task, action.allocation, at_s, events)
            elif isinstance(action, Tune) and (batch_size := batch_in(action.settings)) is not None:
                task.batch_size = batch_size
                self._change_rates({task.row: task}, at_s, events)
        return events

    def _stop(self, task: SimTask, at_s: float, events: list[Event]) -> None:
        others: dict[int, SimTask] = {}
        self._exit(task, PREEMPTED, task.work_at(at_s), events, others)
        if others:
            self._change_rates(others, at_s, events)

    def _suspend(self, task: SimTask, memory: MemoryPlace, at_s: float, events: list[Event]) -> None:
        """Suspend: the job makes no progress, and its neighbours run as if it were not there. It is reported as
        suspended when its memory has been copied."""
        task.saved_s = task.saved_at(at_s, self.checkpoint_s)
        task.done_s = task.work_at(at_s)
        task.restart_left_s = max(task.progress_since_s - at_s, 0.0)
        task.progress_since_s = at_s
        task.rate = task.shown_rate = 0.0
        task.run += 1
        task.is_suspended, task.halts_as = True, memory
        copy_s = self._copy_s(task)
        if copy_s:
            events.append(progress_of(task))
            self.rates.note(task, at_s + copy_s)
        else:
            events.append(halted_as(task, memory))
        self._change_rates(self.rates.neighbours(task), at_s, events)

    def _resume(self, task: SimTask, at_s: float, events: list[Event]) -> None:
        """Resume: the job has its GPUs again; it makes progress when its memory is back and a restart in progress is
        over."""
        task.progress_since_s = at_s + self._copy_s(task) + task.restart_left_s
        task.saving_since_s = task.progress_since_s
        task.is_suspended, task.halts_as = False, None
        self.rates.set(task, at_s)
        done_s, rate = task.done_s / task.unit, task.shown_rate
        share = told_share(task)
        events.append(TasksResumed(task.id, done_s, rate, task.progress_since_s, share=share))
        self._first_report(task, at_s, events)
        self._change_rates(self.rates.neighbours(task), at_s, events)

    def _reshare(self, task: SimTask, allocation: Allocation, at_s: float, events: list[Event]) -> None:
        """The job continues in place at the speed of its new terms, and so do its neighbours."""
        others = self.rates.leave(task)
        task.allocation = allocation
        others |= self.rates.join(task)
        self._change_rates({task.row: task} | others, at_s, events)

    def _copy_s(self, task: SimTask) -> float:
        """Seconds to copy the memory of its GPUs, all at once, to the nodes or back. If the job does not state how much
        that is, all of a GPU, if that is known."""
        assert task.allocation is not None
        if task.halts_as != "swapped":
            return 0.0
        nodes = self.rates.cluster.nodes
        pieces = [piece for piece in task.allocation.slices if piece.gpus]
        amounts = [piece.gpu_mem_mib or nodes[piece.node].spec.gpu_mem_mib for piece in pieces]
        most_mib = max((mib for mib in amounts if mib < UNLIMITED), default=0)
        return most_mib / 1024 / self.swap_gib_per_s

    def _launch(self, task: SimTask, allocation: Allocation, at_s: float, events: list[Event]) -> None:
        others = self._begin(task, allocation, at_s)
        self.running[task.row] = task
        task.told_share = task.share
        events.append(TasksStarted(task.id, task.shown_rate, task.progress_since_s, 0, task.share))
        if self.gauges is not None:
            self._first_report(task, at_s, events)
        if others:
            self._change_rates(others, at_s, events)

    def _leave_all(self, actions: list[Action], at_s: float) -> dict[int, SimTask]:
        """All jobs that move leave before the first arrives: they may exchange GPUs. Returns the jobs beside which they
        were."""
        moving = [self.tasks[action.job_id] for action in actions if isinstance(action, Move)]
        left: dict[int, SimTask] = {}
        for task in moving:
            left |= self.rates.leave(task)
            task.done_s = task.work_at(at_s)
        for task in moving:
            left.pop(task.row, None)
        return left

    def _move(self, task: SimTask, action: Move, at_s: float, events: list[Event], others: dict[int, SimTask]) -> None:
        others = others | self._begin(task, action.allocation, at_s)
        done_s, rate = task.done_s / task.unit, task.shown_rate
        share = told_share(task)
        events.append(TasksMoved(task.id, action.allocation, done_s, rate, task.progress_since_s, share=share))
        self._first_report(task, at_s, events)
        self._change_rates(others, at_s, events)

    def _begin(self, task: SimTask, allocation: Allocation, at_s: float) -> dict[int, SimTask]:
        """Progress continues from here, after the restart if it is one. Returns the neighbours."""
        task.allocation, task.batch_size = allocation, None
        task.is_suspended, task.halts_as = False, None
        is_restart = task.starts > 0 or self.has_first_restart
        task.progress_since_s = at_s + self.restart_s if is_restart else at_s
        task.saving_since_s = task.progress_since_s
        task.begun_s = task.saved_s = task.done_s
        task.starts += 1
        task.share = None
        others = self.rates.join(task)
        self.rates.set(task, at_s)
        return others

    def _change_rates(self, tasks: dict[int, SimTask], at_s: float, events: list[Event]) -> None:
        for task in tasks.values():
            if task.row in self.running and not task.is_suspended:  # it may have left as well
                events.append(self._change_rate(task, at_s))

    def _change_rate(self, task: SimTask, at_s: float) -> ProgressReported:
        self._settle(task, at_s)
        return progress_of(task, self._next_report(task, at_s))

    def _settle(self, task: SimTask, at_s: float) -> None:
        """Book its work up to now; from now on its present rate applies."""
        task.saved_s = task.saved_at(at_s, self.checkpoint_s)
        task.done_s = task.work_at(at_s)
        task.progress_since_s = max(task.progress_since_s, at_s)
        self.rates.set(task, at_s)

    # Progress reports -------------------------------------------------------------------------------------------

    def _first_report(self, task: SimTask, at_s: float, events: list[Event]) -> None:
        if self.gauges is not None and has_steps(task):
            self.gauges[task.row] = Gauge(task.starts)
            events.append(progress_of(task, self._next_report(task, at_s)))

    def _next_report(self, task: SimTask, at_s: float) -> Report | None:
        """None if the rule of `core/progress.py` does not log it yet."""
        gauge = None if self.gauges is None else self.gauges.get(task.row)
        if gauge is None:
            return None
        report = report_of(task, task.done_s, self.rates.speed)
        if not gauge.is_due(at_s, report.steps_per_s):
            return None
        gauge.speed = report.steps_per_s
        gauge.log(at_s, report.step)
        return report
