"""The simulator: the engine whose clock jumps.

It knows what the scheduler does not: how much work each job needs and how fast it runs on its allocation. It executes
launches and stops at once, and reports the events of the trace, the speed model and the failure plan.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Literal, Self, TypedDict, Unpack

from skep.core.actions import Action, Launch, Move, Reshare, Resume, Stop, Suspend
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
from skep.core.state import State
from skep.engines.sim.adopt import take_up
from skep.engines.sim.outages import Outages
from skep.engines.sim.task import (
    Place,
    SimTask,
    halted_as,
    has_steps,
    party_of,
    progress_of,
    report_of,
    shared_places,
    told_share,
)
from skep.engines.sim.turns import Turns
from skep.profiles.sharing import Costs, Sharing
from skep.profiles.speed import Speed
from skep.traces.trace import TraceJob

FRUITLESS_MAX = 100_000
"""The number of runs in a row without progress after which the simulation is checked for a livelock."""

SWAP_GIB_PER_S = 10.0
"""How fast the memory of a GPU is copied to its node: somewhat less than the bandwidth of PCIe 3.0 with 16 lanes."""


Slices = Literal["rate", "exact"]
"""Whether turns of share groups are a rate, or are played one by one, which is for tests and not possible from an
adopted state."""


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
        self.cluster = cluster
        self.speed = speed
        self.sharing = Sharing(speed, costs)
        self.turns = Turns(self.sharing) if slices == "exact" else None
        self.now_s = 0.0
        self.restart_s = restart_s
        self.checkpoint_s = checkpoint_s
        self.finish_round_s = finish_round_s
        self.swap_gib_per_s = swap_gib_per_s
        self.outages = outages or Outages.none()
        self.groups = groups
        self.gauges: dict[int, Gauge] | None = {} if reports else None
        """For runs that report progress, by row. Between two changes of its rate a run has nothing new to report."""
        self.submissions = jobs
        self.next_submission = 0
        self.tasks: dict[str, SimTask] = {
            job.spec.id: SimTask(row, job, in_proportion=speed is None) for row, job in enumerate(jobs)
        }
        self.running: dict[int, SimTask] = {}
        self.tenants: dict[Place, dict[int, SimTask]] = {}
        """The tenants of each shared GPU, by (node, GPU) and row, and the members of each share group. Tenants without
        a share mode are included only if the speed model covers sharing."""
        self.agenda: list[tuple[float, int, int, SimTask]] = []
        """Finishes and changes of rate: (at_s, row, run, task); those of an earlier run are stale."""
        self.open_count = sum(job.work_s < math.inf or job.spec.time_limit_s is not None for job in jobs)
        """Jobs that will end, by themselves or by their limit."""
        self.ended_count = 0
        self.idle_timers = 0
        """The number of timers in a row with nothing else to come, since a job that will end was last started."""
        self.idle_timers_max = 10_000
        self.fruitless = 0
        """The number of runs in a row that were cut short before they did any work."""
        self.since_s = -math.inf
        """The time of an adopted state: nothing happens before it."""
        self.first: Batch | None = None
        """Events that are known immediately for such a state."""

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
        simulator.next_submission = len(known)
        take_up(simulator, state)
        return simulator

    def observe(self, until_s: float) -> Batch | None:
        if self.first is not None:
            first, self.first = self.first, None
            return first
        if until_s < self.since_s:
            until_s = self.since_s
        submit_s, outage_s = self._next_submit_s(), self.outages.next_s
        milestone_s = self._next_milestone_s()
        at_s = min(milestone_s, submit_s, until_s, outage_s)
        while self.turns is not None and self.turns.next_s() < at_s < math.inf:
            self._play_turn(self.turns)
            milestone_s = self._next_milestone_s()
            at_s = min(milestone_s, submit_s, until_s, outage_s)
        own_s = milestone_s if milestone_s < submit_s else submit_s
        if at_s == math.inf or (own_s == math.inf and self._is_over(until_s)):
            return None
        if self.fruitless > FRUITLESS_MAX and submit_s == math.inf and self._is_stuck(at_s):
            return None
        events: list[Event] = []
        self.now_s = at_s
        if milestone_s == at_s:
            self._reach_milestones(at_s, events)
        if outage_s == at_s:
            self._node_changes(at_s, events)
        if submit_s == at_s:
            self._submit(at_s, events)
        if until_s == at_s:
            events.append(TimerDue())
        return Batch(at_s, events)

    def _next_milestone_s(self) -> float:
        agenda = self.agenda
        while agenda and agenda[0][2] != agenda[0][3].run:
            heapq.heappop(agenda)
        return agenda[0][0] if agenda else math.inf

    def _play_turn(self, turns: Turns) -> None:
        self.now_s, before, after = turns.end_first()
        for task in (before, after):
            self._settle(task, self.now_s)

    def _next_submit_s(self) -> float:
        if self.next_submission < len(self.submissions):
            return self.submissions[self.next_submission].submit_s
        return math.inf

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
        submissions = self.submissions
        number = self.next_submission
        if not number:
            events += map(GroupFormed, self.groups)
        while number < len(submissions) and submissions[number].submit_s == at_s:
            events.append(JobSubmitted(submissions[number].spec))
            number += 1
        self.next_submission = number

    def _reach_milestones(self, at_s: float, events: list[Event]) -> None:
        """Tasks that reached their milestone: all of their work, or the point where their rate changes.

        All that end now end before any rate changes, so that jobs due at one instant do not drift apart by rounding.
        """
        agenda = self.agenda
        ending: list[SimTask] = []
        changing: dict[int, SimTask] = {}
        while agenda and agenda[0][0] == at_s:
            _, _, run, task = heapq.heappop(agenda)
            if run != task.run:
                continue
            if task.halts_as is not None:
                events.append(halted_as(task, task.halts_as))
            elif task.target_s < task.work_s:
                changing[task.row] = task
            else:
                ending.append(task)
        for task in ending:
            changing |= self._exit(task, Exit.FINISHED, task.work_s, events)
        if changing:
            self._change_rates(changing, at_s, events)

    def _exit(self, task: SimTask, exit: Exit, work_s: float, events: list[Event]) -> dict[int, SimTask]:
        """The only way a run ends. Returns the jobs that are now alone on their GPUs: their speed changes."""
        self.fruitless = 0 if work_s > task.begun_s or exit is Exit.FINISHED else self.fruitless + 1
        others = self._leave_shares(task) if task.places else {}
        task.done_s = work_s
        task.run += 1
        task.allocation = None
        task.is_suspended, task.halts_as = False, None
        del self.running[task.row]
        if exit is Exit.FINISHED:
            self.open_count -= 1
            self.ended_count += 1
        if self.gauges is not None and self.gauges.pop(task.row, None) is not None:
            events.append(progress_of(task, report_of(task, work_s)))
        task.rate = 0.0
        told_s = task.job.work_s if exit is Exit.FINISHED else work_s / task.unit
        events.append(TasksExited(task.job.spec.id, exit, told_s))
        return others

    def _node_changes(self, at_s: float, events: list[Event]) -> None:
        changing: dict[int, SimTask] = {}
        for node, is_lost in self.outages.take(at_s):
            if not is_lost:
                events.append(NodeBack(self.cluster.nodes[node].name))
                continue
            events.append(NodeLost(self.cluster.nodes[node].name))
            for task in list(self.running.values()):
                if task.allocation is not None and node in task.allocation.nodes():
                    kept_s = task.saved_at(at_s, self.checkpoint_s)
                    changing |= self._exit(task, Exit.NODE_LOST, kept_s, events)
        self._change_rates(changing, at_s, events)

    # Actions ---------------------------------------------------------------------------------------------------

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        events: list[Event] = []
        self.now_s = at_s
        for action in actions:
            task = self.tasks[action.job_id]
            if isinstance(action, Launch):
                self._launch(task, action.allocation, at_s, events)
            elif isinstance(action, Stop):
                others = self._exit(task, Exit.PREEMPTED, task.work_at(at_s), events)
                self._change_rates(others, at_s, events)
            elif isinstance(action, Move):
                self._move(task, action, at_s, events)
            elif isinstance(action, Suspend):
                self._suspend(task, action.memory, at_s, events)
            elif isinstance(action, Resume):
                self._resume(task, at_s, events)
            elif isinstance(action, Reshare):
                self._reshare(task, action.allocation, at_s, events)
        return events

    def _suspend(self, task: SimTask, memory: MemoryPlace, at_s: float, events: list[Event]) -> None:
        """Suspend: the job makes no progress, and its neighbours run as if it were not there. It is reported as
        suspended when its memory has been copied."""
        task.saved_s = task.saved_at(at_s, self.checkpoint_s)
        task.done_s = task.work_at(at_s)
        task.restart_left_s = max(task.progress_since_s - at_s, 0.0)
        task.progress_since_s = at_s
        task.rate = 0.0
        task.run += 1
        task.is_suspended, task.halts_as = True, memory
        copy_s = self._copy_s(task)
        if copy_s:
            events.append(progress_of(task))
            heapq.heappush(self.agenda, (at_s + copy_s, task.row, task.run, task))
        else:
            events.append(halted_as(task, memory))
        self._change_rates(self._neighbours(task), at_s, events)

    def _resume(self, task: SimTask, at_s: float, events: list[Event]) -> None:
        """Resume: the job has its GPUs again; it makes progress when its memory is back and a restart in progress is
        over."""
        task.progress_since_s = at_s + self._copy_s(task) + task.restart_left_s
        task.saving_since_s = task.progress_since_s
        task.is_suspended, task.halts_as = False, None
        self._set_rate(task)
        done_s, rate = task.done_s / task.unit, task.shown_rate
        share = told_share(task)
        events.append(TasksResumed(task.job.spec.id, done_s, rate, task.progress_since_s, share=share))
        self._first_report(task, at_s, events)
        self._change_rates(self._neighbours(task), at_s, events)

    def _reshare(self, task: SimTask, allocation: Allocation, at_s: float, events: list[Event]) -> None:
        """The job continues in place at the speed of its new terms, and so do its neighbours."""
        others = self._leave_shares(task)
        task.allocation = allocation
        others |= self._join_shares(task)
        self._change_rates({task.row: task} | others, at_s, events)

    def _copy_s(self, task: SimTask) -> float:
        """Seconds to copy the memory of its GPUs, all at once, to the nodes or back. If the job does not state how much
        that is, all of a GPU, if that is known."""
        assert task.allocation is not None
        if task.halts_as != "swapped":
            return 0.0
        nodes = self.cluster.nodes
        pieces = [piece for piece in task.allocation.slices if piece.gpus]
        amounts = [piece.gpu_mem_mib or nodes[piece.node].spec.gpu_mem_mib for piece in pieces]
        most_mib = max((mib for mib in amounts if mib < UNLIMITED), default=0)
        return most_mib / 1024 / self.swap_gib_per_s

    def _launch(self, task: SimTask, allocation: Allocation, at_s: float, events: list[Event]) -> None:
        others = self._begin(task, allocation, at_s)
        self.running[task.row] = task
        rate, share = task.shown_rate, told_share(task)
        events.append(TasksStarted(task.job.spec.id, rate, task.progress_since_s, share=share))
        if self.gauges is not None:
            self._first_report(task, at_s, events)
        if others:
            self._change_rates(others, at_s, events)

    def _move(self, task: SimTask, action: Move, at_s: float, events: list[Event]) -> None:
        others = self._leave_shares(task)
        task.done_s = task.work_at(at_s)
        others |= self._begin(task, action.allocation, at_s)
        done_s, rate = task.done_s / task.unit, task.shown_rate
        share = told_share(task)
        events.append(TasksMoved(task.job.spec.id, action.allocation, done_s, rate, task.progress_since_s, share=share))
        self._first_report(task, at_s, events)
        self._change_rates(others, at_s, events)

    def _begin(self, task: SimTask, allocation: Allocation, at_s: float) -> dict[int, SimTask]:
        """Progress continues from here, after the restart if it is one. Returns the neighbours."""
        task.allocation = allocation
        task.is_suspended, task.halts_as = False, None
        task.progress_since_s = at_s + self.restart_s if task.starts else at_s
        task.saving_since_s = task.progress_since_s
        task.begun_s = task.saved_s = task.done_s
        task.starts += 1
        task.share = task.told_rate = None
        others = self._join_shares(task)
        self._set_rate(task)
        return others

    def _set_rate(self, task: SimTask) -> None:
        """Compute the rate and the time of the next milestone."""
        work_s = task.work_s
        assert task.allocation is not None
        depth = task.allocation.depth
        task.rate, task.target_s = task.allocation.gpus * depth if task.is_elastic else 1.0, work_s
        if self.speed is not None:
            there = () if task.mode else self._neighbours(task).values()
            neighbours = [other.job.spec for other in there if not other.is_suspended]
            task.rate, until_s = self.speed.rate(task.job.spec, task.allocation, neighbours, task.done_s)
            task.target_s = min(until_s, work_s)
        if depth > 1:
            task.rate *= self.sharing.spliced(depth)
        if task.mode:
            self._share(task)
        elif task.share is not None:
            task.told_rate = None
            task.share = task.allocation.gpus / task.allocation.gpu_count()
        task.run += 1
        if task.target_s < math.inf and task.rate > 0:
            at_s = task.progress_since_s + (task.target_s - task.done_s) / task.rate
            if self.finish_round_s and task.target_s >= work_s:
                at_s = math.ceil(at_s / self.finish_round_s - 1e-9) * self.finish_round_s
            heapq.heappush(self.agenda, (max(at_s, self.since_s), task.row, task.run, task))
            self.idle_timers = 0

    def _share(self, task: SimTask) -> None:
        """The part of its speed that is left where it shares its GPUs; a gang is as fast as its slowest member."""
        assert task.allocation is not None
        gpu_type = self.cluster.nodes[task.allocation.terms.node].spec.gpu_type
        parts = []
        for place in task.places:
            # In an order independent of arrival, so that equal situations have equal rates to the last bit.
            there = {
                row: party_of(other, place)
                for row, other in sorted(self.tenants[place].items())
                if not other.is_suspended
            }
            parts.append(self.sharing.part_of(there[task.row], list(there.values()), gpu_type))
        alone = task.rate
        task.rate *= min(part.rate for part in parts)
        task.share = sum(part.share for part in parts) / len(parts)
        if self.turns is not None and task.mode == "slice":
            (group,) = task.places
            assert isinstance(group, str)
            members = [other for _, other in sorted(self.tenants[group].items()) if not other.is_suspended]
            round_ = self.turns.seat(group, members, self.now_s)
            task.told_rate, task.rate = task.rate, alone if round_.members[0] is task else 0.0
            task.progress_since_s = max(task.progress_since_s, round_.begins_s)

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
        self._set_rate(task)

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
        report = report_of(task, task.done_s)
        if not gauge.is_due(at_s, report.steps_per_s):
            return None
        gauge.speed = report.steps_per_s
        gauge.log(at_s, report.step)
        return report

    # Several jobs on one GPU -----------------------------------------------------------------------------------

    def _join_shares(self, task: SimTask) -> dict[int, SimTask]:
        """Enter a task on the GPUs that it shares. Returns its neighbours there."""
        assert task.allocation is not None
        task.mode = task.allocation.terms.mode
        if not task.mode and (self.speed is None or not self.speed.knows_sharing):
            return {}  # its neighbours, if any, do not affect any speed
        task.places = shared_places(task)
        for place in task.places:
            self.tenants.setdefault(place, {})[task.row] = task
        return self._neighbours(task)

    def _leave_shares(self, task: SimTask) -> dict[int, SimTask]:
        """Remove a task from the GPUs that it shares. Returns its former neighbours."""
        others = self._neighbours(task)
        for place in task.places:
            del self.tenants[place][task.row]
            if not self.tenants[place]:
                del self.tenants[place]
        task.places = []
        return others

    def _neighbours(self, task: SimTask) -> dict[int, SimTask]:
        """The other tenants of its shared GPUs, each once."""
        found: dict[int, SimTask] = {}
        for place in task.places:
            found |= self.tenants[place]
        found.pop(task.row, None)
        return found
