"""A trace: jobs with the moment they were submitted and the work they turned out to need."""

from __future__ import annotations

import msgspec

from skep.core.group import GroupSpec
from skep.core.model import JobSpec


class TraceJob(msgspec.Struct, frozen=True):
    """One row. `work_s` is the truth and goes to the engine; the scheduler sees only `spec`."""

    submit_s: float
    work_s: float
    """Seconds of work at the job's reference (as asked, reference GPU type, best placement, alone).

    `inf` for a job that never ends.
    """
    spec: JobSpec


class Trace(msgspec.Struct):
    """Jobs sorted by (submission, row of the file), and what one should know about how they were read."""

    name: str
    format: str
    jobs: list[TraceJob]
    dropped: dict[str, int] = {}
    """Rows of a published trace that could not be used: reason → count."""
    groups: tuple[GroupSpec, ...] = ()
    """What is known of the groups that jobs name, beyond who is in them."""
