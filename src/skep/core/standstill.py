"""Where jobs make no progress: GPU types, numbers of GPUs and neighbours for which a profile has a speed of 0.

No job is placed there. `Job.shapes` are the requested shapes without such GPU types; placements and adjusters avoid
such neighbours by `go_together`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from skep.core.model import JobSpec, Shape

NOWHERE = ("no GPU type of this cluster",)
"""The GPU types of a shape in which a job makes no progress at all."""

KNOWN_MAX = 100_000
"""The number of cached answers; an unusual trace must not exhaust the memory."""

StandsStill = Callable[[JobSpec, Shape, str, Sequence[JobSpec]], bool]
"""`ProfileFigures.stands_still`."""


class Standstills:
    """The answers of a profile, each computed once; None: there is no profile."""

    def __init__(self, stands_still: StandsStill | None) -> None:
        self._stands_still = stands_still
        self.are_known = stands_still is not None
        """False if there is no profile: then no speed is known to be 0."""
        self._shapes: dict[tuple[str, Shape, Shape, tuple[str, ...]], Shape] = {}
        self._pairs: dict[tuple[str, Shape, str, Shape, str], bool] = {}

    def shapes(self, job: JobSpec, gpu_types: tuple[str, ...]) -> tuple[Shape, ...]:
        """The shapes of a job without the GPU types of the cluster on which it makes no progress; all of them are
        `NOWHERE` if none is left."""
        if self._stands_still is None:
            return job.shapes
        found = tuple([self.shape(job, shape, gpu_types) for shape in job.shapes])
        return tuple([shape for shape in found if shape.gpu_types != NOWHERE]) or found

    def shape(self, job: JobSpec, shape: Shape, gpu_types: tuple[str, ...]) -> Shape:
        """The same for one shape, of any size."""
        if self._stands_still is None or not shape.gpus:
            return shape
        key = (job.model, job.shapes[0], shape, gpu_types)
        if key not in self._shapes:
            if len(self._shapes) >= KNOWN_MAX:
                self._shapes.clear()
            there = [name for name in gpu_types if not shape.gpu_types or name in shape.gpu_types]
            left = tuple([name for name in there if not self._stands_still(job, shape, name, ())])
            types = left or NOWHERE if len(left) < len(there) else shape.gpu_types
            self._shapes[key] = msgspec.structs.replace(shape, gpu_types=types) if types != shape.gpu_types else shape
        return self._shapes[key]

    def runs(self, job: JobSpec, shape: Shape, gpu_type: str) -> bool:
        """False if it makes no progress in this shape on GPUs of this type."""
        return self.shape(job, shape, (gpu_type,)).gpu_types != NOWHERE

    def go_together(self, one: JobSpec, other: JobSpec, gpu_type: str) -> bool:
        """False if one of two jobs on the same GPUs makes no progress beside the other."""
        if self._stands_still is None:
            return True
        (first, second) = sorted((one, other), key=lambda job: job.model)
        key = (first.model, first.shapes[0], second.model, second.shapes[0], gpu_type)
        if key not in self._pairs:
            if len(self._pairs) >= KNOWN_MAX:
                self._pairs.clear()
            both = ((one, other), (other, one))
            stand = [self._stands_still(job, job.shapes[0], gpu_type, (beside,)) for job, beside in both]
            self._pairs[key] = not any(stand)
        return self._pairs[key]
