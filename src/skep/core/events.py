"""What happened, in the past tense. Events are the only way anything enters the state."""

from __future__ import annotations

import enum

import msgspec

from skep.core.cluster import Allocation, MemoryPlace, NodeSpec
from skep.core.group import GroupSpec
from skep.core.job import JobState
from skep.core.model import JobSpec
from skep.core.others import NodeUse
from skep.core.progress import Report
from skep.core.timers import Timer


class Exit(enum.StrEnum):
    """Why the tasks of a job are no longer there."""

    FINISHED = "finished"
    FAILED = "failed"
    RETRIED = "retried"
    """It failed, and will be tried again."""
    PREEMPTED = "preempted"
    NODE_LOST = "node-lost"
    STOPPED = "stopped"
    """Its owner asked for it."""


class JobSubmitted(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    job: JobSpec
    hold: str = ""
    """Why it is not to be started before it is released; nothing: it may be."""


class JobHeld(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A job that does not run is not to be started until it is released."""

    job_id: str
    reason: str
    until_s: float | None = None
    """When it will be, where that is known already."""


class JobReleased(msgspec.Struct, frozen=True, tag=True):
    job_id: str


class StopRequested(msgspec.Struct, frozen=True, tag=True):
    """The job is to end, whatever it does now."""

    job_id: str
    reason: str


class GroupFormed(msgspec.Struct, frozen=True, tag=True):
    """What is to be known of a group before its members are submitted, or from now on. A member of a group that nobody
    has spoken of forms it."""

    group: GroupSpec


class GroupEnded(msgspec.Struct, frozen=True, tag=True):
    """The group has ended, by its rule or by request: members that have not ended are stopped,
    and jobs that need the group become eligible, or never will."""

    group_id: str
    outcome: JobState
    reason: str


class PriorityChanged(msgspec.Struct, frozen=True, tag=True):
    job_id: str
    priority: int


class TasksStarted(msgspec.Struct, frozen=True, tag=True):
    """All tasks of the job run; work grows by `rate` a second from `progress_since_s` on (none: unknown).

    `launch` is the number of the start this is about, wherever an event has it; 0 means the present one. `share` is the
    part of the time of each of its GPUs that the job gets, wherever an event has it; none: not known.
    """

    job_id: str
    rate: float | None
    progress_since_s: float
    launch: int = 0
    share: float | None = None


class TasksMoved(msgspec.Struct, frozen=True, tag=True):
    """The job now runs on another allocation."""

    job_id: str
    allocation: Allocation
    work_s: float
    rate: float | None
    progress_since_s: float
    launch: int = 0
    share: float | None = None


class TasksSuspended(msgspec.Struct, frozen=True, tag=True):
    """All tasks of the job are suspended; its memory is where the action put it.

    `saved_s` is the work at its last checkpoint, wherever an event has it; none: the engine does not know.
    """

    job_id: str
    work_s: float
    memory: MemoryPlace = "resident"
    launch: int = 0
    saved_s: float | None = None


class TasksResumed(msgspec.Struct, frozen=True, tag=True):
    """They go on where they stood; work grows by `rate` a second from `progress_since_s` on."""

    job_id: str
    work_s: float
    rate: float | None
    progress_since_s: float
    launch: int = 0
    share: float | None = None


class SuspendRefused(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot suspend this job: it goes on, and is stopped instead."""

    job_id: str
    launch: int = 0


class TasksExited(msgspec.Struct, frozen=True, tag=True):
    """No task of the job is left; `work_s` is the work done that will not have to be repeated."""

    job_id: str
    exit: Exit
    work_s: float
    launch: int = 0


class ProgressReported(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The job's speed changed (a neighbour came or went), or it told how far it is. Of the many reports of a job few
    become an event: `core/progress.py` says which."""

    job_id: str
    work_s: float | None = None
    rate: float | None = None
    """None: not known. Without a reference for its steps per second the work is not known in seconds either."""
    saved_s: float | None = None
    report: Report | None = None
    launch: int = 0
    share: float | None = None
    """Coalesced as reports are: `ShareGauge` in `core/progress.py` says when it is news."""


class NodeLost(msgspec.Struct, frozen=True, tag=True):
    """Nothing runs there any more; the exits of its jobs follow."""

    node: str


class NodeBack(msgspec.Struct, frozen=True, tag=True):
    node: str


class NodeDrained(msgspec.Struct, frozen=True, tag=True):
    """Nothing new is to go there; what runs there stays."""

    node: str


class NodeUndrained(msgspec.Struct, frozen=True, tag=True):
    node: str


class NodeJoined(msgspec.Struct, frozen=True, tag=True):
    """A node that was not there before. Events about which nodes there are come together, without others but a
    `ClusterChanged` behind them."""

    spec: NodeSpec


class NodeLeft(msgspec.Struct, frozen=True, tag=True):
    """It goes for good: as soon as no job is there, and nothing new is started there until then."""

    node: str


class NodeChanged(msgspec.Struct, frozen=True, tag=True):
    """It has other GPUs, CPUs or memory, or lies elsewhere: as soon as no job is in the way, like one that leaves."""

    spec: NodeSpec


class OthersChanged(msgspec.Struct, frozen=True, tag=True):
    """What others than Skep use of a node from now on: all of it, and nothing where the list is empty."""

    node: str
    uses: tuple[NodeUse, ...]


class JobsForgotten(msgspec.Struct, frozen=True, tag=True):
    """These jobs ended longer ago than the retention time; the state forgets them."""

    job_ids: list[str]


class PolicyChanged(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Another planner decides from now on. Alone in its batch, or behind a `ClusterChanged`."""

    policy: str
    files: dict[str, str] = {}
    """The text of each file that it is made of, by path: a later reader of the log may not have them."""


class PolicyFailed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A planner raised, gave nonsense or took too long: `instead` decides from now on. Always alone in its batch."""

    policy: str
    error: str
    instead: str
    vc: str = ""
    """Where this VC alone had that policy; nothing: everywhere."""


class ClusterChanged(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The file of the cluster is another one from now on, and so are its VCs and their policies: word by word. Without
    others in its batch but what happens to nodes, before it, and a `PolicyChanged` behind it."""

    name: str
    text: str
    files: dict[str, str] = {}
    """The text of each file that policies of its VCs are made of, by path."""
    nodes_told: bool = False
    """True if events for each node precede this one. In logs of older formats the text alone has the nodes."""


class ClockStepped(msgspec.Struct, frozen=True, tag=True):
    """The clock was set: so much later than it was a moment ago, without any time having passed. Alone in its batch."""

    by_s: float


class TimeLimitSet(msgspec.Struct, frozen=True, tag=True):
    """For a job whose submission has no time limit: logs of older formats did not keep it."""

    job_id: str
    limit_s: float


class TimerDue(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """These have become due; without names, the planner's wake-up and whatever else is due by now."""

    due: tuple[Timer, ...] = ()


Event = (
    JobSubmitted
    | JobHeld
    | JobReleased
    | StopRequested
    | GroupFormed
    | GroupEnded
    | PriorityChanged
    | TasksStarted
    | TasksMoved
    | TasksSuspended
    | TasksResumed
    | SuspendRefused
    | TasksExited
    | ProgressReported
    | NodeLost
    | NodeBack
    | NodeDrained
    | NodeUndrained
    | NodeJoined
    | NodeLeft
    | NodeChanged
    | OthersChanged
    | JobsForgotten
    | PolicyChanged
    | PolicyFailed
    | ClusterChanged
    | ClockStepped
    | TimeLimitSet
    | TimerDue
)


class Batch(msgspec.Struct, frozen=True):
    """The events of one instant, in the order exits, node changes, submissions, timers."""

    at_s: float
    events: list[Event]
