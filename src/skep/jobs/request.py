"""A job as submitted: what the scheduler must know, and everything else that is needed to run it.

These are values: frozen, comparable, and unchanged by a round trip through JSON. They contain only what `read.py`
accepts; values built by hand are not checked again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC, PRIORITIES
from skep.core.search import SearchSpec
from skep.core.share import Claim, Tier
from skep.files.document import Field

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
    node_tags: tuple[str, ...] = ()
    """What its nodes must have, as expressions (`core/tags.py`)."""
    extras: dict[str, int] = {}
    """Other countable resources."""
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
    """Empty: a plain process, or the image that an admin chose."""


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
    search: SearchSpec | None = None
    """How its members are compared, if they are trials."""


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


class OfKube(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the pods of a job need beyond what every engine gives its tasks."""

    volumes: dict[str, str] = {}
    """By the path where it is mounted, the name of a volume claim."""
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[str, ...] = ()
    """Keys of taints."""
    shm_gib: float = 0.0
    """Size of `/dev/shm`; 0: as the container runtime has it."""


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
    weight: float = 1.0
    """Its weight against other jobs."""
    kubernetes: OfKube = OfKube()
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


COUNT_MAX = 10**9


class LimitReached(InputError):
    """A submission that would exceed a limit; nothing was submitted. `code` names the limit."""

    def __init__(self, limit: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = f"limit-{limit}"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one user, or all users of a VC together, may have at once. None: no limit. A job counts while it has
    not ended."""

    jobs: int | None = None
    pending: int | None = None
    """Jobs that have not started."""
    tasks: int | None = None
    """Tasks of all jobs."""
    ports: int | None = None
    """Ports that all jobs request."""
    cpus: float | None = None
    """CPUs of jobs without GPUs that run at once; a task that requests none counts as one CPU. Further jobs wait."""
    memory_gib: float | None = None
    """Memory of jobs without GPUs that run at once, as requested. Further jobs wait."""
    processes: int | None = None
    """Processes and threads of one task, enforced by the engine."""
    log_mib: int | None = None
    """The log of one task that is kept, enforced by the engine: the oldest part is deleted first."""
    job_gib: float | None = None
    """Disk space of one job: its folders and logs. The engine ends a job that uses more."""
    disk_gib: float | None = None
    """Disk space of all jobs, ended ones that are kept included. The engine ends the one that grew most."""
    priority: int | None = None
    """The highest priority that users may set, because a higher one preempts the jobs of others; admins and owners of
    the VC may set more."""


DEFAULTS = Limits(
    jobs=50_000,
    pending=50_000,
    tasks=200_000,
    ports=20_000,
    cpus=64.0,
    processes=10_000,
    log_mib=80,
    priority=PRIORITIES["test"],
)


class LimitRules(msgspec.Struct, frozen=True):
    """`default` applies to every user, `users` to the named ones; a VC has limits if it is named."""

    default: Limits = Limits()
    users: dict[str, Limits] = {}
    vcs: dict[str, Limits] = {}

    def of_user(self, user: str) -> Limits:
        return self.users.get(user, self.default)

    def of_vc(self, vc: str) -> Limits:
        return self.vcs.get(vc, NO_LIMITS)

    def of_task(self, user: str, vc: str) -> Limits:
        """The limits of a single task: the lower one of both."""
        both = (self.of_user(user), self.of_vc(vc))
        return Limits(**{name: lowest(getattr(each, name) for each in both) for name in Limits.__struct_fields__})


NO_LIMITS = Limits()
UNLIMITED = LimitRules()


def lowest(values: Any) -> Any:
    return min((value for value in values if value is not None), default=None)


def read_limits(field: Field, base: Limits) -> LimitRules:
    """The section `limits` of a config file. `default` builds on `base`, the entry of a user on `default`."""
    given = field.fields(("default", "users", "vcs"))
    default = _limits(given["default"], base) if "default" in given else base
    users, vcs = ({} if key not in given else given[key].fields() for key in ("users", "vcs"))
    return LimitRules(
        default,
        {name: _limits(entry, default) for name, entry in users.items()},
        {name: _limits(entry, NO_LIMITS) for name, entry in vcs.items()},
    )


def _limits(field: Field, base: Limits) -> Limits:
    found = {name: _value(name, value) for name, value in field.fields(Limits.__struct_fields__).items()}
    return msgspec.structs.replace(base, **found)


def _value(name: str, field: Field) -> float | None:
    """`null` lifts a limit."""
    if field.is_null:
        return None
    if name in ("cpus", "memory_gib", "job_gib", "disk_gib"):
        return field.number(most=COUNT_MAX)
    if name == "priority":
        return field.whole(least=-1, most=1000)
    return field.whole(least=1 if name in ("processes", "log_mib") else 0, most=COUNT_MAX)
