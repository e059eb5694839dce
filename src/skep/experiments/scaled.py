"""How fast would a job be with another number of gpus? What the profile says of it, alone and well placed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from skep.core.cluster import Cluster
from skep.core.job import Job
from skep.core.model import JobSpec, Shape
from skep.core.plan import Plan
from skep.policies.allocate.elastic import in_proportion
from skep.policies.place import Relaxed
from skep.policies.place.simple import Consolidate
from skep.profiles.speed import Speed


class Scaled:
    """The rates of a speed model on an idle cluster, on as few nodes as possible."""

    def __init__(self, speed: Callable[[Cluster], Speed], cluster: Cluster) -> None:
        self.idle = Cluster(cluster.specs, cluster.name)
        self.speed = speed(self.idle)
        self.place = Relaxed(Consolidate(), (0.0,))

    def __call__(self, spec: JobSpec, shape: Shape) -> float | Fraction:
        allocation = self.place.find(self.idle, Plan({}, self.idle), Job(spec, 0, 0.0), shape, 0.0)
        if allocation is None:
            return in_proportion(spec, shape)  # it will not run here in any case
        return self.speed.rate(spec, allocation, (), 0.0)[0]
