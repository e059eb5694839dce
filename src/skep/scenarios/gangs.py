"""Requests, gangs and answers of the scenario scheduler."""

from __future__ import annotations

import enum

import msgspec

from skep.core.cells.tree import OPPORTUNISTIC, PhysicalCell, VirtualCell


class GangUse(enum.StrEnum):
    """The state of a GPU cell: its user, and its next user.

    free ──► used ──(preemption)──► reserving ──(victim gone)──► reserved ──► used
    """

    FREE = "free"
    USED = "used"
    RESERVING = "reserving"
    RESERVED = "reserved"


class GangRequest(msgspec.Struct, frozen=True):
    """A gang: pods by the number of GPUs each needs, in one chain."""

    name: str
    vc: str
    priority: int
    pods: dict[int, int]
    """GPUs of a pod → number of such pods."""
    gpu_type: str = ""
    pinned: str = ""
    is_lazy: bool = False
    """True if it may lose its guarantee and run on as opportunistic work, instead of being stopped."""
    only_suggested: bool = False

    @property
    def gpu_count(self) -> int:
        return sum(size * count for size, count in self.pods.items())

    @property
    def sizes(self) -> list[int]:
        """Of every pod, ascending."""
        return [size for size in sorted(self.pods) for _ in range(self.pods[size])]


class GangState(enum.StrEnum):
    ALLOCATED = "allocated"
    PREEMPTING = "preempting"
    """It has cells that others are still leaving."""
    LEAVING = "leaving"
    """Others have been given some of its cells."""


PhysicalPlacement = list[list[PhysicalCell | None]]
"""The GPUs of each pod, pods by ascending size; None for a GPU that is no longer in the configuration."""
VirtualPlacement = list[list[VirtualCell | None]]


class Gang:
    """A gang that holds cells, or is about to."""

    __slots__ = ("is_downgraded", "physical", "request", "state", "virtual")

    def __init__(
        self,
        request: GangRequest,
        physical: PhysicalPlacement,
        virtual: VirtualPlacement | None,
        state: GangState = GangState.ALLOCATED,
    ) -> None:
        self.request = request
        self.physical = physical
        self.virtual = virtual
        """None for opportunistic work."""
        self.state = state
        self.is_downgraded = False
        """True if it was guaranteed and now runs as opportunistic work."""

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def priority(self) -> int:
        """The priority at which it really runs."""
        return self.request.priority if self.virtual is not None else OPPORTUNISTIC

    def pairs(self) -> list[tuple[PhysicalCell, VirtualCell | None]]:
        """Every GPU it holds with the virtual one it is bound to."""
        found = []
        for number, pod in enumerate(self.physical):
            for index, leaf in enumerate(pod):
                if leaf is not None:
                    found.append((leaf, self.virtual[number][index] if self.virtual is not None else None))
        return found

    def __repr__(self) -> str:
        return f"Gang({self.name}, {self.state})"


class Occupancy:
    """The holders of a GPU cell."""

    __slots__ = ("gang", "reserver", "use")

    def __init__(self) -> None:
        self.use = GangUse.FREE
        self.gang: Gang | None = None
        """The gang that runs there."""
        self.reserver: Gang | None = None
        """The gang that is to run there next."""


class WaitCause(enum.StrEnum):
    VC_FULL = "insufficient-capacity-vc"
    CLUSTER_FULL = "insufficient-capacity-physical"
    BAD_NODE = "bad-node"
    NOT_SUGGESTED = "non-suggested-node"
    NO_HEALTHY_MAPPING = "mapping-needs-bad-node"
    NO_SUGGESTED_MAPPING = "mapping-needs-bad-or-non-suggested-node"
    NO_CELLS = "no-reason-given"


class Placement(msgspec.Struct):
    """Where a gang could go."""

    chain: str
    physical: list[list[PhysicalCell]]
    virtual: list[list[VirtualCell]] | None


class GangAnswer(msgspec.Struct):
    """The answer to a request: a placement (with the gangs that must leave it first), or why there is none."""

    placement: Placement | None = None
    victims: list[Gang] = []
    cause: WaitCause | None = None
    is_searched: bool = False
    """HiveD would not have found it."""
