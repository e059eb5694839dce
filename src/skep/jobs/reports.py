"""What an engine tells the service. Reports may be late, doubled or lost: `launch` says which start is meant."""

from __future__ import annotations

import msgspec


class Started(msgspec.Struct, frozen=True, tag="started"):
    """All tasks of the launch run."""

    job_id: str
    launch: int


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """The job has left its former place, and all tasks of the new launch run."""

    job_id: str
    launch: int


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """The launch is over and no process of it is left."""

    job_id: str
    launch: int
    code: int
    """0 to 255; killed by signal N: 128 + N."""
    task: str = ""
    """Whose exit decided, as `role-index`."""
    was_stopped: bool = False
    """It was asked to stop and left because of that, not because it was done."""
    log_tail: str = ""
    seconds: float = 0.0
    """How long it ran."""
    cause: str = ""
    """What the engine knows beyond the code, such as `oom`; see `exits.py`."""


class LaunchFailed(msgspec.Struct, frozen=True, tag="launch-failed"):
    """No task of the launch runs."""

    job_id: str
    launch: int
    reason: str
    cause: str = ""
    """Why the next launch may work: `shortage` of the machine, or `shim-killed`; nothing if it is the job's fault."""


class NodeChanged(msgspec.Struct, frozen=True, tag="node-changed"):
    """Nodes are known by name: their numbers change with the cluster."""

    node: str
    is_up: bool


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """What the job says of itself through `skep.train`."""

    job_id: str
    launch: int
    values: dict[str, float | int | str | bool | None]


class Looked(msgspec.Struct, frozen=True, tag="looked"):
    """The engine was asked to look at everything it runs, and has told whatever had ended by then."""


Report = Started | Moved | Exited | LaunchFailed | NodeChanged | Progressed | Looked
