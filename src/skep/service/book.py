"""Jobs as their owners see them: a gang is one job of the core; otherwise each task is one, and the book aggregates
them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from skep.core.cluster import Cluster, bits
from skep.core.group import GroupKind
from skep.core.job import Job, JobState, amount_of
from skep.core.model import JobSpec
from skep.core.state import State
from skep.jobs.core import Needed, task_of, to_core
from skep.jobs.request import Request
from skep.service.store import Attempt, Held, StoredJob

PENDING, LAUNCHING, RUNNING = str(JobState.PENDING), str(JobState.LAUNCHING), str(JobState.RUNNING)
SUSPENDED, STOPPING = str(JobState.SUSPENDED), str(JobState.STOPPING)


class BookPart(NamedTuple):
    """What one member contributes to its job."""

    state: str = PENDING
    is_final: bool = False
    launches: int = 0
    nodes: tuple[str, ...] = ()
    service_gpu_s: float = 0.0
    held_gpus: float = 0


class Record(msgspec.Struct):
    """A job that has not ended. Its description is updated member by member, so that the cost per task does not grow
    with the number of tasks."""

    row: StoredJob
    request: Request
    members: list[str]
    """Its jobs in the core."""
    attempts: dict[str, Attempt] = {}
    """The present contribution of each member."""
    ended: dict[str, float] = {}
    """End times of members whose exit was reported late; the scheduler counts from the report."""
    why_failed: str = ""
    """The text of its last failure."""
    parts: dict[str, BookPart] = {}
    states: dict[str, int] = {}
    nodes: dict[str, int] = {}
    reasons: dict[str, str] = {}
    final_count: int = 0
    launches: int = 0
    service_gpu_s: float = 0.0
    held_gpus: float = 0

    @property
    def id(self) -> str:
        return str(self.row.seq)

    @property
    def needed_as(self) -> Needed:
        """What jobs that need this one wait for."""
        return Needed(jobs=tuple(self.members)) if self.request.gang else Needed(groups=(self.id,))

    def task_of(self, job: Job) -> str:
        """The task that a member consists of; empty for a gang."""
        return task_of(job.spec, self.request)

    def launching(self, job: Job) -> str:
        """What its launch waits for, if the engine has said so."""
        attempt = self.attempts.get(job.id)
        return attempt.phrase if attempt is not None and job.state is JobState.LAUNCHING else ""

    def add_up(self, job: Job, cluster: Cluster) -> None:
        """Update the contribution of a member."""
        before = self.parts.get(job.id)
        held = job.held_gpus
        part = BookPart(
            shown_state(job), job.state.is_final, job.launches, node_names(cluster, job), job.service_gpu_s, held
        )
        if before is not None:
            self._count(before, -1)
        self._count(part, 1)
        self.parts[job.id] = part
        if job.reason:
            self.reasons[job.id] = shown_reason(job)
        else:
            self.reasons.pop(job.id, None)
        if job.start_s is not None and (self.row.start_s is None or job.start_s < self.row.start_s):
            self.row.start_s = job.start_s

    def _count(self, part: BookPart, sign: int) -> None:
        self.states[part.state] = self.states.get(part.state, 0) + sign
        self.final_count += sign * part.is_final
        self.launches += sign * part.launches
        self.service_gpu_s += sign * part.service_gpu_s
        self.held_gpus += sign * part.held_gpus
        for node in part.nodes:
            count = self.nodes[node] = self.nodes.get(node, 0) + sign
            if not count:
                del self.nodes[node]


def owner_of(state: State, core_id: str) -> str:
    """The job as its owner sees it: the job of its tasks, or itself."""
    job = state.jobs.get(core_id)
    group = state.groups.get(job.spec.group.id) if job is not None and job.spec.group is not None else None
    return group.id if group is not None and group.kind is GroupKind.INCREMENTAL else core_id


class Book:
    """All jobs that have not ended, by id."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.by_member: dict[str, Record] = {}
        """The same by the ids of their jobs in the core."""
        self.needed_by: dict[str, list[str]] = {}
        """By the id of a job in the core, the jobs in the core that need it."""
        self.decided: set[str] = set()
        """Groups that are known to have ended, or to be about to."""

    def add(self, row: StoredJob, request: Request, specs: list[JobSpec]) -> Record:
        record = Record(row, request, [spec.id for spec in specs])
        self.records[record.id] = record
        self.by_member |= dict.fromkeys(record.members, record)
        for spec in specs:
            if spec.group is not None:
                self.decided.discard(spec.group.id)  # it may start again
            for needed in (*spec.needs, *spec.needs_groups):
                self.needed_by.setdefault(needed, []).append(spec.id)
        return record

    def restore(self, row: StoredJob, request: Request, state: State) -> Record:
        """Restore a job after a restart; the rest is read from the state."""
        specs = [state.jobs[spec.id].spec for spec in to_core(request, str(row.seq)) if spec.id in state.jobs]
        record = self.add(row, request, specs)
        for core_id in record.members:
            job = state.jobs[core_id]
            if job.held is not None:
                start_s = job.held_since_s if job.seq in state.held_jobs else None
                record.attempts[core_id] = new_attempt(record, state.cluster, job, job.held_launch, start_s, "running")
            record.add_up(job, state.cluster)
        return record

    def of(self, core_id: str) -> Record | None:
        return self.by_member.get(core_id)

    def ended_with(self, state: State, group_id: str) -> list[str]:
        """Jobs that may have ended because this group has: its members, and those that need it. They have no events of
        their own."""
        group = state.groups.get(group_id)
        if group is None or group.outcome is None:
            return []
        found = self.needed_by.pop(group_id, []) if group.has_ended else []
        if group_id not in self.decided:
            self.decided.add(group_id)
            for name in group.members:
                found += [name] if name in state.jobs else self.ended_with(state, name)
        if group.has_ended and group.spec.within is not None:
            found += self.ended_with(state, group.spec.within.id)
        return found

    def refresh(self, record: Record, state: State, changed: Iterable[str]) -> bool:
        """Update the row from the state after a change of these members. True if it changed. A job that has ended
        leaves the book."""
        before = msgspec.structs.astuple(record.row)
        for name in changed:
            record.add_up(state.jobs[name], state.cluster)
        row = record.row
        row.state, row.reason = self._state(record, state)
        row.attempts = record.launches
        row.priority = state.jobs[record.members[0]].spec.priority
        row.nodes = tuple(record.nodes)
        row.service_gpu_s = record.service_gpu_s
        if record.request.elastic is not None and record.held_gpus:
            row.gpus = record.held_gpus
        if record.final_count == len(record.members):
            self._end(record, state)
        return msgspec.structs.astuple(row) != before

    def _end(self, record: Record, state: State) -> None:
        jobs = [state.jobs[name] for name in record.members]
        ends = [record.ended.get(job.id, job.finish_s) for job in jobs]
        record.row.finish_s = max((end_s for end_s in ends if end_s is not None), default=state.now_s)
        record.row.service_gpu_s = sum(job.service_gpu_s for job in jobs)  # removes accumulated rounding errors
        del self.records[record.id]
        for job in jobs:
            del self.by_member[job.id]

    def _state(self, record: Record, state: State) -> tuple[str, str]:
        if len(record.members) == 1:
            job = state.jobs[record.members[0]]
            failed = record.why_failed if job.state is JobState.FAILED else ""
            return shown_state(job), shown_reason(job) or failed or record.launching(job)
        reason = next(iter(record.reasons.values()), "")
        for each in (RUNNING, LAUNCHING, SUSPENDED, STOPPING, PENDING):
            if record.states.get(each):
                return each, reason
        outcome = state.groups[record.id].outcome
        if outcome is JobState.SUCCEEDED:
            return str(outcome), ""
        failed = record.why_failed if outcome is JobState.FAILED else ""  # else of a failure that was retried
        return str(outcome or JobState.STOPPED), failed or reason


