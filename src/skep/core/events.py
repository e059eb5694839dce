"""What happened, in the past tense. Events are the only way anything enters the state."""

from __future__ import annotations

import enum

import msgspec

from skep.core.cluster import Allocation
from skep.core.model import JobSpec


class Exit(enum.StrEnum):
    """Why the tasks of a job are no longer there."""

    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"
    NODE_LOST = "node-lost"
    STOPPED = "stopped"
    """Its owner asked for it."""


class JobSubmitted(msgspec.Struct, frozen=True, tag=True):
    job: JobSpec


class TasksStarted(msgspec.Struct, frozen=True, tag=True):
    """All tasks of the job run; work grows by `rate` a second from `progress_since_s` on."""

    job_id: str
    rate: float
    progress_since_s: float


class TasksMoved(msgspec.Struct, frozen=True, tag=True):
    """The job now runs on another allocation."""

    job_id: str
    allocation: Allocation
    work_s: float
    rate: float
    progress_since_s: float


class TasksExited(msgspec.Struct, frozen=True, tag=True):
    """No task of the job is left; `work_s` is the work done that will not have to be repeated."""

    job_id: str
    exit: Exit
    work_s: float


class ProgressReported(msgspec.Struct, frozen=True, tag=True):
    """The job's speed changed (a neighbour came or went), or it told how far it is."""

    job_id: str
    work_s: float
    rate: float


class NodeLost(msgspec.Struct, frozen=True, tag=True):
    """Nothing runs there any more; the exits of its jobs follow."""

    node: str


class NodeBack(msgspec.Struct, frozen=True, tag=True):
    node: str


class TimerDue(msgspec.Struct, frozen=True, tag=True):
    """The moment the planner asked for has come."""


Event = JobSubmitted | TasksStarted | TasksMoved | TasksExited | ProgressReported | NodeLost | NodeBack | TimerDue


class Batch(msgspec.Struct, frozen=True):
    """The events of one instant, in the order exits, node changes, submissions, timers."""

    at_s: float
    events: list[Event]
