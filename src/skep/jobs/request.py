"""A job as submitted: what the scheduler must know of it, and everything else that running it takes.

These are values: frozen, comparable, and the same again after a trip through JSON. They hold only what `read.py`
accept; values built by hand are not checked again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.core.model import DEFAULT_VC, PRIORITIES
from skep.core.share import Claim, Tier

MASK = "******"
FOLLOWED_MAX = 64
"""Tasks of a job whose logs are followed at once: each costs the server an open file and a look now and then."""


class Completion(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a role ends the job before all its tasks have ended."""

    min_failed: int | None = 1
    """As many failed tasks fail the job; None: never."""
    min_succeeded: int | None = None
    """As many succeeded tasks make the job succeed; None: only when all tasks of the job have ended."""


class TaskRole(msgspec.Struct, frozen=True, omit_defaults=True):
    """`count` equal tasks. Amounts are those of one task."""

    count: int = 1
    gpus: int = 0
    gpu_type: str = ""
    gpu_milli: int = 1000
    gpu_mem_gib: float = 0.0
    cpu: float = 0.0
    memory_gib: float = 0.0
    ports: dict[str, int] = {}
    """How many ports of each label."""
    command: str = ""
    """Run by `bash -c`."""
    argv: tuple[str, ...] = ()
    """Run as it is, instead of `command`."""
    env: dict[str, str] = {}
    completion: Completion = Completion()
    retries: int = 0
    """Of one task; only where the job is no gang."""
    image: str = ""
    """Noted; an engine that runs plain processes has no use for it."""


class Elastic(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job runs with anything from `min` to `max` tasks of `role`."""

    role: str
    min: int
    max: int


class OfGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job says of its group and of its place there."""

    kind: str = "application"
    role: str = ""
    index: int = 0
    weight: float = 1.0
    ends_when: str = "all-ended"


class OfShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job wants to share its GPUs, in the words of its file. What it asks for is in its roles."""

    mode: str = ""
    limit: float | None = None
    weight: int = 1
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    persistent_gib: float = 0.0
    ephemeral_gib: float = 0.0
    claim: Claim = "guaranteed"
    promise: float = 0.0
    tier: Tier = "basic"


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    tasks: dict[str, TaskRole]
    vc: str = DEFAULT_VC
    pinned: str = ""
    """A pinned cell of its VC, which it runs in and nowhere else."""
    user: str = ""
    priority: int = PRIORITIES["test"]
    gang: bool = True
    elastic: Elastic | None = None
    locality: str = ""
    model: str = ""
    checkpoint: str = "signal"
    """How it is asked to save itself: `signal` or `criu`."""
    preemptible: bool = True
    spans_types: bool = False
    """Whether the gang may sit on several GPU types at once; it then runs at its slowest member."""
    grace_s: float = 30.0
    expect_s: float | None = None
    time_limit_s: float | None = None
    deadline_s: float | None = None
    """Seconds after submission."""
    retries: int = 0
    """Of the whole job, after failures that more tries may cure; -1: without end."""
    workdir: str = ""
    group: str = ""
    of_group: OfGroup = OfGroup()
    needs: tuple[str, ...] = ()
    """Jobs, by id or name, that must have succeeded before this one may start."""
    tags: tuple[str, ...] = ()
    hold: bool = False
    secrets: dict[str, str] = {}
    """Environment variables of every task that are never shown."""
    share: OfShare | None = None

    @property
    def gpus(self) -> int:
        """GPUs of all tasks together."""
        return sum(role.count * role.gpus for role in self.tasks.values())


def in_full(value: Any) -> Any:
    """A request as plain values, defaults included."""
    if isinstance(value, msgspec.Struct):
        return {name: in_full(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: in_full(each) for name, each in value.items()}
    return value


def masked(request: Request) -> Request:
    """The request as it may be shown."""
    if not request.secrets:
        return request
    return msgspec.structs.replace(request, secrets=dict.fromkeys(request.secrets, MASK))


def without_values(request: dict[str, Any]) -> dict[str, Any]:
    """The same as it may be shown to others than its owner: people put keys and passwords into variables."""
    roles = {
        name: {**role, "env": dict.fromkeys(role["env"], MASK)} if role.get("env") else role
        for name, role in (request.get("tasks") or {}).items()
    }
    return {**request, "tasks": roles}


def task_names(request: dict[str, Any]) -> list[str]:
    """All it has, or may grow to; of a request as it is shown."""
    grows = request.get("elastic") or {"role": "", "max": 0}
    return [
        f"{name}-{number}"
        for name, role in (request.get("tasks") or {}).items()
        for number in range(max(role.get("count", 1), grows["max"] if name == grows["role"] else 0))
    ]