def shown_state(job: Job) -> str:
    """In terms of the API: a job that can never run has failed, one that is about to end is stopping."""
    if job.state is JobState.UNRUNNABLE:
        return str(JobState.FAILED)
    if job.is_ending and not job.state.is_final:
        return STOPPING
    return str(job.state)


LIMIT = "limit"
"""The prefix of the reason of a hold that is due to a limit, see `limits.py`."""


def shown_reason(job: Job) -> str:
    if job.hold.startswith(LIMIT):
        return job.reason or job.hold
    return job.reason or (f"held: {job.hold}" if job.hold else "")


def node_names(cluster: Cluster, job: Job) -> tuple[str, ...]:
    if job.held is None:
        return ()
    return tuple(cluster.nodes[number].name for number in job.held.nodes())


def held_gpus(cluster: Cluster, job: Job) -> tuple[Held, ...]:
    """By node, and by the thousandths of each GPU."""
    masks: dict[tuple[int, int], int] = {}
    for piece in job.held.slices if job.held is not None else ():
        if piece.gpus:
            masks[piece.node, piece.milli] = masks.get((piece.node, piece.milli), 0) | piece.gpus
    return tuple(
        Held(cluster.nodes[node].name, tuple(bits(mask)), milli) for (node, milli), mask in sorted(masks.items())
    )


def new_attempt(
    record: Record, cluster: Cluster, job: Job, launch: int, start_s: float | None, outcome: str
) -> Attempt:
    return Attempt(
        record.row.seq,
        record.task_of(job),
        launch,
        start_s,
        None,
        node_names(cluster, job),
        job.held.gpus if job.held is not None else 0,
        outcome,
        held=held_gpus(cluster, job),
    )


def new_row(seq: int, request: Request, specs: list[JobSpec], now_s: float) -> StoredJob:
    return StoredJob(
        seq=seq,
        name=request.name,
        user=request.user,
        vc=request.vc,
        state=PENDING,
        priority=request.priority,
        gpus=sum(amount_of(spec.shapes[0]) for spec in specs),
        submit_s=now_s,
        group=request.group,
        tags=request.tags,
    )
