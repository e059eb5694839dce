"""Events: what happened, in the past tense. Only events and plans change the state."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from skep.core.cluster import Allocation, MemoryPlace, NodeSpec
from skep.core.group import GroupSpec
from skep.core.job import JobState
from skep.core.model import JobSpec
from skep.core.others import NodeUse
from skep.core.progress import Report
from skep.core.timers import Timer


class Exit(enum.StrEnum):
    """Why the tasks of a job exited."""

    FINISHED = "finished"
    FAILED = "failed"
    RETRIED = "retried"
    """It failed and will be retried."""
    PREEMPTED = "preempted"
    NODE_LOST = "node-lost"
    STOPPED = "stopped"
    """Its owner stopped it."""


class JobSubmitted(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    job: JobSpec
    hold: str = ""
    """Why it is held and must not be started; empty: it is not held."""


class JobHeld(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The job must not be started until it is released."""

    job_id: str
    reason: str
    until_s: float | None = None
    """When it will be released, if that is already known."""
    pauses: bool = False
    """True if a job that runs is to be stopped as if preempted; otherwise it runs on."""


class JobReleased(msgspec.Struct, frozen=True, tag=True):
    job_id: str


class StopRequested(msgspec.Struct, frozen=True, tag=True):
    """The job is to end, whether it is pending, held or running."""

    job_id: str
    reason: str


class GroupFormed(msgspec.Struct, frozen=True, tag=True):
    """Describes a group, before its members are submitted or later. A group without this event is created by its first
    member."""

    group: GroupSpec


class GroupEnded(msgspec.Struct, frozen=True, tag=True):
    """The group has ended, by its rule or on request: members that have not ended are stopped, and jobs that need the
    group become eligible or are rejected."""

    group_id: str
    outcome: JobState
    reason: str


class PriorityChanged(msgspec.Struct, frozen=True, tag=True):
    job_id: str
    priority: int


class JobAltered(msgspec.Struct, frozen=True, tag=True):
    """A pending job asks for something else from now on, and keeps its place. Alone in its batch, with the other
    members of its job."""

    job: JobSpec


class TasksStarted(msgspec.Struct, frozen=True, tag=True):
    """All tasks of the job run; work grows by `rate` per second from `progress_since_s` on (None: unknown).

    In all events, `launch` is the number of the launch (0: the current one) and `share` is the part of the time of each
    of its GPUs that the job gets (None: not known).
    """

    job_id: str
    rate: float | None
    progress_since_s: float
    launch: int = 0
    share: float | None = None


class TasksPlaced(msgspec.Struct, frozen=True, tag=True):
    """The engine gave the launch another allocation than was wanted. Comes before the event that it runs."""

    job_id: str
    allocation: Allocation | None
    """None: the job cannot have it, for example because its node is unknown. It is stopped."""
    launch: int


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

    In all events, `saved_s` is the work at the last checkpoint (None: the engine does not know).
    """

    job_id: str
    work_s: float
    memory: MemoryPlace = "resident"
    launch: int = 0
    saved_s: float | None = None


class TasksResumed(msgspec.Struct, frozen=True, tag=True):
    """The tasks continue where they were suspended; work grows by `rate` per second from `progress_since_s` on."""

    job_id: str
    work_s: float
    rate: float | None
    progress_since_s: float
    launch: int = 0
    share: float | None = None


class SuspendRefused(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot suspend this job: the job runs on, and the scheduler stops it instead."""

    job_id: str
    launch: int = 0


class TasksExited(msgspec.Struct, frozen=True, tag=True):
    """No task of the job is left. `work_s` is the work done that need not be repeated."""

    job_id: str
    exit: Exit
    work_s: float
    launch: int = 0


