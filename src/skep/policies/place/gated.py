"""Placements made of others: by the model's skew (Tiresias), and by patience (delay scheduling)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

from skep.core.cluster import Allocation
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import ClusterView, JobView, NodeView, PoolView, View
from skep.policies.place.base import Picks, Place, find_general, nodes_of, plain_allocation
from skep.policies.place.simple import Anywhere, Consolidate

SKEWED = ("vgg", "alexnet")
"""Families whose largest tensor holds most of the model: they communicate slowly when spread."""


def is_skewed(model: str) -> bool:
    return model.lower().startswith(SKEWED)


class SkewGated(Place):
    """Consolidate the models that need it, let the others fill the gaps (Tiresias). Without a model: not skewed."""

    name = "skew-gated"
    has_keys = True

    def __init__(self) -> None:
        self.skewed = Consolidate()
        self.other = Anywhere()

    def _choice(self, job: JobView) -> Place:
        return self.skewed if is_skewed(job.spec.model) else self.other

    def keeps_together(self, job: JobView, now_s: float) -> bool:
        return is_skewed(job.spec.model)

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        return self._choice(job).seek(cluster, plan, job, shape, now_s)

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        return self._choice(job).prefer(cluster, pool, job, among)

    def key(self, job: JobView, now_s: float) -> int:
        return int(is_skewed(job.spec.model))


class Relaxed(Place):
    """Any placement, relaxed step by step: after `patience[0]` seconds of waiting the job accepts to be spread within
    one rack, after `patience[1]` more over the whole cluster (at once if there are no racks).

    Racks and nodes are tried so that as few nodes as possible are used.
    """

    has_keys = jumps = True

    def __init__(self, inner: Place, patience: tuple[float, ...]) -> None:
        self.inner = inner
        self.name = inner.name
        self.patience = patience

    def attach(self, view: View) -> None:
        super().attach(view)
        self.inner.attach(view)

    def keeps_together(self, job: JobView, now_s: float) -> bool:
        return not self.level(job, now_s) and self.inner.keeps_together(job, now_s)

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        found = self.inner.seek(cluster, plan, job, shape, now_s)
        level = self.level(job, now_s)
        if found is not None or not level:
            return found
        if not shape.is_plain:
            return find_general(self, cluster, plan, job, shape, now_s) if level == len(self.patience) else None
        for pool in cluster.pools_for(shape.gpu_types):
            if pool.free >= shape.gpus:
                for mask in self._domains(cluster, pool, level):
                    picks = fewest_nodes(cluster, pool, mask, shape.gpus)
                    if picks is not None:
                        return plain_allocation(picks, shape.gpus)
        is_spread = shape.spans_types and level == len(self.patience)
        return find_general(self, cluster, plan, job, shape, now_s) if is_spread else None

    def _domains(self, cluster: ClusterView, pool: PoolView, level: int) -> list[int]:
        """The sets of nodes (bits) the job accepts to be spread over, tightest first."""
        if len(pool.racks) == 1:
            return [pool.up]
        racks = [mask & pool.up for mask in pool.racks.values()]
        racks.sort(key=lambda mask: sum(node.free for node in nodes_of(cluster, mask)))
        return racks if level == 1 and len(self.patience) > 1 else [*racks, pool.up]

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        return self.inner.prefer(cluster, pool, job, among)

    def level(self, job: JobView, now_s: float) -> int:
        waited_s = now_s - job.pending_since_s
        level, due_s = 0, 0.0
        for step_s in self.patience:
            due_s += step_s
            if waited_s < due_s - 1e-6 - math.ulp(now_s):
                break
            level += 1
        return level

    def key(self, job: JobView, now_s: float) -> Hashable:
        return (self.level(job, now_s), self.inner.key(job, now_s))

    def changes_at(self, job: JobView, now_s: float) -> float:
        level = self.level(job, now_s)
        if level == len(self.patience):
            return math.inf
        return job.pending_since_s + sum(self.patience[: level + 1])


def fewest_nodes(cluster: ClusterView, pool: PoolView, mask: int, count: int) -> Picks | None:
    """The nodes with the most free GPUs, until there is enough."""
    picks: Picks = []
    for free in range(pool.size_max, 0, -1):
        for node in nodes_of(cluster, pool.by_free[free] & mask):
            tasks = min(free, count)
            picks.append((node, tasks))
            count -= tasks
            if not count:
                return picks
    return None
