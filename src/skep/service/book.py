"""Jobs as their owners know them: a gang is one job of the core, else each task is one and the book adds them up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from skep.core.cluster import Cluster, bits
from skep.core.events import Event, StopRequested
from skep.core.job import Job, JobState, amount_of
from skep.core.model import JobSpec
from skep.core.state import State
from skep.jobs.completion import Tally
from skep.jobs.core import to_core
from skep.jobs.request import Request
from skep.service.store import Attempt, Held, JobRow

PENDING, LAUNCHING, RUNNING, STOPPING = (
    str(state) for state in (JobState.PENDING, JobState.LAUNCHING, JobState.RUNNING, JobState.STOPPING)
)
CODES = {JobState.SUCCEEDED: 0, JobState.FAILED: 1, JobState.UNRUNNABLE: 1}


class Part(NamedTuple):
    """What one member adds to its job."""

    state: str = PENDING
    is_final: bool = False
    launches: int = 0
    nodes: tuple[str, ...] = ()
    service_gpu_s: float = 0.0
    held_gpus: float = 0


class Record(msgspec.Struct):
    """A job that has not ended. What is told of it is added up as its members change, so that a job of thousands of
    tasks costs no more for each of them."""

    row: JobRow
    request: Request
    members: list[str]
    """Its jobs in the core."""
    tally: Tally
    attempts: dict[str, Attempt] = {}
    """The present one of each member."""
    codes: dict[tuple[str, int], int] = {}
    """How tasks that start one by one have ended."""
    ended: dict[str, float] = {}
    """When members ended whose exit was heard late; the scheduler counts from when it was heard."""
    why_failed: str = ""
    """In the words of its last failure."""
    is_decided: bool = False
    """Whether those members were stopped that can make no difference any more."""
    parts: dict[str, Part] = {}
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
    def needed_as(self) -> list[str]:
        """What others wait for who need this job."""
        return self.members if self.request.gang else [self.id]

    def note_exit(self, task: tuple[str, int], code: int) -> None:
        """How a task that starts by itself has ended, once and for all."""
        if task not in self.codes:
            self.codes[task] = code
            self.tally.add(*task, code)

    def add_up(self, job: Job, cluster: Cluster) -> None:
        """A member is as it is now."""
        before = self.parts.get(job.id)
        held = job.held_gpus
        part = Part(
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
        if not self.request.gang and job.state in CODES:
            self.note_exit(split_task(task_of(job.id)), CODES[job.state])

    def _count(self, part: Part, sign: int) -> None:
        self.states[part.state] = self.states.get(part.state, 0) + sign
        self.final_count += sign * part.is_final
        self.launches += sign * part.launches
        self.service_gpu_s += sign * part.service_gpu_s
        self.held_gpus += sign * part.held_gpus
        for node in part.nodes:
            count = self.nodes[node] = self.nodes.get(node, 0) + sign
            if not count:
                del self.nodes[node]


def owner_id(core_id: str) -> str:
    return core_id.partition("/")[0]


def owner_of(core_id: str) -> str:
    """The job as its owner knows it."""
    return core_id.partition("/")[0]


def task_of(core_id: str) -> str:
    """`role-index` of a member that is one task; nothing for a gang."""
    return core_id.partition("/")[2]


class Book:
    """All jobs that have not ended, by id."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.member_count = 0
        self.needed_by: dict[str, list[str]] = {}
        """By the id of a job in the core, the jobs in the core that need it."""

    def add(self, row: JobRow, request: Request, specs: list[JobSpec]) -> Record:
        record = Record(row, request, [spec.id for spec in specs], Tally(request))
        self.records[record.id] = record
        self.member_count += len(specs)
        for spec in specs:
            for needed in spec.needs:
                self.needed_by.setdefault(needed, []).append(spec.id)
        return record

    def restore(self, row: JobRow, request: Request, state: State) -> Record:
        """As it was before a restart; what the state knows of it is read from there."""
        specs = [state.jobs[spec.id].spec for spec in to_core(request, str(row.seq)) if spec.id in state.jobs]
        record = self.add(row, request, specs)
        for core_id in record.members:
            job = state.jobs[core_id]
            if job.held is not None:
                start_s = job.held_since_s if job.seq in state.held_jobs else None
                record.attempts[core_id] = new_attempt(row.seq, state.cluster, job, job.held_launch, start_s, "running")
            record.add_up(job, state.cluster)
        return record

    def of(self, core_id: str) -> Record | None:
        return self.records.get(owner_id(core_id))

    def follow_ups(self, record: Record, state: State) -> list[Event]:
        """Once some tasks have decided for all, the others are stopped."""
        if record.is_decided or record.request.gang or record.tally.outcome is None:
            return []
        record.is_decided = True
        jobs = [state.jobs[name] for name in record.members]
        left = [job for job in jobs if not job.state.is_final and not job.is_ending]
        return [StopRequested(job.id, "other tasks ended the job") for job in left]

    def refresh(self, record: Record, state: State, changed: Iterable[str]) -> bool:
        """Bring the row up to the state after a change of these members; whether it changed. A job that has ended
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
        record.row.service_gpu_s = sum(job.service_gpu_s for job in jobs)  # without what rounding has added up
        del self.records[record.id]
        self.member_count -= len(jobs)

    def _state(self, record: Record, state: State) -> tuple[str, str]:
        if len(record.members) == 1:
            job = state.jobs[record.members[0]]
            failed = record.why_failed if job.state is JobState.FAILED else ""
            return shown_state(job), shown_reason(job) or failed
        reason = next(iter(record.reasons.values()), "")
        for each in (RUNNING, LAUNCHING, STOPPING, PENDING):
            if record.states.get(each):
                return each, reason
        verdict = record.tally.outcome
        if verdict is None:
            return str(JobState.STOPPED), reason
        if verdict.succeeded:
            return str(JobState.SUCCEEDED), ""
        return str(JobState.FAILED), record.why_failed or reason


def shown_state(job: Job) -> str:
    """In the words of the API: a job that can never run has failed, one that is to end is stopping."""
    if job.state is JobState.UNRUNNABLE:
        return str(JobState.FAILED)
    if job.is_ending and not job.state.is_final:
        return STOPPING
    return str(job.state)


LIMIT = "limit"
"""Begins the reason of a hold that is due to a limit, see `limits.py`."""


def shown_reason(job: Job) -> str:
    if job.hold.startswith(LIMIT):
        return job.reason or job.hold
    return job.reason or (f"held: {job.hold}" if job.hold else "")


def node_names(cluster: Cluster, job: Job) -> tuple[str, ...]:
    if job.held is None:
        return ()
    return tuple(cluster.nodes[number].name for number in job.held.nodes())


def held_gpus(cluster: Cluster, job: Job) -> tuple[Held, ...]:
    """By node, and by how much of each GPU."""
    masks: dict[tuple[int, int], int] = {}
    for piece in job.held.slices if job.held is not None else ():
        if piece.gpus:
            masks[piece.node, piece.milli] = masks.get((piece.node, piece.milli), 0) | piece.gpus
    return tuple(
        Held(cluster.nodes[node].name, tuple(bits(mask)), milli) for (node, milli), mask in sorted(masks.items())
    )


def new_attempt(seq: int, cluster: Cluster, job: Job, launch: int, start_s: float | None, outcome: str) -> Attempt:
    return Attempt(
        seq,
        task_of(job.id),
        launch,
        start_s,
        None,
        node_names(cluster, job),
        job.held.gpus if job.held is not None else 0,
        outcome,
        held=held_gpus(cluster, job),
    )


def new_row(seq: int, request: Request, specs: list[JobSpec], now_s: float) -> JobRow:
    return JobRow(
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


def split_task(task: str) -> tuple[str, int]:
    role, _, index = task.rpartition("-")
    return role, int(index)
