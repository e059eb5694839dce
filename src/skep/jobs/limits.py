"""How much one user, or all users of a VC together, may have at once."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.core.errors import InputError
from skep.core.model import PRIORITIES
from skep.files.document import Field

COUNT_MAX = 10**9


class LimitReached(InputError):
    """A submission that would exceed a limit; nothing was submitted. `code` names the limit."""

    def __init__(self, limit: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = f"limit-{limit}"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """None: no limit. A job counts as long as it has not ended."""

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
