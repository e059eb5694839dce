"""Reports of an engine to the service. They may be late, duplicate or lost: `launch` says which launch is meant.

Changes of nodes are reported as events (`events.py`).
"""

from __future__ import annotations

import msgspec

from skep.core.actions import Setting
from skep.core.cluster import MemoryPlace
from skep.core.events import NodeBack, NodeChanged, NodeConditions, NodeJoined, NodeLeft, NodeLost, OthersChanged


class GivenSeat(msgspec.Struct, frozen=True):
    """What the engine gave one task."""

    node: str
    gpus: tuple[int, ...] | None = None
    """None: the engine knows how many they are, but not which."""


class Launching(msgspec.Struct, frozen=True, tag="launching"):
    """What the launch waits for before its tasks run: an image that is pulled, a volume, …"""

    job_id: str
    launch: int
    reason: str


class Started(msgspec.Struct, frozen=True, tag="started"):
    """All tasks of the launch run."""

    job_id: str
    launch: int
    given: tuple[GivenSeat, ...] = ()
    """What each task really has, in the order of `Allocation.seating`; empty: what was asked for."""


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """The job has left its former place, and all tasks of the new launch run."""

    job_id: str
    launch: int
    given: tuple[GivenSeat, ...] = ()


class Suspended(msgspec.Struct, frozen=True, tag="suspended"):
    """All tasks of the launch are suspended."""

    job_id: str
    launch: int
    memory: MemoryPlace = "resident"


class Resumed(msgspec.Struct, frozen=True, tag="resumed"):
    """The tasks run again, on request or because the lease of their suspension expired."""

    job_id: str
    launch: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An action on a running job cannot be carried out, by this engine or for this job; the job is unchanged."""

    job_id: str
    launch: int
    action: str
    """The name of the action in lower case: `suspend`, `checkpoint`, …"""
    reason: str


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """The launch has ended and no process of it is left."""

    job_id: str
    launch: int
    code: int
    """0 to 255; killed by signal N: 128 + N."""
    task: str = ""
    """The task whose exit decided, as `role-index`."""
    was_stopped: bool = False
    """True if it exited because it was asked to stop, not because it was done."""
    log_tail: str = ""
    seconds: float = 0.0
    """How long it ran."""
    cause: str = ""
    """What the engine knows beyond the exit code, such as `oom` or `evicted`; see `CAUSES` in `jobs/exits.py`."""


class LaunchFailed(msgspec.Struct, frozen=True, tag="launch-failed"):
    """No task of the launch runs: none could be started, or the started ones were killed."""

    job_id: str
    launch: int
    reason: str
    cause: str = ""
    """What the engine knows of it: a `shortage` on the machine, `shim-killed`, `image`, `config`, `rejected`; see
    `CAUSES` in `jobs/exits.py`. Empty: unknown, perhaps the job is at fault."""


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """Progress that the job reported through `skep.train`."""

    job_id: str
    launch: int
    values: dict[str, Setting]


class ShareMeasured(msgspec.Struct, frozen=True, tag="share-measured"):
    """The share of each of its GPUs that a job in a share mode got since the last such report."""

    job_id: str
    launch: int
    share: float
    """The part of the time, 0 to 1. Those of all tenants of a GPU add up to 1 at most."""


class Overrun(msgspec.Struct, frozen=True, tag="overrun"):
    """The job takes more of the disk than it may, or than there is: it must end."""

    job_id: str
    launch: int
    reason: str


class Looked(msgspec.Struct, frozen=True, tag="looked"):
    """The engine has checked everything it runs, as requested, and has reported what had ended by then."""


class Fenced(msgspec.Struct, frozen=True, tag="fenced"):
    """Another server has taken over with this epoch: the engine refuses all further actions of this server."""

    epoch: int


Report = (
    Launching
    | Started
    | Moved
    | Suspended
    | Resumed
    | Refused
    | Exited
    | LaunchFailed
    | Progressed
    | ShareMeasured
    | Overrun
    | NodeLost
    | NodeBack
    | NodeConditions
    | NodeJoined
    | NodeLeft
    | NodeChanged
    | OthersChanged
    | Looked
    | Fenced
)
