"""Why a job does not run now, as data.

Jobs with equal requests wait for the same reason, so waiting is booked per *scope* (a class of equal requests, or the
job at the head of a line). A job that leaves a scope takes what the scope has booked since the job joined.
"""

from __future__ import annotations

import enum

import msgspec


class Cause(enum.StrEnum):
    QUOTA = "quota"
    """Its quota is used up."""
    FRAGMENTATION = "fragmentation"
    """Enough GPUs are free, but in no acceptable shape."""
    CAPACITY = "capacity"
    """Too little is free."""
    ORDER = "order"
    """Other jobs go first."""
    CONSTRAINT = "constraint"
    """Something it requires is not available now."""


QUOTA, FRAGMENTATION, CAPACITY, ORDER = Cause.QUOTA, Cause.FRAGMENTATION, Cause.CAPACITY, Cause.ORDER


class Refusal(msgspec.Struct, frozen=True):
    """`reason` says why it does not run, `remedy` what would change that."""

    code: str
    cause: Cause
    reason: str
    remedy: str


class Waiting:
    """How long the jobs of one scope have waited for each booked cause."""

    __slots__ = ("cause", "fragmentation_s", "jobs", "quota_s", "since_s")

    def __init__(self, now_s: float) -> None:
        self.cause = ORDER
        self.since_s = now_s
        self.quota_s = 0.0
        self.fragmentation_s = 0.0
        self.jobs = 0
        """The number of jobs that wait in this scope now."""

    def become(self, cause: Cause, now_s: float) -> None:
        self.settle(now_s)
        self.cause = cause

    def settle(self, now_s: float) -> None:
        """Book the time since the last change under the present cause."""
        cause = self.cause
        if cause is QUOTA:
            self.quota_s += now_s - self.since_s
        elif cause is FRAGMENTATION:
            self.fragmentation_s += now_s - self.since_s
        self.since_s = now_s


class Waits:
    """The scopes in which jobs wait."""

    __slots__ = ("fragmented", "scopes")

    def __init__(self) -> None:
        self.scopes: dict[str, Waiting] = {}
        self.fragmented: dict[str, Waiting] = {}
        """The scopes whose jobs would find enough free GPUs, but in no acceptable shape."""

    def of(self, scope: str, now_s: float) -> Waiting:
        waiting = self.scopes.get(scope)
        if waiting is None:
            waiting = self.scopes[scope] = Waiting(now_s)
        return waiting

    def refuse(self, scope: str, cause: Cause, now_s: float) -> None:
        """From now on the jobs of this scope wait for this cause."""
        waiting = self.of(scope, now_s)
        waiting.become(cause, now_s)
        self.note_cause(scope, waiting)

    def note_cause(self, scope: str, waiting: Waiting) -> None:
        if waiting.cause is FRAGMENTATION:
            self.fragmented[scope] = waiting
        else:
            self.fragmented.pop(scope, None)

    @property
    def is_fragmented(self) -> bool:
        """True if a job waits although enough GPUs are free for it."""
        return bool(self.fragmented) and any(waiting.jobs for waiting in self.fragmented.values())

    def drop(self, prefix: str) -> list[Waiting]:
        """Drop the scopes with that prefix, which are no longer used."""
        dropped = [scope for scope in self.scopes if scope.startswith(prefix)]
        for scope in dropped:
            self.fragmented.pop(scope, None)
        return [self.scopes.pop(scope) for scope in dropped]

    def shift(self, by_s: float) -> None:
        """The clock was set."""
        for waiting in self.scopes.values():
            waiting.since_s += by_s
