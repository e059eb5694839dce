"""The speeds of a state's jobs, for a simulation that continues from it: as reported, not from a profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from skep.core.cluster import Allocation
from skep.core.job import in_proportion
from skep.core.knowledge import GpuUse, neighbours_of
from skep.core.model import JobSpec
from skep.core.state import State


class Now(NamedTuple):
    """Where a job runs, its neighbours, and its measured rate there."""

    allocation: Allocation
    neighbours: list[str]
    rate: float


class Seen:
    """A running job keeps its measured rate in its place, beside the same jobs. Elsewhere it runs as fast as jobs of
    its model have reported from such places, relative to its reference; else in proportion to its GPUs."""

    knows_sharing = True
    tick_s = 0.0
    has_first_restart = False

    def __init__(self, state: State) -> None:
        self.known = state.known
        self.nodes = state.cluster.nodes
        self.now: dict[str, Now] = {}
        for job in state.held_jobs.values():
            if job.held is not None and job.known_rate:
                beside = neighbours_of(job, state.held_jobs, state.cluster)
                self.now[job.id] = Now(job.held, sorted(other.id for other in beside), job.known_rate)

    def knows(self, job: JobSpec, gpu_type: str, neighbours: Sequence[JobSpec]) -> bool:
        return self._reported(job, gpu_type, job.shapes[0].gpus, neighbours) is not None

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        speed = self.known.throughput(model, gpu_type, gpus)
        return None if speed is None else speed.mean

    def rate(
        self,
        job: JobSpec,
        allocation: Allocation,
        neighbours: Sequence[JobSpec],
        work_s: float,
        batch_size: int | None = None,
    ) -> tuple[float, float]:
        now = self.now.get(job.id)
        if now and now.allocation == allocation and now.neighbours == sorted(other.id for other in neighbours):
            return now.rate, math.inf
        types = {self.nodes[piece.node].spec.gpu_type for piece in allocation.slices if piece.gpus}
        found = self._reported(job, types.pop(), allocation.gpu_count(), neighbours) if len(types) == 1 else None
        return in_proportion(job, allocation) if found is None else found, math.inf

    def models(self) -> frozenset[str]:
        return frozenset()

    def training(self, job: JobSpec) -> None:
        return None

    def figures(self, job: JobSpec, allocation: Allocation, work_s: float, batch_size: int | None = None) -> None:
        return None

    def series(self, job: JobSpec, steps: float) -> dict[str, float]:
        return {}

    def trial(self, job: JobSpec, gpu_type: str) -> None:
        return None

    def beside(self, model: str, other: str, gpu_type: str) -> float | None:
        alone, shared = (self.known.throughput(model, gpu_type, 1, near) for near in ((), (other,)))
        return shared.mean / alone.mean if alone is not None and shared is not None and alone.mean > 0 else None

    def usual_beside(self, model: str) -> float | None:
        return None

    def use(self, model: str) -> GpuUse | None:
        return None

    def _reported(self, job: JobSpec, gpu_type: str, gpus: int, neighbours: Sequence[JobSpec]) -> float | None:
        """Work per second, from the steps per second that jobs of this model reported."""
        speed = self.known.throughput(job.model, gpu_type, gpus, tuple(sorted(other.model for other in neighbours)))
        reference = self._reference(job, gpu_type)
        return speed.mean / reference if job.model and speed is not None and reference else None

    def _reference(self, job: JobSpec, gpu_type: str) -> float | None:
        """The reference found for the job itself, else the speed of its model in the job's first shape."""
        progress = self.known.progress.get(job.id)
        if progress is not None and progress.reference is not None:
            return progress.reference
        asked = job.shapes[0]
        reported = self.known.reported_reference(job)
        return reported or self.steps_per_s(job.model, asked.gpus, asked.gpu_types[0] if asked.gpu_types else gpu_type)
