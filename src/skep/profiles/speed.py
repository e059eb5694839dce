"""The speed of a job on its allocation: the contract that the simulator and the estimators share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.core.cluster import Allocation
from skep.core.knowledge import GpuUse, Training, TrainingFigures, TrialFigures
from skep.core.model import JobSpec


class Speed(Protocol):
    knows_sharing: bool
    """True if neighbours on the same GPU matter."""
    tick_s: float
    """A rate changes, and a job ends, at whole multiples of this time only; 0: at any time."""
    has_first_restart: bool
    """True if the first start of a job costs as much as every other."""

    def knows(self, job: JobSpec, gpu_type: str, neighbours: Sequence[JobSpec]) -> bool:
        """True if this was measured; otherwise `rate` is an assumption of the simulation."""

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        """Training steps per second of a job alone and well placed; None if not known."""

    def rate(
        self,
        job: JobSpec,
        allocation: Allocation,
        neighbours: Sequence[JobSpec],
        work_s: float,
        batch_size: int | None = None,
    ) -> tuple[float, float]:
        """Work per second (1 at the job's reference), and up to which work that holds. `batch_size`: to which it is
        tuned; None: its own."""

    def models(self) -> frozenset[str]:
        """The models that were measured."""

    def figures(
        self, job: JobSpec, allocation: Allocation, work_s: float, batch_size: int | None = None
    ) -> TrainingFigures | None:
        """What the job measures of its training there; None if it was not measured."""

    def trial(self, job: JobSpec, gpu_type: str) -> TrialFigures | None:
        """What a short trial on one GPU of that type measures; None if it was not measured."""

    def series(self, job: JobSpec, steps: float) -> dict[str, float]:
        """What the job reports beside its progress after so many steps: its loss."""

    def training(self, job: JobSpec) -> Training | None:
        """The course of its training; None if it was not measured."""

    def beside(self, model: str, other: str, gpu_type: str) -> float | None:
        """The measured part of a model's speed that is left beside another one; None: the pair was not measured."""

    def usual_beside(self, model: str) -> float | None:
        """The part of its speed that is usually left beside a neighbour; None if not known."""

    def use(self, model: str) -> GpuUse | None:
        """What it uses of a GPU; None if not known."""
