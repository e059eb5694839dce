"""The one mutable thing: the cluster, the jobs, the policy's memory, folded from events and plans.

`apply` takes in what happened, `commit` what was decided. Nothing else changes the state, neither looks at a clock,
and the same sequence always gives the same state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from skep.core.actions import JobSetting, Limit, Tune
from skep.core.cluster import WHOLE, Cluster, NodeSpec
from skep.core.errors import InvariantBroken
from skep.core.events import (
    ClockStepped,
    ClusterChanged,
    Event,
    Exit,
    GroupEnded,
    GroupFormed,
    JobHeld,
    JobReleased,
    JobsForgotten,
    JobSubmitted,
    NodeBack,
    NodeChanged,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeLost,
    NodeUndrained,
    OthersChanged,
    PolicyChanged,
    PolicyFailed,
    PriorityChanged,
    ProgressReported,
    StopRequested,
    SuspendRefused,
    TasksExited,
    TasksMoved,
    TasksResumed,
    TasksStarted,
    TasksSuspended,
    TimeLimitSet,
    TimerDue,
)
from skep.core.group import Group, GroupSpec
from skep.core.job import Job, JobState
from skep.core.knowledge import UNKNOWN, Knowledge
from skep.core.memory import Memory, Of
from skep.core.model import GroupRef
from skep.core.nodes import reshape
from skep.core.others import Others, settle
from skep.core.plan import Plan
from skep.core.refusal import Cause, Waiting
from skep.core.timers import BACK_OFF, LEASE, LIMIT, PLAN, Timer, Timers
from skep.core.view import Trigger, View

JOB = Of.JOB
LAUNCHING, RUNNING, PENDING = JobState.LAUNCHING, JobState.RUNNING, JobState.PENDING
SUSPENDED = JobState.SUSPENDED

ENDS = {Exit.FINISHED: JobState.SUCCEEDED, Exit.FAILED: JobState.FAILED, Exit.STOPPED: JobState.STOPPED}


class State:
    """Everything the scheduler knows. Planners read it; only `apply` and `commit` write it."""

    def __init__(self, cluster: Cluster, knowledge: Knowledge = UNKNOWN) -> None:
        self.cluster = cluster
        self.knowledge = knowledge
        """Of the speed of jobs: given, not folded from events."""
        self.now_s = 0.0
        self.jobs: dict[str, Job] = {}
        self.groups: dict[str, Group] = {}
        self.memory = Memory()
        self.wake_s = math.inf
        """When the planner wants to be asked again."""
        self.timers = Timers()
        """What is to happen to jobs by itself."""
        self.trigger = Trigger()
        """What happened since the last decision."""
        self.settings: list[JobSetting] = []
        """What running jobs are to be told."""
        self.dirty: list[Job] = []
        """Jobs for which wanted and seen may differ."""
        self.leaving: dict[int, Job] = {}
        """Jobs that were told to stop and have not gone yet, by seq."""
        self.moving: dict[int, Job] = {}
        """Jobs that are to go on elsewhere and still are where they were, by seq."""
        self.waiting: dict[str, Waiting] = {}
        self.fragmented: dict[str, Waiting] = {}
        """Those of them whose jobs find enough free gpus, but in no acceptable shape."""
        self.needed_by: dict[str, list[Job]] = {}
        self.held_jobs: dict[int, Job] = {}
        """Jobs that hold part of the cluster, as seen, by seq in order of their start."""
        self.lost: set[str] = set()
        self.drained: set[str] = set()
        """Nodes that are not to be used, by name: nobody is there, or nobody is to go there."""
        self.node_changes: dict[str, NodeSpec | None] = {}
        """Nodes that are to become so (none: to leave), by name; those of earlier moments wait for jobs to go."""
        self.others: dict[str, Others] = {}
        """What tenants that are none of Skep's jobs use of nodes, by name."""
        self.crowded: set[str] = set()
        """Nodes of which others use more than is booked: a job is in the way, or the news has not been settled."""
        self.are_nodes_told = False
        """Whether the cluster is to get other nodes before anybody decides."""
        self.policy = ""
        self.previous_policy = ""
        """The one before, as long as it may be trusted to take over again."""
        self.faults: dict[str, PolicyFailed] = {}
        """Policies that failed and were replaced, by the VC that had them ("": all)."""
        self.submitted_count = 0
        self.pending_count = 0
        self.event_count = 0
        self.decision_count = 0
        # Each function takes the events of its key, which no type of a dictionary can say.
        self._apply: dict[type, Callable[[Any], None]] = {
            JobSubmitted: self._job_submitted,
            JobHeld: self._job_held,
            JobReleased: self._job_released,
            StopRequested: self._stop_requested,
            GroupFormed: self._group_formed,
            GroupEnded: self._group_ended,
            PriorityChanged: self._priority_changed,
            JobsForgotten: self._jobs_forgotten,
            TasksStarted: self._tasks_started,
            TasksExited: self._tasks_exited,
            TasksMoved: self._tasks_moved,
            TasksSuspended: self._tasks_suspended,
            TasksResumed: self._tasks_resumed,
            SuspendRefused: self._suspend_refused,
            ProgressReported: self._progress_reported,
            NodeLost: self._node_lost,
            NodeBack: self._node_back,
            NodeDrained: self._node_drained,
            NodeUndrained: self._node_undrained,
            NodeJoined: self._node_changed,
            NodeLeft: self._node_left,
            NodeChanged: self._node_changed,
            OthersChanged: self._others_changed,
            PolicyChanged: self._policy_changed,
            PolicyFailed: self._policy_failed,
            ClusterChanged: self._cluster_changed,
            ClockStepped: self._clock_stepped,
            TimeLimitSet: self._time_limit_set,
            TimerDue: self._timer_due,
        }

    def apply(self, event: Event) -> None:
        self.event_count += 1
        self._apply[type(event)](event)

    def _job_submitted(self, event: JobSubmitted) -> None:
        spec = event.job
        if spec.id in self.jobs:
            raise InvariantBroken(f"job {spec.id} was submitted twice")
        job = self.jobs[spec.id] = Job(spec, self.submitted_count, self.now_s)
        job.hold = event.hold
        self.submitted_count += 1
        self.pending_count += 1
        if spec.group is not None and not self._join_group(spec.group, job):
            return
        for needed in spec.needs:
            other = self.jobs.get(needed)
            if other is not None and other.state.is_final and other.state is not JobState.SUCCEEDED:
                self._end_needy(job, other.id, other.state)
                return
            if other is None or other.state is not JobState.SUCCEEDED:
                job.needs_left += 1
                self.needed_by.setdefault(needed, []).append(job)
        if spec.needs_groups and not self._await_groups(job):
            return
        if job.is_ready:
            self.trigger.submitted.append(job)

    # What owners ask for ----------------------------------------------------------------------------------------

    def _job_held(self, event: JobHeld) -> None:
        job = self.jobs[event.job_id]
        if job.state is PENDING:
            job.hold = event.reason
            self.timers.drop(BACK_OFF, job.id)
            if event.until_s is not None:
                self.timers.set(BACK_OFF, job.id, event.until_s)
            self._withdraw(job)

    def _job_released(self, event: JobReleased) -> None:
        self._release(self.jobs[event.job_id])

    def _release(self, job: Job) -> None:
        if job.state is PENDING and job.hold:
            job.hold = ""
            self.timers.drop(BACK_OFF, job.id)
            if job.is_ready:
                self.trigger.submitted.append(job)

    def _withdraw(self, job: Job) -> None:
        job.leave(self.now_s)
        self.trigger.withdrawn.append(job)

    def _priority_changed(self, event: PriorityChanged) -> None:
        job = self.jobs[event.job_id]
        if job.state is PENDING:
            job.spec = msgspec.structs.replace(job.spec, priority=event.priority)
            job.rank = -event.priority
            self._withdraw(job)
            if job.is_ready:
                self.trigger.submitted.append(job)

    def _stop_requested(self, event: StopRequested) -> None:
        self._stop(self.jobs[event.job_id], event.reason)

    def _stop(self, job: Job, reason: str) -> None:
        if job.state.is_final or job.is_ending:
            return
        if job.state is PENDING:
            self._end_pending(job, reason)
            return
        job.reason = reason
        if job.held is not None:
            job.is_ending = True
            self.dirty.append(job)
            return
        assert job.bound is not None  # it still waits for others to leave its cells
        self.cluster.give(job.bound, job.seq)
        job.allocation = job.bound = None
        self._end(job, JobState.STOPPED)

    def _end_needy(self, job: Job, needed: str, ended_as: JobState) -> None:
        never = ended_as is JobState.UNRUNNABLE
        how = "can never run" if never else f"ended as {ended_as}"
        self._end_pending(job, f"needs {needed}, which {how}", JobState.UNRUNNABLE if never else JobState.STOPPED)

    def _end_pending(self, job: Job, reason: str, state: JobState = JobState.STOPPED) -> None:
        self.pending_count -= 1
        job.needs_left = 0
        job.reason = reason
        self._withdraw(job)
        self._close(job, state)

    def _jobs_forgotten(self, event: JobsForgotten) -> None:
        for job_id in event.job_ids:
            job = self.jobs[job_id]
            if job.state.is_final:
                del self.jobs[job_id]
                if job.spec.group is not None:
                    self._forget_member(job.spec.group, job_id)

    # Groups -----------------------------------------------------------------------------------------------------

    def _group_formed(self, event: GroupFormed) -> None:
        group = self.groups.get(event.group.id)
        if group is None or group.has_ended:
            self._form(event.group)
        else:
            group.spec = event.group

    def _form(self, spec: GroupSpec) -> Group:
        group = self.groups[spec.id] = Group(spec)
        if spec.within is not None:
            self._group(spec.within.id).join(spec.id)
        return group

    def _group(self, group_id: str) -> Group:
        """As it is for somebody who comes now: anew if it has ended."""
        group = self.groups.get(group_id)
        if group is None or group.has_ended:
            return self._form(group.spec if group is not None else GroupSpec(group_id))
        return group

    def _join_group(self, ref: GroupRef, job: Job) -> bool:
        """Whether the job may go on: not where the others are about to leave."""
        group = self._group(ref.id)
        group.join(job.id)
        if group.outcome is not None:
            self._end_pending(job, group.reason)
        return group.outcome is None

    def _await_groups(self, job: Job) -> bool:
        """Whether the job may go on: not where a group that it needs has failed."""
        for needed in job.spec.needs_groups:
            group = self.groups.get(needed) or self._form(GroupSpec(needed))
            if not group.has_ended:
                job.needs_left += 1
                group.needed_by.append(job.id)
            elif group.outcome is not None and group.outcome is not JobState.SUCCEEDED:
                self._end_needy(job, group.spec.name or group.id, group.outcome)
                return False
        return True

    def _leave_group(self, ref: GroupRef, member: str, state: JobState) -> None:
        group = self.groups.get(ref.id)
        if group is None or member not in group.members or group.members[member] is not None:
            return  # it was of a group of that id which has ended before
        was_open = group.outcome is None
        group.note_end(member, ref.role, state)
        if group.has_ended:
            self._close_group(group)
        elif was_open and group.outcome is not None:
            self._stop_members(group)

    def _group_ended(self, event: GroupEnded) -> None:
        group = self.groups.get(event.group_id)
        if group is not None:
            self._end_group(group, event.outcome, event.reason)

    def _end_group(self, group: Group, outcome: JobState, reason: str) -> None:
        if group.outcome is not None:
            return
        group.outcome, group.reason = outcome, reason
        if group.has_ended:
            self._close_group(group)
        else:
            self._stop_members(group)

    def _stop_members(self, group: Group) -> None:
        for name in [name for name, ended_as in group.members.items() if ended_as is None]:
            if name in self.jobs:
                self._stop(self.jobs[name], group.reason)
            else:
                self._end_group(self.groups[name], JobState.STOPPED, group.reason)

    def _close_group(self, group: Group) -> None:
        """No member is left: those that need it may go on, or never will."""
        assert group.outcome is not None
        needy = [self.jobs[name] for name in group.needed_by]
        group.needed_by = []
        self._answer(needy, group.spec.name or group.id, group.outcome)
        if group.spec.within is not None:
            self._leave_group(group.spec.within, group.id, group.outcome)

    def _forget_member(self, ref: GroupRef, member: str) -> None:
        group = self.groups.get(ref.id)
        if group is None or group.members.pop(member, None) is None or group.members or group.needed_by:
            return
        del self.groups[ref.id]
        if group.spec.within is not None:
            self._forget_member(group.spec.within, group.id)

    # What engines tell ------------------------------------------------------------------------------------------

    def _tasks_started(self, event: TasksStarted) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.held is None or job.seq in self.held_jobs or is_late(job, event.launch):
            return  # late or told twice
        if job.state is LAUNCHING:
            job.state = RUNNING
        if job.start_s is None:
            job.start_s = self.now_s
        job.held_since_s = self.now_s
        job.held_gpus = job.held.gpus
        job.gpu_count = job.held.gpu_count()
        job.rate = event.rate
        job.progress_since_s = job.saving_since_s = event.progress_since_s
        self.held_jobs[job.seq] = job
        if job.spec.time_limit_s is not None:
            self._limit(job)
        self.trigger.started.append(job)
        self._wake_others(job)

    def _wake_others(self, job: Job) -> None:
        """Whoever is about to start or to move is left alone until it has: others may have asked in vain meanwhile."""
        if self.now_s > job.decided_s:
            self.trigger.nodes_changed = True

    def _tasks_moved(self, event: TasksMoved) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.held is None or (event.launch and event.launch <= job.held_launch):
            return  # late or told twice
        if job.seq not in self.held_jobs:  # that it had started was told late, or not at all
            self._tasks_started(TasksStarted(job.id, event.rate, event.progress_since_s, job.held_launch))
        before = job.held_gpus
        self._settle(job)
        job.held = event.allocation
        job.held_gpus = event.allocation.gpus
        job.gpu_count = event.allocation.gpu_count()
        if job.held_gpus == before:
            job.migrations += 1
        else:
            job.resizes += 1
        job.work_s = job.saved_s = event.work_s
        job.rate = event.rate
        job.progress_since_s = job.saving_since_s = event.progress_since_s
        job.held_launch = event.launch or job.launches
        job.limit_milli, job.settings = WHOLE, {}
        self.moving.pop(job.seq, None)
        if job.held_launch == job.launches:  # else it was told already where to go on
            self._follow_up(job)
        self._wake_others(job)

    def _follow_up(self, job: Job) -> None:
        """Where something else is wanted of the job by now than what it was told last, it is told that."""
        if job.bound is not None and job.bound != job.held:
            self.dirty.append(job)

    def _tasks_suspended(self, event: TasksSuspended) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.seq not in self.held_jobs or job.is_halted or is_late(job, event.launch):
            return  # late or told twice
        assert job.held is not None
        job.restart_left_s = max(job.progress_since_s - max(job.halting_since_s, job.held_since_s), 0.0)
        self._settle(job)
        job.held = job.held.suspended(event.memory)
        job.held_gpus = 0
        job.work_s, job.rate, job.progress_since_s = event.work_s, 0.0, self.now_s
        job.saved_s = job.saved_s if event.saved_s is None else event.saved_s
        self.timers.drop(LIMIT, job.id)
        self.moving.pop(job.seq, None)
        self._follow_up(job)
        self._wake_others(job)

    def _tasks_resumed(self, event: TasksResumed) -> None:
        """Because it was told to, or because the engine lets nobody stand still who is not told so again and again."""
        job = self.jobs.get(event.job_id)
        if job is None or job.held is None or job.held.resumes_as is None or is_late(job, event.launch):
            return  # late or told twice
        job.held = job.held.resumes_as
        job.held_gpus = job.held.gpus
        job.held_since_s = self.now_s
        job.work_s, job.rate, job.progress_since_s = event.work_s, event.rate, event.progress_since_s
        job.saving_since_s = event.progress_since_s
        if job.spec.time_limit_s is not None:
            self._limit(job)
        self._follow_up(job)
        self._wake_others(job)

    def _suspend_refused(self, event: SuspendRefused) -> None:
        job = self.jobs.get(event.job_id)
        if job is not None and job.state is SUSPENDED and not job.is_halted and not is_late(job, event.launch):
            self._push_out(job)

    def _push_out(self, job: Job) -> None:
        """Stop a suspended job: it is pending again when its tasks have gone."""
        assert job.bound is not None
        self.cluster.give(job.bound, job.seq)
        job.allocation = job.bound = None
        job.state = JobState.STOPPING
        self.dirty.append(job)

    def _push_out_suspended(self, vc: str) -> None:
        """Those of a VC, or all: another planner may know nothing of who is to go on. They come back as any others
        that were stopped."""
        for job in list(self.held_jobs.values()):
            if job.state is SUSPENDED and vc in ("", job.spec.vc):
                self.memory.jobs.pop(job.id, None)
                self._push_out(job)

    def _settle(self, job: Job) -> None:
        """Book what the job has held since the last change."""
        held_s = self.now_s - job.held_since_s
        job.held_since_s = self.now_s
        if not job.is_halted:
            job.run_s += held_s
            job.service_gpu_s += held_s * job.held_gpus

    def _tasks_exited(self, event: TasksExited) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.held is None or is_late(job, event.launch):
            return  # late or told twice: what is finished stays finished
        if job.seq in self.held_jobs:  # else it never came to run
            self._settle(job)
            del self.held_jobs[job.seq]
        if self.timers:
            self._drop_timers(job)
        job.is_expired = False
        job.held_gpus = 0
        job.held = None
        job.limit_milli, job.settings = WHOLE, {}
        job.rate = 0.0
        job.work_s = job.saved_s = event.work_s
        self.leaving.pop(job.seq, None)
        if self.moving:
            self.moving.pop(job.seq, None)
        job.allocation = None
        if job.bound is not None:
            self.cluster.give(job.bound, job.seq)
            job.bound = None
        final = ENDS.get(event.exit)
        if job.is_ending and final is not JobState.SUCCEEDED:
            final = JobState.STOPPED
        if final is not None:
            self._end(job, final)
            return
        if event.exit is Exit.PREEMPTED:
            job.preemptions += 1
        else:
            job.retries += event.exit is Exit.RETRIED
            # Whatever waited for its cells was free to count on them; what it lost may wake others.
            self.trigger.nodes_changed = True
        job.state = PENDING
        job.pending_since_s = self.now_s
        self.pending_count += 1
        self.trigger.returned.append(job)

    def _end(self, job: Job, state: JobState) -> None:
        self.trigger.ended.append(job)
        self._close(job, state)

    def _close(self, job: Job, state: JobState) -> None:
        """It is over: those that need it may go on, or never will."""
        job.state = state
        self.memory.jobs.pop(job.id, None)
        if self.timers:
            self._drop_timers(job)
        if state is not JobState.UNRUNNABLE:  # which never began
            job.finish_s = self.now_s
        if self.needed_by:
            self._answer(self.needed_by.pop(job.id, ()), job.id, state)
        if job.spec.group is not None:
            self._leave_group(job.spec.group, job.id, state)

    def _answer(self, needy: Iterable[Job], needed: str, ended_as: JobState) -> None:
        for waiting in needy:
            if waiting.state is not PENDING:
                continue
            if ended_as is not JobState.SUCCEEDED:
                self._end_needy(waiting, needed, ended_as)
                continue
            waiting.needs_left -= 1
            if waiting.is_ready:
                self.trigger.submitted.append(waiting)

    def _progress_reported(self, event: ProgressReported) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.seq not in self.held_jobs:
            return
        job.work_s = event.work_s
        job.rate = event.rate
        job.saved_s = job.saved_s if event.saved_s is None else event.saved_s
        job.progress_since_s = max(job.progress_since_s, self.now_s)  # a restart under way goes on

    def _node_lost(self, event: NodeLost) -> None:
        self.lost.add(event.node)
        self._follow_node(event.node)

    def _node_back(self, event: NodeBack) -> None:
        self.lost.discard(event.node)
        self._follow_node(event.node)

    def _node_drained(self, event: NodeDrained) -> None:
        self.drained.add(event.node)
        self._follow_node(event.node)

    def _node_undrained(self, event: NodeUndrained) -> None:
        self.drained.discard(event.node)
        self._follow_node(event.node)

    def _node_changed(self, event: NodeJoined | NodeChanged) -> None:
        self.node_changes[event.spec.name] = event.spec
        self.are_nodes_told = True

    def _node_left(self, event: NodeLeft) -> None:
        if event.node in self.cluster.by_name or event.node in self.node_changes:
            self.node_changes[event.node] = None
            self.are_nodes_told = True

    def _others_changed(self, event: OthersChanged) -> None:
        if event.node in self.cluster.by_name:
            known = self.others.setdefault(event.node, Others(()))
            known.uses = event.uses
            self.crowded.add(event.node)
            self.trigger.nodes_changed = True

    def settle_nodes(self) -> bool:
        """After the events of a moment: let the cluster have the nodes that they told of. Whether they told of any."""
        if self.crowded:
            settle(self, sorted(self.crowded))
        if not self.are_nodes_told:
            return False
        self.are_nodes_told = False
        reshape(self)
        self.trigger.nodes_changed = True
        return True

    def _follow_node(self, name: str) -> None:
        node = self.cluster.by_name[name]
        if name in self.lost or name in self.drained or name in self.node_changes:
            self.cluster.lose(node)
        else:
            self.cluster.restore(node)
        self.trigger.nodes_changed = True

    # Time -------------------------------------------------------------------------------------------------------

    @property
    def next_timer_s(self) -> float:
        """When something is due although nothing happens."""
        return min(self.wake_s, self.timers.next_s) if self.timers else self.wake_s

    def due(self, now_s: float) -> tuple[Timer, ...]:
        plan = [Timer(self.wake_s, PLAN)] if self.wake_s <= now_s else []
        return tuple(self.timers.due(now_s) + plan)

    def _timer_due(self, event: TimerDue) -> None:
        """One that is no longer set does not count: what it was for has happened in the same moment."""
        for timer in event.due or (*self.timers.due(self.now_s), Timer(self.now_s, PLAN)):
            if timer.kind is PLAN:
                self.trigger.is_timer = True
                self.wake_s = math.inf
            elif self.timers.drop(timer.kind, timer.job_id):
                job = self.jobs[timer.job_id]
                if timer.kind is BACK_OFF:
                    self._release(job)
                elif timer.kind is LEASE:
                    self._expire(job)
                else:
                    self._stop(job, f"its time limit of {job.spec.time_limit_s:g} s is over")

    def _time_limit_set(self, event: TimeLimitSet) -> None:
        job = self.jobs[event.job_id]
        job.spec = msgspec.structs.replace(job.spec, time_limit_s=event.limit_s)
        if job.seq in self.held_jobs:
            self._limit(job)

    def _limit(self, job: Job) -> None:
        assert job.spec.time_limit_s is not None
        left_s = job.spec.time_limit_s - job.run_s - (self.now_s - job.held_since_s)
        self.timers.set(LIMIT, job.id, self.now_s + left_s)

    def lease(self, job: Job, until_s: float) -> None:
        """What was decided for it holds until then."""
        self.timers.set(LEASE, job.id, until_s)

    def _expire(self, job: Job) -> None:
        """It is stopped like one that is preempted, and told to the planner when it has gone."""
        if job.held is not None:
            job.is_expired = True
            self.dirty.append(job)
        elif job.bound is not None:  # it still waits for others to leave its cells
            self.cluster.give(job.bound, job.seq)
            job.allocation = job.bound = None
            self._unstart(job)

    def _drop_timers(self, job: Job) -> None:
        for kind in (LIMIT, LEASE, BACK_OFF):
            self.timers.drop(kind, job.id)

    # What admins change -----------------------------------------------------------------------------------------

    def _policy_changed(self, event: PolicyChanged) -> None:
        """What the planner before remembered goes with it; who owns what stays."""
        self._push_out_suspended("")
        if "" not in self.faults and self.policy not in ("", event.policy):
            self.previous_policy = self.policy
        elif "" in self.faults:
            self.previous_policy = self.faults.pop("").instead
        self.policy = event.policy
        self.memory.drop_policy(list(self.memory.jobs), "")
        self._plan_anew("")

    def _policy_failed(self, event: PolicyFailed) -> None:
        """Nothing of the failed decision is in the state, but neither was anybody told of what it was about."""
        self._push_out_suspended(event.vc)
        self.faults[event.vc] = event
        if not event.vc:
            self.policy, self.previous_policy = event.instead, ""
        jobs = [name for name in self.memory.jobs if event.vc in ("", self.jobs[name].spec.vc)]
        self.memory.drop_policy(jobs, event.vc)
        self._plan_anew(f"{event.vc}/" if event.vc else "")

    def _cluster_changed(self, event: ClusterChanged) -> None:
        """Which of its VC's cells a job has is found anew, from where it runs; all else is remembered."""
        self.faults = {vc: fault for vc, fault in self.faults.items() if not vc}
        self.memory.drop_beneath()
        self._plan_anew("")

    def _clock_stepped(self, event: ClockStepped) -> None:
        """No time has passed: whatever counts from a moment counts from one that is as much later."""
        by_s = event.by_s
        for job in (job for job in self.jobs.values() if not job.state.is_final):
            job.pending_since_s += by_s
            job.decided_s += by_s
            job.held_since_s += by_s
            job.progress_since_s += by_s
            job.saving_since_s += by_s
            job.halting_since_s += by_s
        self.timers = self.timers.shifted(by_s)
        self.wake_s += by_s
        for waiting in self.waiting.values():
            waiting.since_s += by_s
        self.trigger.nodes_changed = True

    def _plan_anew(self, prefix: str) -> None:
        """The scopes in which jobs wait (those of that prefix) are words of the planner before."""
        scopes = {scope: waiting for scope, waiting in self.waiting.items() if scope.startswith(prefix)}
        old = {id(waiting) for waiting in scopes.values()}
        for job in self.jobs.values():
            if job.waiting is not None and id(job.waiting) in old:
                job.leave(self.now_s)
        self.waiting = {scope: waiting for scope, waiting in self.waiting.items() if scope not in scopes}
        self.fragmented = {scope: waiting for scope, waiting in self.fragmented.items() if scope not in scopes}
        self.trigger.nodes_changed = True

    def placed_jobs(self) -> list[Job]:
        """Jobs that are wanted somewhere, those that run first, in the order of their start."""
        held = [job for job in self.held_jobs.values() if job.allocation is not None]
        others = (job for job in self.jobs.values() if job.allocation is not None)
        return held + [job for job in others if job.seq not in self.held_jobs]

    @property
    def version(self) -> int:
        return self.event_count + self.decision_count

    def new_plan(self) -> Plan:
        return Plan(self.jobs, self.cluster, self.groups)

    def blank(self) -> State:
        return State(self.cluster.blank(), self.knowledge)

    def take_trigger(self) -> Trigger:
        trigger = self.trigger
        self.trigger = Trigger()
        return trigger

    def commit(self, plan: Plan) -> None:
        """Make a plan whose decisions were tried on this very state the wanted one."""
        self.decision_count += 1
        now_s = self.now_s
        self.wake_s = math.inf if plan.wake_s is None else plan.wake_s
        for scope, cause in plan.refusals:
            self.refuse(scope, cause)
        for job, scope in plan.joins:
            job.join(self._waiting(scope), now_s)
        for decision in plan.decisions:
            job = self.jobs[decision.job_id]
            job.bound = decision.after
            job.decided_s = now_s
            if decision.before is None:
                self.pending_count -= 1
                job.leave(now_s)
                if decision.until_s is not None:
                    self.lease(job, decision.until_s)
            elif decision.after is None and job.held is None:
                self._unstart(job)
            self.dirty.append(job)
        for setting in plan.settings:
            self._set(setting)
        for change in plan.memory:
            if change.of is not JOB or not self.jobs[change.key].state.is_final:
                self.memory.take_in(change)
        # What follows from these may stop jobs that were started just now, or were to be rejected too.
        for job, reason in plan.rejects:
            if job.state is not PENDING:
                continue
            self.pending_count -= 1
            job.reason = reason
            self._close(job, JobState.UNRUNNABLE)
        for group_id, outcome, reason in plan.ends:
            self._end_group(self.groups[group_id], outcome, reason)

    def _set(self, setting: JobSetting) -> None:
        """The job keeps what it is told as long as it runs: after a crash it is told again."""
        job = self.jobs[setting.job_id]
        if isinstance(setting, Limit):
            job.limit_milli = setting.milli
        elif isinstance(setting, Tune):
            job.settings = {**job.settings, **setting.settings}
        self.settings.append(setting)

    def _unstart(self, job: Job) -> None:
        """It was stopped before its launch was ever asked for: it waits again as if nothing had been."""
        self.timers.drop(LEASE, job.id)
        job.state = PENDING
        self.pending_count += 1
        self.trigger.returned.append(job)

    def refuse(self, scope: str, cause: Cause) -> None:
        """From now on the jobs of this scope wait for this cause."""
        waiting = self._waiting(scope)
        waiting.become(cause, self.now_s)
        if cause is Cause.FRAGMENTATION:
            self.fragmented[scope] = waiting
        else:
            self.fragmented.pop(scope, None)

    @property
    def is_fragmented(self) -> bool:
        """Whether some job waits although enough gpus are free for it."""
        return any(waiting.jobs for waiting in self.fragmented.values())

    def _waiting(self, scope: str) -> Waiting:
        waiting = self.waiting.get(scope)
        if waiting is None:
            waiting = self.waiting[scope] = Waiting(self.now_s)
        return waiting


def as_view(state: State) -> View:
    """What planners see of it; that it is one is for the type checker to say."""
    return state


def is_late(job: Job, launch: int) -> bool:
    """Whether this is told of a start before the one by which the job has what it holds."""
    return 0 < launch < job.held_launch
