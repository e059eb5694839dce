"""How much of what? The gang as it was asked for, in the first of its shapes that can be had."""

from __future__ import annotations

from skep.core.job import Job
from skep.core.model import Shape


class AsAsked:
    name = "as-asked"

    def shapes(self, job: Job) -> tuple[Shape, ...]:
        return job.spec.shapes
