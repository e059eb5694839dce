"""How jobs share a GPU: the share modes as data, what a job may request, and which tenants may share a GPU.

A tenant is what one slice has of one GPU. `milli` is guaranteed, `limit` is the most that it may use; a tenant with a
limit of 0 is suspended and has no compute. All tenants with compute on one GPU are in the same mode.

The engine schedules the turns within a share group: a plan sets members, weights and the quantum. A tenant in mode
`slice` therefore holds no milli: its part follows from the weights of the members, and no booking changes when another
member joins or leaves.

All members of such a group have the same GPUs, because a gang has its turn as a whole: the ledger refuses a member that
has only some of them, or others too. Groups on different GPUs are different groups, whatever their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

EXCLUSIVE = "exclusive"
"""The mode of slices without a mode: the guaranteed part only."""

MIG = "mig"
LANE = "lane"
SLICE = "slice"

RateModel = Literal["alone", "together", "turns", "tokens", "leftovers", "lanes", "part", "instant"]
"""How the speed of tenants depends on their neighbours (`profiles/sharing.py`).

`alone`: not at all. `together`: all run at once and slow each other down. `turns`: one at a time, by weight. `tokens`:
one at a time, by request and limit. `leftovers`: guaranteed ones go first. `lanes`: turns within a lane, lanes
together. `part`: a fixed part of the GPU. `instant`: the one with the highest priority, others when it is idle.
"""


class ShareMode(msgspec.Struct, frozen=True):
    """A way to share a GPU."""

    name: str
    guarantee: str
    """What a tenant gets regardless of the others."""
    may_exceed: bool
    """True if a tenant may use more than its guaranteed part."""
    takes_turns: bool
    """True if tenants run one after the other, so that a member without a turn is paused."""
    rate: RateModel
    memory: str
    """What keeps a tenant from using the GPU memory of others."""
    compute: str
    """What keeps a tenant from using the compute of others."""
    one_group: bool = False
    """True if all tenants of a GPU must be members of one share group."""
    is_simulated: bool = False
    """True if only the simulator offers it."""


_BOOKED = "what does not fit is refused; `skep.train` caps each process"

MODES: dict[str, ShareMode] = {
    mode.name: mode
    for mode in (
        ShareMode(
            EXCLUSIVE, "the GPU, or its own part of it", False, False, "alone", "there are no other tenants", "the same"
        ),
        ShareMode("pack", "nothing", True, False, "together", _BOOKED, "nothing"),
        ShareMode(
            SLICE,
            "its part by weight, once per round of turns",
            True,
            True,
            "turns",
            _BOOKED,
            "one member runs at a time",
            one_group=True,
        ),
        ShareMode("token", "its request", True, True, "tokens", _BOOKED, "one holder of the token, 100 ms at a time"),
        ShareMode(
            "lend",
            "all of it to the guaranteed job within a tolerance, nothing to opportunistic ones",
            True,
            False,
            "leftovers",
            _BOOKED,
            "opportunistic jobs are throttled by the step times of the guaranteed one",
        ),
        ShareMode(
            LANE,
            "its turn in the lane",
            True,
            True,
            "lanes",
            "persistent memory and lanes together fit the GPU",
            "one job of a lane runs at a time; nothing between lanes",
        ),
        ShareMode(
            "mps", "its percentage of threads", False, False, "part", _BOOKED, "the thread percentage of NVIDIA MPS"
        ),
        ShareMode(MIG, "its slots", False, False, "part", "the hardware", "the hardware"),
        ShareMode(
            "instant",
            "the GPU within milliseconds, to the job with the highest priority",
            True,
            True,
            "instant",
            "models are copied in and out by one owner of the memory",
            "one job runs at a time",
            is_simulated=True,
        ),
    )
}

SHARED = frozenset(MODES) - {EXCLUSIVE}
"""The modes that a slice may name."""


class MigProfile(msgspec.Struct, frozen=True):
    """A MIG instance: sevenths of the compute, eighths of the memory, and the slots where it may begin."""

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]

    @property
    def milli(self) -> int:
        return self.compute * 1000 // 7

    def slots(self, start: int) -> int:
        """Bits of the eighths that it takes. A slot of compute comes with the eighth of the same number."""
        return ((1 << self.memory) - 1) << start


MIG_PROFILES: dict[str, MigProfile] = {
    profile.name: profile
    for profile in (
        MigProfile("1g", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        MigProfile("2g", 2, 2, (0, 2, 4)),
        MigProfile("3g", 3, 4, (0, 4)),
        MigProfile("4g", 4, 4, (0,)),
        MigProfile("7g", 7, 8, (0,)),
    )
}
"""MIG profiles of an A100. The milli of a tenant in mode `mig` select the profile, its slot is where the instance
begins."""

_BY_MILLI = {profile.milli: profile for profile in MIG_PROFILES.values()}
MIG_PARTS = tuple(_BY_MILLI)
"""What a job in mode `mig` may request of a GPU, in thousandths."""

Claim = Literal["guaranteed", "opportunistic", "auto"]
"""AntMan's classes of jobs: guaranteed, opportunistic, or guaranteed if the quota allows."""


