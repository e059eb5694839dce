"""What an engine is asked to do, in the imperative. Each comes out as events, at once or later."""

from __future__ import annotations

import msgspec

from skep.core.cluster import Allocation


class Launch(msgspec.Struct, frozen=True, tag=True):
    job_id: str
    allocation: Allocation


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Checkpoint and leave; the job comes back when it is its turn."""

    job_id: str
    cause: str


class Move(msgspec.Struct, frozen=True, tag=True):
    """Go on elsewhere, or with more or fewer gpus."""

    job_id: str
    allocation: Allocation


Action = Launch | Stop | Move
