"""Why a job does not run now, as data.

Jobs with equal requests wait for the same reason, so waiting is booked per *scope* (a class of equal requests, or the
job at the head of a line). A job that leaves a scope takes what the scope has booked since the job joined.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

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


class Undrain(msgspec.Struct, frozen=True, tag="undrain"):
    """These nodes come back into use: drained ones are undrained, lost ones return, others' processes leave."""

    nodes: tuple[str, ...]


class End(msgspec.Struct, frozen=True, tag="end"):
    """All of these jobs end, whether they run or wait; `more`: the number of jobs beyond those that are listed."""

    jobs: tuple[str, ...]
    more: int = 0


class Succeed(msgspec.Struct, frozen=True, tag="succeed"):
    """These jobs, and all jobs of these groups, succeed."""

    jobs: tuple[str, ...]
    groups: tuple[str, ...] = ()


class Release(msgspec.Struct, frozen=True, tag="release"):
    """The job itself is released."""

    job: str


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """Nothing: it changes by itself, at this time if there is one."""

    until_s: float | None = None


class ChoosePolicy(msgspec.Struct, frozen=True, tag="choose-policy"):
    """Another policy is chosen."""


Change = Undrain | End | Succeed | Release | Wait | ChoosePolicy


class Refusal(msgspec.Struct, frozen=True):
    """`reason` says why it does not run, `remedy` what would change that; `changes` is the remedy as data: when all of
    them are made, the job starts."""

    code: str
    cause: Cause
    reason: str
    remedy: str
    changes: tuple[Change, ...] = ()


READY, NEVER = "ready", "never"
"""The codes of a job that lacks nothing, and of one that can never run."""

NAMED_MAX = 5
"""The most jobs or nodes that a sentence names."""


def listed(names: Sequence[str], count: int | None = None) -> str:
    """`job 3, job 4 and 12 more`; `count`: how many there are, if `names` are only the first of them."""
    count = len(names) if count is None else count
    named = list(names[:NAMED_MAX])
    if count > len(named):
        named.append(f"{count - len(named):,} more")
    return " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else "".join(named)


def remedy_of(changes: Iterable[Change], now_s: float) -> str:
    """The changes in words, to follow "what would change that:"."""
    return ", and ".join(change_in_words(change, now_s) for change in changes)


def change_in_words(change: Change, now_s: float) -> str:
    match change:
        case Undrain(nodes):
            return f"{listed([f'node {name}' for name in nodes])} coming back into use"
        case End(jobs, more):
            return f"{listed([f'job {id}' for id in jobs], len(jobs) + more)} ending"
        case Succeed(jobs, groups):
            return f"{listed([*(f'job {id}' for id in jobs), *(f'group {id}' for id in groups)])} succeeding"
        case Release(job):
            return f"`skep release {job.partition('/')[0]}`"
        case Wait(until_s):
            return "waiting" if until_s is None else f"waiting for {max(until_s - now_s, 0):,.0f} s"
        case ChoosePolicy():
            return "`skep policy use NAME`"


def ready(now_s: float, until_s: float | None = None) -> Refusal:
    """For a job that lacks nothing: it starts with the next decision."""
    reason = "it starts with the next decision"
    if until_s is not None:
        reason = f"decisions are made in rounds, the next one in {max(until_s - now_s, 0):,.0f} s"
    changes = (Wait(until_s),)
    return Refusal(READY, Cause.ORDER, reason, remedy_of(changes, now_s), changes)


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
        return any([waiting.jobs for waiting in self.fragmented.values()])

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
