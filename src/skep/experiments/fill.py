"""How much of a cluster can be allocated: pods arrive one after another and stay; those that do not fit are dropped.

The experiment of "Beware of Fragmentation" (Weng et al., ATC'23): the pods of a list in an order shuffled by a seed,
then further pods drawn from it, until the requested GPUs reach a multiple of the cluster's. Placements differ in what
stays unallocated.

The order of the nodes is shuffled too, as in the authors' simulator: equal nodes are taken in it. A node list is often
sorted by GPU type, and in that order `fgd` has 0.2 % less allocated, `gpu-packing` 1 %.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from skep.core.allocation import WHOLE, Allocation
from skep.core.chance import draw
from skep.core.cluster import Cluster
from skep.core.errors import InputError
from skep.core.fragments import Fragments, typical_tasks
from skep.core.job import Job, amount_of
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Plan
from skep.core.tasks import is_loose
from skep.metrics.filled import Filled, Point
from skep.policies.place import Place, build_place
from skep.traces.trace import Trace

DEMAND_MAX = 10.0
PODS_MAX = 5_000_000
"""More than this many pods would take hours."""
STEP = 0.05
"""The requested part of the cluster's GPUs between two points of a curve, at a demand of up to 2."""
REPORT_EVERY = 100

DRAWN, NODES = 1, 2
"""Separate the draws of further pods, and those of the order of nodes, from those of the order of pods."""


class Pod(msgspec.Struct, frozen=True):
    """An arrival: a job of the list as tasks that go to one node each."""

    spec: JobSpec
    milli: int


class Filling:
    """A list of pods and the cluster that they fill. The cluster is a template: every run gets its own copy."""

    def __init__(self, trace: Trace, cluster: Cluster, demand: float) -> None:
        if not 0 < demand <= DEMAND_MAX:
            raise InputError(
                f"the demand is {demand:g}, expected above 0 and at most {DEMAND_MAX:g}", hint="1.3 is usual"
            )
        if not cluster.gpu_total:
            raise InputError(f"cluster {cluster.name} has no GPUs")
        self.cluster = cluster
        self.demand = demand
        self.size_max = max(pool.size_max for pool in cluster.pools)
        self.pods = [pod_of(job.spec, self.size_max) for job in trace.jobs]
        self.wanted = max(round(demand * cluster.gpu_total * WHOLE), 1)
        """Thousandths of GPUs that are to be requested."""
        if not any(pod.milli for pod in self.pods):
            raise InputError(f"{trace.name} has no pod that asks for GPUs: they would never reach the demand")
        if self.pods_expected > PODS_MAX:
            raise InputError(
                f"the demand takes about {self.pods_expected:,} pods of {trace.name}, expected at most {PODS_MAX:,}",
                hint="fill a smaller cluster, or ask for less",
            )
        self.fragments = Fragments(typical_tasks((pod.spec.shapes[0] for pod in self.pods), self.size_max))

    @property
    def pods_expected(self) -> int:
        """The approximate number of pods that will arrive."""
        return math.ceil(self.wanted * len(self.pods) / sum(pod.milli for pod in self.pods))

    def run(self, place: str, seed: int, report: Callable[[int], None] | None = None) -> Filled:
        """Fill an empty cluster; `report` is called regularly with the number of pods that have arrived."""
        cluster = self.shuffled(seed)
        placement = build_place(place, seed=seed, typical=self.fragments.typical)
        plan = Plan({}, cluster)
        total = cluster.gpu_total * WHOLE
        asked = allocated = dropped = pods = 0
        steps = deque(self._steps())
        curve = [self._point(cluster, 0, 0)]
        for pods, pod in enumerate(self.arrivals(seed), start=1):
            asked += pod.milli
            found = find(placement, cluster, plan, Job(pod.spec, pods, 0.0))
            if found is None:
                dropped += 1
            else:
                cluster.take(found, pods)
                allocated += pod.milli
            while steps and asked >= steps[0]:
                curve.append(self._point(cluster, steps.popleft(), allocated))
            if report is not None and not pods % REPORT_EVERY:
                report(pods)
            if asked >= self.wanted:
                break
        return Filled(
            place=place,
            seed=seed,
            demand=self.demand,
            gpus=cluster.gpu_total,
            pods=pods,
            dropped=dropped,
            allocated_percent=100 * allocated / total,
            unallocated_gpus=(total - allocated) / WHOLE,
            fragment_percent=100 * self._fragments(cluster) / (total - allocated) if allocated < total else None,
            curve=curve,
        )

    def shuffled(self, seed: int) -> Cluster:
        """An empty cluster with the nodes in another order."""
        specs = self.cluster.specs
        order = sorted(range(len(specs)), key=lambda at: draw(seed, NODES, at))
        return Cluster([specs[at] for at in order], self.cluster.name)

    def arrivals(self, seed: int) -> Iterator[Pod]:
        """The whole list, shuffled; then single pods drawn from all of it."""
        pods = self.pods
        yield from (pods[at] for at in sorted(range(len(pods)), key=lambda at: draw(seed, at)))
        number = len(pods)
        while True:
            yield pods[draw(seed, DRAWN, number) % len(pods)]
            number += 1

    def _steps(self) -> list[int]:
        """Requested thousandths at the points of the curve."""
        step = STEP * max(math.ceil(self.demand / 2), 1)
        total = self.cluster.gpu_total * WHOLE
        between = [round(number * step * total) for number in range(1, math.ceil(self.demand / step - 1e-9))]
        return [*between, self.wanted]

    def _point(self, cluster: Cluster, asked: int, allocated: int) -> Point:
        percent = cluster.gpu_total * WHOLE / 100
        return Point(asked / percent, allocated / percent, self._fragments(cluster) / percent)

    def _fragments(self, cluster: Cluster) -> float:
        """Thousandths of GPUs."""
        return sum(map(self.fragments.of_node, cluster.nodes)) / self.fragments.scale


def find(place: Place, cluster: Cluster, plan: Plan, job: Job) -> Allocation | None:
    """In the first of its shapes that fits."""
    for shape in job.spec.shapes:
        found = place.find(cluster, plan, job, shape, 0.0)
        if found is not None:
            return found
    return None


def pod_of(spec: JobSpec, size_max: int) -> Pod:
    shapes = tuple(
        Shape(tuple(whole(role, size_max) for role in shape.roles), shape.gpu_types) for shape in spec.shapes
    )
    return Pod(msgspec.structs.replace(spec, shapes=shapes), round(amount_of(shapes[0]) * WHOLE))


def whole(role: Role, size_max: int) -> Role:
    """The tasks of a role as one pod on one node, if the largest node has enough GPUs."""
    if role.count == 1 or is_loose(role) or role.count * role.gpus > size_max:
        return role
    return msgspec.structs.replace(
        role,
        count=1,
        gpus=role.count * role.gpus,
        cpu=role.count * role.cpu,
        memory_gib=role.count * role.memory_gib,
        is_apart=False,
    )
