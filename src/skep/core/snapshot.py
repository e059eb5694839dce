"""Snapshots: a whole state as bytes, so that a recovery need not begin at the first event.

Derived data is not stored: the indexes over free cells are rebuilt from the allocations, and the caches of a planner
when it is attached.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import msgspec

from skep.core.actions import JobSetting
from skep.core.cluster import Allocation, Cluster, NodeSpec
from skep.core.events import PolicyFailed
from skep.core.group import Group
from skep.core.job import Job, JobState, state_of
from skep.core.knowledge import UNKNOWN, Knowledge, ProfileFigures
from skep.core.knowledge import Saved as SavedKnowledge
from skep.core.ledger import OTHERS
from skep.core.memory import Memory, PlannerPart, Values, values_of
from skep.core.model import JobSpec
from skep.core.others import Others
from skep.core.refusal import Cause
from skep.core.state import State
from skep.core.timers import Timer, Timers

DERIVED = ("id", "shapes", "gpus", "rank", "is_ready", "state")
"""Fields of a job that follow from its spec or from other fields."""

SPECIAL = ("spec", "seq", "submit_s", "allocation", "bound", "held", "waiting", "ended")

PLAIN = tuple(name for name in Job.__slots__ if name not in (*DERIVED, *SPECIAL))
"""Fields of a job that are plain values: numbers, flags and texts."""


class SavedJob(msgspec.Struct, array_like=True):
    spec: JobSpec
    seq: int
    submit_s: float
    ended: JobState | None
    bound: Allocation | None
    held: Allocation | None
    waiting: str | None
    plain: list[Any]  # in the order of `SavedState.fields`


class SavedWaiting(msgspec.Struct, array_like=True):
    cause: Cause
    since_s: float
    quota_s: float
    fragmentation_s: float


class SavedMemory(msgspec.Struct):
    jobs: dict[str, Values] = {}
    parts: dict[str, dict[str, PlannerPart]] = {}


class SavedState(msgspec.Struct):
    fields: tuple[str, ...]
    """The names of the values in `plain` of each job: another version may have more or fewer."""
    now_s: float
    wake_s: float
    memory: SavedMemory
    jobs: list[SavedJob]
    waiting: dict[str, SavedWaiting]
    held: list[str]
    leaving: list[str]
    moving: list[str]
    dirty: list[str]
    needed_by: dict[str, list[str]]
    lost: list[str]
    drained: list[str]
    counts: list[int]
    policy: str
    previous_policy: str
    faults: dict[str, PolicyFailed]
    timers: list[Timer]
    nodes: list[NodeSpec]
    """By number."""
    node_changes: dict[str, NodeSpec | None]
    others: dict[str, Others]
    groups: list[Group]
    knowledge: SavedKnowledge
    said_lost: list[str] = []
    conditions: dict[str, tuple[str, ...]] = {}
    settings: list[JobSetting] = []
    """Those that wait for their launch."""


ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(SavedState)


def dump(state: State) -> bytes:
    """Take a snapshot between two steps, when the planner has seen all events."""
    scopes = scopes_of(state)
    saved = save(state)
    saved.jobs = [save_job(job, scopes) for job in state.jobs.values()]
    return ENCODER.encode(saved)


def save(state: State) -> SavedState:
    """Everything except the jobs."""
    return SavedState(
        fields=PLAIN,
        now_s=state.now_s,
        wake_s=state.wake_s,
        memory=SavedMemory(**values_of(state.memory)),
        jobs=[],
        waiting={
            scope: SavedWaiting(waiting.cause, waiting.since_s, waiting.quota_s, waiting.fragmentation_s)
            for scope, waiting in state.waits.scopes.items()
        },
        held=[job.id for job in state.held_jobs.values()],
        leaving=[job.id for job in state.orders.leaving.values()],
        moving=[job.id for job in state.orders.moving.values()],
        dirty=[job.id for job in state.orders.dirty.values()],
        needed_by={name: [job.id for job in jobs] for name, jobs in state.needed_by.items()},
        lost=sorted(state.health.lost),
        drained=sorted(state.health.drained),
        counts=[state.submitted_count, state.pending_count, state.event_count, state.decision_count],
        policy=state.policy,
        previous_policy=state.previous_policy,
        faults=state.faults,
        timers=state.timers.all(),
        nodes=state.cluster.specs,
        node_changes=state.health.changes,
        others=state.health.others,
        groups=list(state.groups.values()),
        knowledge=state.known.saved(),
        said_lost=sorted(state.health.said_lost),
        conditions=state.health.conditions,
        settings=state.orders.settings,
    )


def scopes_of(state: State) -> dict[int, str]:
    return {id(waiting): scope for scope, waiting in state.waits.scopes.items()}


def save_job(job: Job, scopes: dict[int, str]) -> SavedJob:
    scope = scopes[id(job.waiting)] if job.waiting is not None else None
    plain = [getattr(job, name) for name in PLAIN]
    return SavedJob(job.spec, job.seq, job.submit_s, job.ended, job.bound, job.held, scope, plain)


def load(data: bytes, cluster: Cluster, measured: ProfileFigures = UNKNOWN) -> State:
    """Restore onto an unused cluster built from the cluster file. The snapshot stores which nodes the cluster really
    had.

    Given speeds are not stored: the caller supplies them again.
    """
    saved = DECODER.decode(data)
    if saved.nodes != cluster.specs:
        cluster = Cluster(saved.nodes, cluster.name)
    return restore(saved, ((load_job(each, saved.fields), each.waiting) for each in saved.jobs), cluster, measured)


def load_job(saved: SavedJob, fields: tuple[str, ...]) -> Job:
    job = Job(saved.spec, saved.seq, saved.submit_s)
    job.ended, job.bound, job.held = saved.ended, saved.bound, saved.held
    for name, value in zip(fields, saved.plain, strict=True):
        if name in PLAIN:
            setattr(job, name, value)
    job.set_ready()
    return job


def fork(state: State) -> State:
    """An independent copy of a state. Immutable values (specs, allocations) are shared, because a state may have many
    ended jobs."""
    scopes = scopes_of(state)
    saved = DECODER.decode(ENCODER.encode(save(state)))
    jobs = ((copy(job), scopes[id(job.waiting)] if job.waiting is not None else None) for job in state.jobs.values())
    copied = restore(saved, jobs, Cluster(list(state.cluster.specs), state.cluster.name), state.known.measured)
    if state.trigger.nodes_changed:  # the planner of the copy has not looked at everything yet
        copied.wake().nodes_changed = True
    return copied


def restore(
    saved: SavedState, jobs: Iterable[tuple[Job, str | None]], cluster: Cluster, measured: ProfileFigures
) -> State:
    """A state with these jobs, each with the scope in which it waits."""
    state = State(cluster, measured)
    state.now_s, state.wake_s = saved.now_s, saved.wake_s
    state.memory = Memory(saved.memory.jobs, saved.memory.parts)
    state.policy, state.previous_policy, state.faults = saved.policy, saved.previous_policy, saved.faults
    state.timers = Timers(saved.timers)
    for scope, kept in saved.waiting.items():
        waiting = state.waits.of(scope, kept.since_s)
        waiting.cause, waiting.quota_s, waiting.fragmentation_s = kept.cause, kept.quota_s, kept.fragmentation_s
        state.waits.note_cause(scope, waiting)
    for job, waits_in in jobs:
        state.jobs[job.id] = job
        if job.ended is None:
            state.open_jobs[job.seq] = job
            state.suit(job)
        job.allocation = job.bound  # a planner of virtual clusters installs its own
        if job.bound is not None:
            cluster.take(job.bound, job.seq)
        job.waiting = state.waits.scopes[waits_in] if waits_in is not None else None
        if job.waiting is not None:
            job.waiting.jobs += 1
    refer(state, saved)
    state.knowledge = state.known = Knowledge(measured, saved.knowledge)
    for each in state.health.others.values():
        cluster.take(Allocation(each.booked, 0), OTHERS)
    for name in state.health.unusable():
        cluster.lose(cluster.by_name[name])
    return state


def refer(state: State, saved: SavedState) -> None:
    """The references to jobs and nodes, and the counts."""
    jobs = state.jobs
    state.held_jobs = {jobs[name].seq: jobs[name] for name in saved.held}
    for job in jobs.values():
        job.state = state_of(job, job.seq in state.held_jobs)
    state.orders.leaving = {jobs[name].seq: jobs[name] for name in saved.leaving}
    state.orders.moving = {jobs[name].seq: jobs[name] for name in saved.moving}
    state.orders.settings = saved.settings
    state.orders.dirty = {jobs[name].seq: jobs[name] for name in saved.dirty}
    state.needed_by = {name: [jobs[other] for other in others] for name, others in saved.needed_by.items()}
    state.groups = {group.id: group for group in saved.groups}
    state.health.lost, state.health.drained = set(saved.lost), set(saved.drained)
    state.health.said_lost, state.health.conditions = set(saved.said_lost), saved.conditions
    state.health.changes = saved.node_changes
    state.health.others = saved.others
    state.health.crowded = {name for name, others in saved.others.items() if not others.is_whole}
    state.submitted_count, state.pending_count, events, state.decision_count = saved.counts
    state.version = events + state.decision_count
