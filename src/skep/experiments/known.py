"""The speeds that policies know: the profile's values on an idle cluster, on as few nodes as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from skep.core.cluster import Cluster
from skep.core.job import Job
from skep.core.knowledge import GpuUse, Training, TrainingFigures, TrialFigures
from skep.core.model import JobSpec, Shape
from skep.core.plan import Plan
from skep.core.standstill import Standstills
from skep.core.view import JobView
from skep.policies.place import Relaxed
from skep.policies.place.simple import Consolidate
from skep.profiles.speed import Speed


class Known:
    """The measurements of a speed model."""

    def __init__(self, speed: Callable[[Cluster], Speed], cluster: Cluster) -> None:
        self.idle = Cluster(cluster.specs, cluster.name)
        self.speed = speed(self.idle)
        self.place = Relaxed(Consolidate(), (0.0,))
        self.standstills = Standstills(self.stands_still)

    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> float | None:
        return self._rate(job, shape, gpu_type, neighbours) if self.speed.knows(job, gpu_type, neighbours) else None

    def stands_still(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> bool:
        """Also where the speed was not measured: the simulation takes the figures that are nearest."""
        return self._rate(job, shape, gpu_type, neighbours) == 0

    def _rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec]) -> float | None:
        shape = msgspec.structs.replace(shape, gpu_types=(gpu_type,))
        allocation = self.place.find(self.idle, Plan({}, self.idle), Job(job, 0, 0.0), shape, 0.0)
        return None if allocation is None else self.speed.rate(job, allocation, neighbours, 0.0)[0]

    def steps_per_s(self, model: str, gpu_type: str, gpus: int) -> float | None:
        return self.speed.steps_per_s(model, gpus, gpu_type)

    def models(self) -> frozenset[str]:
        return self.speed.models()

    def training(self, job: JobSpec) -> Training | None:
        return self.speed.training(job)

    def shown(self, job: JobView, now_s: float) -> TrainingFigures | None:
        batch = job.settings.get("batch_size")
        if job.held is None:
            return None
        return self.speed.figures(job.spec, job.held, job.work_at(now_s), batch if isinstance(batch, int) else None)

    def trial(self, job: JobSpec, gpu_type: str) -> TrialFigures | None:
        return self.speed.trial(job, gpu_type)

    def use(self, model: str) -> GpuUse | None:
        return self.speed.use(model)
