"""What an engine is asked to do, in the imperative. Each comes out as events, at once or later."""

from __future__ import annotations

import msgspec

from skep.core.cluster import Allocation


class Launch(msgspec.Struct, frozen=True, tag=True):
    """`launch` counts the starts of the job: asked for twice, the same number is one start."""

    job_id: str
    allocation: Allocation
    launch: int = 0


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Checkpoint and leave; the job comes back when it is its turn, unless its owner wanted it to end."""

    job_id: str
    cause: str


class Move(msgspec.Struct, frozen=True, tag=True):
    """Go on elsewhere, or with more or fewer gpus, as start number `launch`."""

    job_id: str
    allocation: Allocation
    launch: int = 0


class Suspend(msgspec.Struct, frozen=True, tag=True):
    """Stand still and keep everything: a time slice is over."""

    job_id: str


class Resume(msgspec.Struct, frozen=True, tag=True):
    job_id: str


Action = Launch | Stop | Move | Suspend | Resume
