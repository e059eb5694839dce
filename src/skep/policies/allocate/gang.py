"""How much of what? The gang as it was asked for, in the first of its shapes that can be had."""

from __future__ import annotations

from skep.core.model import Shape
from skep.core.view import JobView


class AsAsked:
    name = "as-asked"

    def shapes(self, job: JobView) -> tuple[Shape, ...]:
        return job.spec.shapes