Tier = Literal["basic", "standard", "premium"]
"""What a job buys of the time of its GPUs (Singularity); the policy defines how much each tier is promised."""


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job wants to share. The part of each GPU that it requests is `Role.gpu_milli`, memory `Role.gpu_mem_gib`.

    A policy reads the fields it knows and ignores the rest.
    """

    mode: str = ""
    """One of `MODES`; empty: the policy decides."""
    limit_milli: int = 0
    """The most that it may use of each of its GPUs; 0: as much as the mode allows."""
    weight: int = 1
    """Its weight against other members of a share group."""
    affinity: str = ""
    """KubeShare: only on a GPU with tenants of this label, or a new one."""
    anti_affinity: str = ""
    """KubeShare: never beside tenants of the same label."""
    exclusion: str = ""
    """KubeShare: only beside tenants of the same label."""
    persistent_gib: float = 0.0
    """Salus: GPU memory that it needs all the time (model and framework)."""
    ephemeral_gib: float = 0.0
    """Salus: GPU memory that it needs within an iteration, at most."""
    claim: Claim = "guaranteed"
    promise_milli: int = 0
    """Singularity: thousandths of the GPU time it asks for that are promised in every hour; 0: as its tier has it."""
    tier: Tier = "basic"
    measured_milli: int = 0
    """Thousandths of each of its GPUs for which its duration in the trace holds, if the trace says so: with more of a
    GPU it is then faster in proportion. 0: not known, and it never runs faster than recorded."""


class Tenant(msgspec.Struct, frozen=True, order=True):
    """What one slice has of one GPU. It has no launch number: a job is wanted in one place at a time."""

    owner: int
    milli: int
    limit: int
    memory_mib: int
    mode: str = ""
    slot: int = 0
    group: str = ""
    weight: int = 1
    quantum_ms: int = 0
    ephemeral_mib: int = 0
    """The part of its memory that it needs only while it runs; the jobs of a lane share it."""


def fault_of(tenant: Tenant) -> str:
    """Why this tenant is invalid; empty: it is valid."""
    if not 0 <= tenant.milli <= tenant.limit <= 1000:
        return f"{tenant.milli} milli with a limit of {tenant.limit} are no part of a GPU"
    if not 0 <= tenant.ephemeral_mib <= tenant.memory_mib or (
        tenant.limit and tenant.mode != LANE and tenant.ephemeral_mib
    ):
        return f"{tenant.ephemeral_mib} of {tenant.memory_mib} MiB shared in mode {tenant.mode or EXCLUSIVE}"
    if not tenant.mode:
        return "" if tenant.limit == tenant.milli else "a limit above the guaranteed part needs a share mode"
    mode = MODES.get(tenant.mode)
    if mode is None or tenant.mode == EXCLUSIVE:
        return f"there is no share mode {tenant.mode!r}"
    if not tenant.limit:
        return f"a tenant in mode {tenant.mode} must have a limit"
    if not mode.may_exceed and tenant.limit > tenant.milli:
        return f"in mode {tenant.mode} a tenant may not use more than its guaranteed part"
    if tenant.weight < 1 or tenant.quantum_ms < 0:
        return f"a weight of {tenant.weight} and a quantum of {tenant.quantum_ms} ms"
    if mode.one_group and not tenant.group:
        return f"in mode {tenant.mode} a tenant must have a share group"
    if tenant.mode == MIG:
        profile = _BY_MILLI.get(tenant.milli)
        if profile is None or tenant.slot not in profile.starts:
            return f"no MIG profile has {tenant.milli} milli from slot {tenant.slot} on"
    return ""


def clash(tenant: Tenant, others: Iterable[Tenant]) -> str:
    """Why this tenant cannot run beside the others; empty: it can. Sums of milli and memory are checked elsewhere.

    A suspended tenant has no compute and conflicts with no other.
    """
    if not tenant.limit:
        return ""
    for other in others:
        if other.limit and (why := _clash(tenant, other)):
            return why
    return ""


def _clash(tenant: Tenant, other: Tenant) -> str:
    if other.mode != tenant.mode:
        return f"{tenant.mode or EXCLUSIVE} beside {other.mode or EXCLUSIVE}"
    if not tenant.mode:
        return ""
    if MODES[tenant.mode].one_group and other.group != tenant.group:
        return f"share group {tenant.group} beside {other.group}"
    if tenant.mode == MIG and mig_slots(tenant) & mig_slots(other):
        return f"slot {tenant.slot} is taken"
    return ""


def mig_slots(tenant: Tenant) -> int:
    """Bits of the slots of a tenant in mode `mig`."""
    return _BY_MILLI[tenant.milli].slots(tenant.slot)


def mig_slot(milli: int, tenants: Iterable[Tenant]) -> int | None:
    """Where an instance of this size may begin beside these tenants in mode `mig`; None if there is no such place. The
    last place, because the large profiles begin at the first slots."""
    profile = _BY_MILLI[milli]
    taken = 0
    for tenant in tenants:
        taken |= mig_slots(tenant)
    return next((start for start in reversed(profile.starts) if not profile.slots(start) & taken), None)


def mig_memory_mib(milli: int, gpu_mem_mib: int) -> int:
    """The memory of an instance of this size on a GPU with this much."""
    return gpu_mem_mib * _BY_MILLI[milli].memory // 8


def memory_of(tenants: Iterable[Tenant]) -> int:
    """The memory that these tenants need on a GPU in MiB: the persistent part of each, and for each lane the largest
    ephemeral part. A suspended job needs only its persistent part."""
    kept = 0
    lanes: dict[str, int] = {}
    for tenant in tenants:
        kept += tenant.memory_mib - tenant.ephemeral_mib
        if tenant.ephemeral_mib and tenant.limit:
            lanes[tenant.group] = max(lanes.get(tenant.group, 0), tenant.ephemeral_mib)
    return kept + sum(lanes.values())
