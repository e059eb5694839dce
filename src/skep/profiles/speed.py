"""How fast does a job go on what it got? The contract that the simulator and the estimators share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.core.cluster import Allocation
from skep.core.knowledge import GpuUse
from skep.core.model import JobSpec


class Speed(Protocol):
    knows_sharing: bool
    """Whether neighbours on the same GPU matter."""

    def knows(self, job: JobSpec, gpu_type: str, neighbours: Sequence[JobSpec]) -> bool:
        """True if this was measured; otherwise `rate` is an assumption of the simulation."""

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        """Training steps per second of a job alone and well placed; none where it is not known."""

    def rate(
        self, job: JobSpec, allocation: Allocation, neighbours: Sequence[JobSpec], work_s: float
    ) -> tuple[float, float]:
        """Work per second (1 at the job's reference), and up to which work that holds."""

    def beside(self, model: str, other: str, gpu_type: str) -> float | None:
        """What was measured to be left of a model's speed beside another one; none: nobody has measured the pair."""

    def usual_beside(self, model: str) -> float | None:
        """What is usually left of its speed beside a neighbour; none where nobody says so."""

    def use(self, model: str) -> GpuUse | None:
        """What it uses of a GPU; none where nobody knows."""
