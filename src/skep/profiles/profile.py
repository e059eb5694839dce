"""Profiles: measured speeds of models, and the rates of jobs that follow from them.

In most profiles a rate depends on a job and its allocation only through a few things: the model, the request, the GPU
types, their distance and the neighbours. These form a `Situation`; such a profile computes its rate once, and
`MeasuredSpeed` finds the situation of an allocation and caches the rate.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skep.core.cluster import Allocation, Cluster
from skep.core.knowledge import GpuUse
from skep.core.model import JobSpec
from skep.profiles.speed import Speed

CPU = "cpu"
"""The type of an allocation without GPUs."""
CACHE_MAX = 100_000
REPORT_S = 60.0
"""A job whose loss is known reports it after so many seconds of work."""
"""The number of cached situations; real runs have hundreds, and an unusual trace must not exhaust the memory."""

Neighbour = tuple[str, int]
"""(model, GPUs) of a job on the same GPU."""


class Situation(NamedTuple):
    """Everything a rate depends on."""

    model: str
    asked_gpus: int
    asked_type: str
    """The first type the job named, or empty."""
    gpus: int
    types: tuple[str, ...]
    """Each GPU type of the allocation once; `cpu` without GPUs."""
    level: str
    """The level of the smallest cell that contains the allocation."""
    is_spread: bool
    """True if it is on more than one node."""
    neighbours: tuple[Neighbour, ...] = ()


class Profile(ABC):
    """Speeds of models."""

    @abstractmethod
    def models(self) -> set[str]:
        """The models it has figures for."""

    @abstractmethod
    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        """Training steps per second of a job alone and well placed, without a type on the reference; None if not
        known."""

    @abstractmethod
    def speed(self, cluster: Cluster) -> Speed:
        """The rates of jobs on this cluster."""

    def run_s(self, model: str, gpus: int, batch_size: int) -> float | None:
        """Seconds of a whole training run on so many GPUs of the reference; None if no run was measured."""
        return None

    def gpus_max(self, model: str) -> int | None:
        """The most GPUs that such a run can use."""
        return None

    def batches(self, model: str) -> tuple[int, int] | None:
        """The smallest and the largest batch size of such runs."""
        return None


class FactorProfile(Profile):
    """Speeds that depend on a job and its allocation through a `Situation`. A simulated job without an entry runs at
    its reference; `knows` is then false."""

    knows_sharing: bool

    @abstractmethod
    def knows(self, model: str, gpu_type: str, neighbours: Iterable[Neighbour]) -> bool:
        """True if it has figures of this model, on that type, beside each of these."""

    @abstractmethod
    def rate(self, situation: Situation, levels: Sequence[str]) -> float:
        """Work per second; `levels` are those of the cluster from the inside out."""

    def beside(self, model: str, other: str, gpu_type: str) -> float | None:
        """The measured part of a model's speed that is left beside another one on a GPU of this type."""
        return None

    def usual_beside(self, model: str) -> float | None:
        """The part that is usually left beside a neighbour."""
        return None

    def use(self, model: str) -> GpuUse | None:
        """What it uses of a GPU."""
        return None

    def loss(self, model: str, steps: float) -> float | None:
        """The loss that a job of this model reports after so many steps; None: it reports none."""
        return None

    def speed(self, cluster: Cluster) -> Speed:
        return MeasuredSpeed(self, cluster)


