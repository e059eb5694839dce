"""How many resources a job gets. A gang gets what it requested, in the first of its shapes that can be placed."""

from __future__ import annotations

from typing import Protocol

from skep.core.model import Shape
from skep.core.view import JobView


class Allocator(Protocol):
    """The shapes to try for a pending job."""

    @property
    def name(self) -> str: ...
    def shapes(self, job: JobView) -> tuple[Shape, ...]:
        """The preferred one first. The only shape of a job is not changed: the walk relies on it (`Line.is_plain`)."""
        ...


class AsRequested:
    """The shapes that the job accepts, in its own order."""

    name = "as-requested"

    def shapes(self, job: JobView) -> tuple[Shape, ...]:
        return job.shapes
