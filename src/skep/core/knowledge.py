"""What is known of how fast jobs run: figures that somebody measured, never the truth of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.core.model import JobSpec, Shape


class Knowledge(Protocol):
    """Part of the view of planners. Whoever sets up a state fills it, from a profile where there is one."""

    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> float | None:
        """Work per second (1 at the job's reference) in this shape, on GPUs of that type, placed as well as the cluster
        allows, with these jobs on the same GPUs. None: not known, which is not the same as 1."""


class Unknown:
    """Nobody has measured anything."""

    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> float | None:
        return None


UNKNOWN = Unknown()
