"""Actions: what the scheduler asks an engine to do. The engine answers with reports or events, at once or later.

`launch` numbers the starts of a job from 1; a move is a start with the next number. Every action on a running job
carries the number of the launch it is meant for, so that a late action does not affect a later launch. 0 means the
current launch.

Node numbers are internal to the core: what a server sends to an engine also has the `names` of the nodes (`named`), in
the order of `allocation.nodes()`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.core.cluster import Allocation, Cluster, MemoryPlace

Setting = float | int | str | bool | None


class Launch(msgspec.Struct, frozen=True, tag=True):
    """Start all tasks of a job, or none. Idempotent: repeating the same launch number starts nothing new."""

    job_id: str
    allocation: Allocation
    launch: int = 0
    names: tuple[str, ...] = ()


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Checkpoint and exit. The job is pending again afterwards, unless its owner stopped it.

    The action applies to launch `launch` and all earlier ones: a move may be in flight.
    """

    job_id: str
    cause: str
    launch: int = 0


class Move(msgspec.Struct, frozen=True, tag=True):
    """Restart as launch `launch` on other nodes, or with more or fewer GPUs."""

    job_id: str
    allocation: Allocation
    launch: int = 0
    names: tuple[str, ...] = ()


class Suspend(msgspec.Struct, frozen=True, tag=True):
    """Pause the tasks and keep their memory, for example at the end of a time slice."""

    job_id: str
    launch: int = 0
    memory: MemoryPlace = "resident"


class Resume(msgspec.Struct, frozen=True, tag=True):
    """Continue after a `Suspend`."""

    job_id: str
    launch: int = 0


class Limit(msgspec.Struct, frozen=True, tag=True):
    """Limit the job to this many thousandths of each of its GPUs."""

    job_id: str
    launch: int
    milli: int


class Tune(msgspec.Struct, frozen=True, tag=True):
    """Pass these settings to the job, which applies them between two steps."""

    job_id: str
    launch: int
    settings: dict[str, Setting]


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Save a checkpoint and continue."""

    job_id: str
    launch: int = 0


class Reshare(msgspec.Struct, frozen=True, tag=True):
    """Continue on the same GPUs under other terms: another mode, guaranteed part, limit, share group, weight or
    quantum. Engines do not answer it. Repeating it has no effect; a server that starts sends every job in a share mode
    its terms again."""

    job_id: str
    launch: int
    allocation: Allocation
    names: tuple[str, ...] = ()


JobSetting = Limit | Tune | Checkpoint
"""Actions that change a running job but not what it holds."""

Action = Launch | Stop | Move | Suspend | Resume | Limit | Tune | Checkpoint | Reshare


def named(actions: Iterable[Action], cluster: Cluster) -> list[Action]:
    """The same actions with the names of their nodes, as engines get them."""
    return [
        msgspec.structs.replace(each, names=tuple(cluster.nodes[node].name for node in each.allocation.nodes()))
        if isinstance(each, Launch | Move | Reshare)
        else each
        for each in actions
    ]


def names_of(action: Launch | Move | Reshare) -> dict[int, str]:
    """The name of each node of the allocation, by the number that the allocation uses."""
    return dict(zip(action.allocation.nodes(), action.names, strict=True))
