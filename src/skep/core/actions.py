"""What an engine is asked to do, in the imperative. Each comes out as reports or events, at once or later.

`launch` counts the starts of a job from 1; a move is a start with the next number. Every action on a job that runs
carries the number it was meant for, so that one that comes late does nothing to a later start. 0 means whichever runs.
"""

from __future__ import annotations

import msgspec

from skep.core.cluster import Allocation, MemoryPlace

Setting = float | int | str | bool | None


class Launch(msgspec.Struct, frozen=True, tag=True):
    """Asked for twice, the same number is one start. All tasks of a launch start, or none."""

    job_id: str
    allocation: Allocation
    launch: int = 0


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Checkpoint and leave; the job comes back when it is its turn, unless its owner wanted it to end.

    It holds for start number `launch` and all before it: a move may be under way.
    """

    job_id: str
    cause: str
    launch: int = 0


class Move(msgspec.Struct, frozen=True, tag=True):
    """Go on elsewhere, or with more or fewer gpus, as start number `launch`."""

    job_id: str
    allocation: Allocation
    launch: int = 0


class Suspend(msgspec.Struct, frozen=True, tag=True):
    """Pause the tasks and keep their memory: a time slice is over."""

    job_id: str
    launch: int = 0
    memory: MemoryPlace = "resident"


class Resume(msgspec.Struct, frozen=True, tag=True):
    """Go on after a `Suspend`."""

    job_id: str
    launch: int = 0


class Limit(msgspec.Struct, frozen=True, tag=True):
    """Use at most so many thousandths of each of its gpus from now on."""

    job_id: str
    launch: int
    milli: int


class Tune(msgspec.Struct, frozen=True, tag=True):
    """Hand these settings to the job, which takes them up between two steps."""

    job_id: str
    launch: int
    settings: dict[str, Setting]


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Save now, and go on."""

    job_id: str
    launch: int = 0


class Reshare(msgspec.Struct, frozen=True, tag=True):
    """Go on in the same seats on other terms: another mode, guaranteed part, limit, share group, weight or quantum. It
    is not answered. Told again, it says the same; a server that starts tells every job in a share mode its terms."""

    job_id: str
    launch: int
    allocation: Allocation


JobSetting = Limit | Tune | Checkpoint
"""What changes a running job and not what it holds."""

Action = Launch | Stop | Move | Suspend | Resume | Limit | Tune | Checkpoint | Reshare
