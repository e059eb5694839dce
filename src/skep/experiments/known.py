"""What policies are told of the speed of jobs: what the profile says of an idle cluster, on as few nodes as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import msgspec

from skep.core.cluster import Cluster
from skep.core.job import Job
from skep.core.model import JobSpec, Shape
from skep.core.plan import Plan
from skep.policies.allocate.elastic import in_proportion
from skep.policies.place import Relaxed
from skep.policies.place.simple import Consolidate
from skep.profiles.speed import Speed


class Known:
    """A `Knowledge` of a speed model."""

    def __init__(self, speed: Callable[[Cluster], Speed], cluster: Cluster) -> None:
        self.idle = Cluster(cluster.specs, cluster.name)
        self.speed = speed(self.idle)
        self.place = Relaxed(Consolidate(), (0.0,))

    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> float | None:
        if neighbours and not self.speed.knows_sharing:
            return None
        return self._rate(job, msgspec.structs.replace(shape, gpu_types=(gpu_type,)), neighbours)

    def scaling(self, job: JobSpec, shape: Shape) -> float | Fraction:
        """Alone, on whichever type it finds first."""
        found = self._rate(job, shape, ())
        return in_proportion(job, shape) if found is None else found  # it will not run here in any case

    def _rate(self, job: JobSpec, shape: Shape, neighbours: Sequence[JobSpec]) -> float | None:
        allocation = self.place.find(self.idle, Plan({}, self.idle), Job(job, 0, 0.0), shape, 0.0)
        return None if allocation is None else self.speed.rate(job, allocation, neighbours, 0.0)[0]
