"""How jobs share a GPU: the share modes as data, what a job may ask for, and who may stand beside whom.

A tenant is what one slice has of one GPU. `milli` is guaranteed to it, `limit` is the most that it may use; a tenant
with a limit of 0 is suspended and has no compute. Tenants with compute on one GPU are all in one mode: a GPU is
exclusive, or it is shared in one way.

Turns within a share group belong to the engine: a plan sets members, weights and the quantum. A tenant in mode `slice`
therefore holds no milli: its part follows from the weights of whoever is there, and nobody is booked anew when another
member joins or leaves.

A plan gives all members of such a group the same GPUs. The ledger does not check this: it books slices one by one, and
a member may have several on a node. If members have different GPUs, no GPU is overbooked, but worlds differ: the local
engine lets members without a common GPU run at once, the simulator has one member of the group run at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

EXCLUSIVE = "exclusive"
"""The mode of slices that name none: what is guaranteed, and no more."""

MIG = "mig"
LANE = "lane"

RateModel = Literal["alone", "together", "turns", "tokens", "leftovers", "lanes", "part", "instant"]
"""How the speed of tenants follows from who is there (`profiles/sharing.py`).

`alone`: of nobody else. `together`: all run at once and slow each other down. `turns`: one at a time, by weight.
`tokens`: one at a time, by request and limit. `leftovers`: guaranteed ones go first. `lanes`: turns within a lane,
lanes together. `part`: a fixed part of the GPU. `instant`: the one with the highest priority, others when
it is idle.
"""


class ShareMode(msgspec.Struct, frozen=True):
    """A way to share a GPU."""

    name: str
    guarantee: str
    """What a tenant gets whatever the others do."""
    may_exceed: bool
    """Whether a tenant may use more than is guaranteed to it."""
    takes_turns: bool
    """Whether tenants run one after the other, so that a member which has no turn stands still."""
    rate: RateModel
    memory: str
    """What keeps a tenant from using the GPU memory of others."""
    compute: str
    """What keeps a tenant from using the compute of others."""
    one_group: bool = False
    """Whether all tenants of a GPU are members of one share group."""
    is_simulated: bool = False
    """Whether only the simulator offers it."""


_BOOKED = "what does not fit is refused; `skep.train` caps each process"

MODES: dict[str, ShareMode] = {
    mode.name: mode
    for mode in (
        ShareMode(
            EXCLUSIVE, "the GPU, or its own part of it", False, False, "alone", "nobody else is there", "the same"
        ),
        ShareMode("pack", "nothing", True, False, "together", _BOOKED, "nothing"),
        ShareMode(
            "slice",
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
    """An instance of a MIG device: sevenths of its compute, eighths of its memory, and where it may begin."""

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
"""Of an A100. The milli of a tenant in mode `mig` says which profile it has, its slot where that begins."""

_BY_MILLI = {profile.milli: profile for profile in MIG_PROFILES.values()}

Claim = Literal["guaranteed", "opportunistic", "auto"]
"""What a job claims of its quota (AntMan): it runs as if alone, it takes what others leave, or the first if it can."""


Tier = Literal["basic", "standard", "premium"]
"""What a job buys of the time of its GPUs (Singularity); how much each tier is promised is for the policy to say."""


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job wants to share. The part of each GPU that it asks for is `Role.gpu_milli`, memory `Role.gpu_mem_gib`.

    A policy reads what it knows; the rest means nothing to it.
    """

    mode: str = ""
    """One of `MODES`; nothing: as the policy sees fit."""
    limit_milli: int = 0
    """The most that it may use of each of its GPUs; 0: as much as the mode allows."""
    weight: int = 1
    """Against other members of a share group."""
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


class Tenant(msgspec.Struct, frozen=True, order=True):
    """What one slice has of one GPU. The launch is that of the job, which is wanted in one place at a time."""

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
    """The part of its memory that it needs only while it runs; the jobs of a lane have it in common."""


def fault_of(tenant: Tenant) -> str:
    """Why there can be no such tenant; nothing: there can."""
    if not 0 <= tenant.milli <= tenant.limit <= 1000:
        return f"{tenant.milli} milli with a limit of {tenant.limit} are no part of a gpu"
    if not 0 <= tenant.ephemeral_mib <= tenant.memory_mib or (
        tenant.limit and tenant.mode != LANE and tenant.ephemeral_mib
    ):
        return f"{tenant.ephemeral_mib} of {tenant.memory_mib} MiB shared in mode {tenant.mode or EXCLUSIVE}"
    if not tenant.mode:
        return "" if tenant.limit == tenant.milli else "more than is guaranteed needs a share mode"
    mode = MODES.get(tenant.mode)
    if mode is None or tenant.mode == EXCLUSIVE:
        return f"there is no share mode {tenant.mode!r}"
    if not tenant.limit:
        return f"a tenant in mode {tenant.mode} has a limit"
    if not mode.may_exceed and tenant.limit > tenant.milli:
        return f"in mode {tenant.mode} a tenant has what is guaranteed and no more"
    if tenant.weight < 1 or tenant.quantum_ms < 0:
        return f"a weight of {tenant.weight} and a quantum of {tenant.quantum_ms} ms"
    if mode.one_group and not tenant.group:
        return f"in mode {tenant.mode} a tenant has a share group"
    if tenant.mode == MIG:
        profile = _BY_MILLI.get(tenant.milli)
        if profile is None or tenant.slot not in profile.starts:
            return f"no MIG profile has {tenant.milli} milli from slot {tenant.slot} on"
    return ""


def clash(tenant: Tenant, others: Iterable[Tenant]) -> str:
    """Why this tenant cannot run beside these; nothing: it can. Sums of milli and memory are not looked at.

    Who is suspended has no compute, and is in nobody's way.
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
    """Bits of the slots that a tenant in mode `mig` has."""
    return _BY_MILLI[tenant.milli].slots(tenant.slot)


def memory_of(tenants: Iterable[Tenant]) -> int:
    """MiB that these need of a GPU: what each keeps, and for each lane the most that one of its jobs needs to run. A
    suspended job needs only what it keeps."""
    kept = 0
    lanes: dict[str, int] = {}
    for tenant in tenants:
        kept += tenant.memory_mib - tenant.ephemeral_mib
        if tenant.ephemeral_mib and tenant.limit:
            lanes[tenant.group] = max(lanes.get(tenant.group, 0), tenant.ephemeral_mib)
    return kept + sum(lanes.values())
