"""A job as submitted: what the scheduler must know, and everything else that is needed to run it.

These are values: frozen, comparable, and unchanged by a round trip through JSON. They contain only what `read.py`
accepts; values built by hand are not checked again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.core.model import DEFAULT_VC, PRIORITIES
from skep.core.share import Claim, Tier

MASK = "******"
FOLLOWED_MAX = 64
"""The most tasks of a job whose logs are followed at once: each costs the server an open file and periodic reads."""


class Completion(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a role ends the job before all its tasks have ended."""

    min_failed: int | None = 1
    """This many failed tasks fail the job; None: never."""
    min_succeeded: int | None = None
    """This many succeeded tasks make the job succeed; None: only when all tasks of the job have ended."""


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
    """Run directly, instead of `command`."""
    env: dict[str, str] = {}
    completion: Completion = Completion()
    retries: int = 0
    """Retries of one task; only if the job is not a gang."""
    image: str = ""
    """Recorded only: an engine that runs plain processes does not use it."""


class Elastic(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job runs with `min` to `max` tasks of `role`."""

    role: str
    min: int
    max: int


class OfGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The group of a job, and its role there."""

    kind: str = "application"
    role: str = ""
    index: int = 0
    weight: float = 1.0
    ends_when: str = "all-ended"


class OfShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job wants to share its GPUs, in the terms of its file. The requested amounts are in its roles."""

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
    """A pinned cell of its VC, which it must run in."""
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
    """True if the gang may use several GPU types at once; it then runs at the speed of its slowest member."""
    grace_s: float = 30.0
    expect_s: float | None = None
    time_limit_s: float | None = None
    deadline_s: float | None = None
    """Seconds after submission."""
    retries: int = 0
    """Retries of the whole job, after failures that a retry may cure; -1: without limit."""
    workdir: str = ""
    group: str = ""
    of_group: OfGroup = OfGroup()
    needs: tuple[str, ...] = ()
    """Jobs, by id or name, that must succeed before this one may start."""
    tags: tuple[str, ...] = ()
    hold: bool = False
    secrets: dict[str, str] = {}
    """Environment variables of every task that are never shown."""
    share: OfShare | None = None
    parameters: dict[str, str] = {}
    """What distinguishes it from others of its group; the values of its sweep."""

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
    """The same without the values of variables, for readers other than its owner, because variables may contain
    passwords."""
    roles = {
        name: {**role, "env": dict.fromkeys(role["env"], MASK)} if role.get("env") else role
        for name, role in (request.get("tasks") or {}).items()
    }
    return {**request, "tasks": roles}


def task_names(request: dict[str, Any]) -> list[str]:
    """Its GPUs, including those it may grow to, of a request as it is shown."""
    grows = request.get("elastic") or {"role": "", "max": 0}
    return [
        f"{name}-{number}"
        for name, role in (request.get("tasks") or {}).items()
        for number in range(max(role.get("count", 1), grows["max"] if name == grows["role"] else 0))
    ]