class ProgressReported(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The speed of the job changed (a neighbour came or went), or the job reported progress. Reports are coalesced;
    `core/progress.py` has the rule."""

    job_id: str
    work_s: float | None = None
    rate: float | None = None
    """None: not known. Without a reference for its steps per second the work in seconds is not known either."""
    saved_s: float | None = None
    report: Report | None = None
    launch: int = 0
    share: float | None = None
    """Coalesced like progress reports, by `ShareGauge` in `core/progress.py`."""


class NodeLost(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The node is lost and nothing runs there: its jobs have exited, or their exits follow."""

    node: str
    is_said: bool = False
    """True if a person said so, not the engine."""


class NodeBack(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The node is there again. What a person said, only a person takes back."""

    node: str
    is_said: bool = False


class NodeConditions(msgspec.Struct, frozen=True, tag=True):
    """What the engine sees that speaks against new jobs on a node (`cordoned`, `not-ready`, a taint); what runs there
    stays. The list replaces the previous one, and changes nothing that a person said."""

    node: str
    conditions: tuple[str, ...]


class NodeDrained(msgspec.Struct, frozen=True, tag=True):
    """Start nothing new on the node; what runs there stays."""

    node: str


class NodeUndrained(msgspec.Struct, frozen=True, tag=True):
    node: str


class NodeJoined(msgspec.Struct, frozen=True, tag=True):
    """A new node. Events about the set of nodes form a batch of their own, optionally followed by a
    `ClusterChanged`."""

    spec: NodeSpec


class NodeLeft(msgspec.Struct, frozen=True, tag=True):
    """The node is removed as soon as no job is on it. Nothing new is started there until then."""

    node: str


class NodeChanged(msgspec.Struct, frozen=True, tag=True):
    """The node has other GPUs, CPUs or memory, or another position in the cluster. The change takes effect as soon as
    no job is in the way."""

    spec: NodeSpec


class OthersChanged(msgspec.Struct, frozen=True, tag=True):
    """What tenants outside Skep use of a node from now on. The list replaces the previous one."""

    node: str
    uses: tuple[NodeUse, ...]


class JobsForgotten(msgspec.Struct, frozen=True, tag=True):
    """These jobs ended longer ago than the retention time; the state drops them."""

    job_ids: list[str]


class PolicyChanged(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Another planner decides from now on. Alone in its batch, or after a `ClusterChanged`."""

    policy: str
    files: dict[str, str] = {}
    """The text of each file of the policy, by path, because a later reader of the log may not have the files."""


class PolicyFailed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A planner raised, returned an invalid plan or exceeded its time limit; `instead` decides from now on. Always
    alone in its batch."""

    policy: str
    error: str
    instead: str
    vc: str = ""
    """The VC whose own policy failed; empty: the policy of the whole cluster."""


class ClusterChanged(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A new cluster file, given verbatim, with its VCs and their policies. Its batch has at most events about nodes
    before it and a `PolicyChanged` after it."""

    name: str
    text: str
    files: dict[str, str] = {}
    """The text of each policy file that its VCs name, by path."""


class Solved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The answer to what a planner asked (`core/solving.py`), or why there is none: the last answer stays in force."""

    number: int
    """The number of the question."""
    at: tuple[str, str] = ("", "")
    """The VC and the pinned cell of the planner; two empty texts for that of the whole cluster."""
    answer: bytes | None = None
    error: str = ""


class ClockStepped(msgspec.Struct, frozen=True, tag=True):
    """The clock was set forward by this much although no time has passed. Alone in its batch."""

    by_s: float


class TimerDue(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """These timers are due; without names all that are due by now, and if there are none, the planner is woken."""

    due: tuple[Timer, ...] = ()


Event = (
    JobSubmitted
    | JobHeld
    | JobReleased
    | StopRequested
    | GroupFormed
    | GroupEnded
    | PriorityChanged
    | JobAltered
    | TasksPlaced
    | TasksStarted
    | TasksMoved
    | TasksSuspended
    | TasksResumed
    | SuspendRefused
    | TasksExited
    | ProgressReported
    | NodeLost
    | NodeBack
    | NodeConditions
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
    | Solved
    | ClockStepped
    | TimerDue
)


ORDER_OF_AN_INSTANT: tuple[tuple[type, ...], ...] = (
    # Reports about tasks. What has ended frees its GPUs before anything else is looked at.
    (
        *(ProgressReported, TasksPlaced, TasksStarted, TasksMoved),
        *(TasksSuspended, TasksResumed, SuspendRefused, TasksExited),
    ),
    # Nodes. The exits of a node that is lost belong to the first row: they come before `NodeLost`.
    (
        *(NodeLost, NodeBack, NodeConditions, NodeDrained, NodeUndrained),
        *(NodeJoined, NodeLeft, NodeChanged, OthersChanged),
    ),
    # Changes by admins and by the server itself: steps of their own, with at most events about nodes before them.
    (ClusterChanged, PolicyChanged, PolicyFailed, ClockStepped, JobsForgotten, JobAltered),
    (GroupFormed, GroupEnded),
    (JobSubmitted,),
    # Requests of owners, perhaps about a job of this instant; also a hold that follows a failure.
    (JobHeld, JobReleased, StopRequested, PriorityChanged),
    (Solved,),
    (TimerDue,),
)
ATTACHES = (JobsForgotten, ClockStepped, JobAltered)
"""After these the planner is attached again: it must not know more than one that is attached now."""
RANKS = {kind: rank for rank, kinds in enumerate(ORDER_OF_AN_INSTANT) for kind in kinds}


def in_order(events: Iterable[Event]) -> list[Event]:
    """The events of one instant, live and simulated, as the state applies them; equal ranks stay as they came."""
    return sorted(events, key=lambda event: RANKS[type(event)])


class Batch(msgspec.Struct, frozen=True):
    """The events of one instant, in order."""

    at_s: float
    events: list[Event]
