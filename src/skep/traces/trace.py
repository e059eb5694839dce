"""A trace: jobs with their submission times and the work they turned out to need."""

from __future__ import annotations

import math

import msgspec

from skep.core.group import GroupSpec
from skep.core.model import JobSpec


class LossCurve(msgspec.Struct, frozen=True):
    """What a simulated job reports after so many steps: `floor + span · (1 + step) ^ -power`."""

    floor: float
    span: float
    power: float
    name: str = "loss"

    def at(self, step: float) -> float:
        return self.floor + self.span * math.pow(1.0 + step, -self.power)


class TraceJob(msgspec.Struct, frozen=True, gc=False):
    """One row. `work_s` is the truth and goes to the engine; the scheduler sees only `spec`."""

    submit_s: float
    work_s: float
    """Seconds of work at the job's reference (as requested, reference GPU type, best placement, alone).

    `inf` for a job that never ends.
    """
    spec: JobSpec
    curve: LossCurve | None = None
    """Of a job with known steps."""


class Trace(msgspec.Struct):
    """Jobs sorted by (submission, row of the file), and notes about how they were read."""

    name: str
    format: str
    jobs: list[TraceJob]
    dropped: dict[str, int] = {}
    """Rows of a published trace that could not be used: reason → count."""
    groups: tuple[GroupSpec, ...] = ()
    """What is known of the groups that jobs name, besides their members."""
    ignored: tuple[str, ...] = ()
    """Notes about columns that were not read."""

    @property
    def has_derived_deadlines(self) -> bool:
        """True if deadlines follow from durations, as Gavel's do: who reads them knows the durations."""
        return self.format == "gavel"