class MeasuredSpeed:
    """The rates of a profile on one cluster. A repeated query costs about a microsecond."""

    tick_s = 0.0
    has_first_restart = False

    def __init__(self, profile: FactorProfile, cluster: Cluster) -> None:
        self.profile = profile
        self.cluster = cluster
        self.knows_sharing = profile.knows_sharing
        self.levels = levels_of(cluster)
        self._types = [node.spec.gpu_type for node in cluster.nodes]
        self._has_inner = [bool(node.spec.inner) for node in cluster.nodes]
        self._outer = self.levels[self.levels.index("node") + 1 :]
        self._rates: dict[tuple[object, ...], tuple[float, float]] = {}
        self._has_losses = any(profile.loss(model, 0.0) is not None for model in ("", *profile.models()))
        self.beside, self.usual_beside, self.use = profile.beside, profile.usual_beside, profile.use

    def knows(self, job: JobSpec, gpu_type: str, neighbours: Sequence[JobSpec]) -> bool:
        return self.profile.knows(job.model, gpu_type, neighbour_key(neighbours))

    def models(self) -> frozenset[str]:
        return frozenset(self.profile.models())

    def training(self, job: JobSpec) -> None:
        return None

    def figures(self, job: JobSpec, allocation: Allocation, work_s: float, batch_size: int | None = None) -> None:
        return None

    def trial(self, job: JobSpec, gpu_type: str) -> None:
        return None

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        return self.profile.steps_per_s(model, gpus, gpu_type)

    def rate(
        self,
        job: JobSpec,
        allocation: Allocation,
        neighbours: Sequence[JobSpec],
        work_s: float,
        batch_size: int | None = None,
    ) -> tuple[float, float]:
        """Work per second (1 at the job's reference), and up to which work that holds: always, here. Other batch sizes
        were not measured and change nothing."""
        slices = allocation.slices
        types: str | tuple[str, ...]
        # Nearly all allocations are on one node: no sets, no sorting. Workers that share a GPU count as if each had its
        # own: that cost is computed elsewhere.
        if len(slices) == 1 and slices[0].gpus:
            node = slices[0].node
            gpus = max(slices[0].gpus.bit_count(), slices[0].tasks)
            types = self._types[node]
            level = "gpu" if gpus == 1 else "node" if not self._has_inner[node] else self._level(allocation)
        else:
            gpus = sum(max(piece.gpus.bit_count(), piece.tasks) for piece in slices if piece.gpus)
            types = tuple(sorted({self._types[piece.node] for piece in slices if piece.gpus}))
            level = self._level(allocation)
        near = neighbour_key(neighbours) if neighbours else ()
        key = (job.model, job.shapes, gpus, types, level, near)
        found = self._rates.get(key)
        if found is None:
            found = self._rates[key] = self._work_out(job, gpus, types, level, near)
        if self._has_losses and self.profile.loss(job.model, 0.0) is not None:
            return found[0], (work_s // REPORT_S + 1) * REPORT_S
        return found

    def series(self, job: JobSpec, steps: float) -> dict[str, float]:
        loss = self.profile.loss(job.model, steps)
        return {} if loss is None else {"loss": loss}

    def _work_out(
        self, job: JobSpec, gpus: int, types: str | tuple[str, ...], level: str, near: tuple[Neighbour, ...]
    ) -> tuple[float, float]:
        if len(self._rates) >= CACHE_MAX:
            self._rates.clear()
        asked = job.shapes[0]
        situation = Situation(
            model=job.model,
            asked_gpus=asked.gpus,
            asked_type=(asked.gpu_types or ("",))[0] if asked.gpus else CPU,
            gpus=gpus,
            types=(types,) if isinstance(types, str) else types or (CPU,),
            level=level,
            is_spread=level in self._outer,
            neighbours=near,
        )
        return self.profile.rate(situation, self.levels), math.inf

    def _level(self, allocation: Allocation) -> str:
        """As `Cluster.common_level`, which searches the whole tree, with a shortcut for flat clusters."""
        slices = allocation.slices
        if self._outer == ("cluster",):
            first = next((piece.node for piece in slices if piece.gpus), None)
            if any(piece.gpus and piece.node != first for piece in slices):
                return "cluster"
        return self.cluster.common_level(allocation)


def neighbour_key(neighbours: Iterable[JobSpec]) -> tuple[Neighbour, ...]:
    """In a fixed order, so that equal situations have exactly equal rates."""
    return tuple(sorted((other.model, other.shapes[0].gpus) for other in neighbours))


def levels_of(cluster: Cluster) -> tuple[str, ...]:
    """The levels of a cluster from the inside out: GPU, cells in a node, node, cells around it, cluster."""
    inside: dict[str, int] = {}
    around: dict[str, int] = {}
    for inner, within in dict.fromkeys((node.spec.inner, node.spec.within) for node in cluster.nodes):
        # Nodes may lack levels that others have: a level lies as far out as its outermost use.
        for place, (level, _) in enumerate(reversed(inner)):
            inside[level] = max(inside.get(level, 0), place)
        for place, (level, _) in enumerate(reversed(within)):
            around[level] = max(around.get(level, 0), place)
    cells, groups = sorted(inside, key=inside.__getitem__), sorted(around, key=around.__getitem__)
    return ("gpu", *cells, "node", *groups, "cluster")


def nearest_count(counts: Iterable[int], wanted: int) -> int:
    """The number nearest in ratio (6 is nearer to 8 than to 4), the smaller one of two equally near."""
    return min(counts, key=lambda count: (max(count, wanted) / max(min(count, wanted), 1), count))


def shared(factors: Sequence[float], gpus: int) -> float:
    """The part of a job's speed that is left, from the factor of each neighbour.

    All neighbours of a job with one GPU are on that GPU, and each costs its part. Those of a gang are assumed to sit
    beside different members, and the gang is as fast as its slowest one.
    """
    if not factors:
        return 1.0
    return math.prod(factors) if gpus <= 1 else min(factors)
