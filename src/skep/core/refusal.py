"""Why a job does not run now, as data.

Jobs that ask for the same wait for the same reason, so waiting is booked per *scope* (a class of equal requests, or
the one job at the head of a line) and a job takes its part when it leaves: what the scope had booked since it joined.
"""

from __future__ import annotations

import enum

import msgspec


class Cause(enum.StrEnum):
    QUOTA = "quota"
    """Its share is used up."""
    FRAGMENTATION = "fragmentation"
    """Enough gpus are free, but in no shape it accepts."""
    CAPACITY = "capacity"
    """Too little is free."""
    ORDER = "order"
    """Others go first."""
    CONSTRAINT = "constraint"
    """Something it asks for is not there now."""


class Refusal(msgspec.Struct, frozen=True):
    """`reason` says why not, `remedy` what would change it."""

    code: str
    cause: Cause
    reason: str
    remedy: str


class Waiting:
    """How long the jobs of one scope have waited for each cause that is booked."""

    __slots__ = ("cause", "fragmentation_s", "jobs", "quota_s", "since_s")

    def __init__(self, now_s: float) -> None:
        self.cause = Cause.ORDER
        self.since_s = now_s
        self.quota_s = 0.0
        self.fragmentation_s = 0.0
        self.jobs = 0
        """How many wait in this scope now."""

    def become(self, cause: Cause, now_s: float) -> None:
        self.settle(now_s)
        self.cause = cause

    def settle(self, now_s: float) -> None:
        """Book the time since the last change on the present cause."""
        if self.cause is Cause.QUOTA:
            self.quota_s += now_s - self.since_s
        elif self.cause is Cause.FRAGMENTATION:
            self.fragmentation_s += now_s - self.since_s
        self.since_s = now_s
