"""Placements of bench/tenants.py beside those of Skep: on which of the nodes that take the whole job?

All keep a job on as few nodes as possible; larger than a node: idle nodes plus one for the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from skep.core.chance import draw
from skep.core.cluster import bits
from skep.core.ports import Planner
from skep.core.view import ClusterView, JobView, NodeView, PoolView
from skep.policies.pipeline import Pipeline
from skep.policies.place import PLACES
from skep.policies.place.base import Picks
from skep.policies.place.simple import Consolidate

Make = Callable[[str, str, ClusterView], Planner]


class LeastLoaded(Consolidate):
    """The node with the most free gpus, the lowest on ties: the default of the Kubernetes scheduler."""

    name = "least-loaded"

    def one_node(self, cluster: ClusterView, pool: PoolView, count: int, used: int) -> NodeView | None:
        for free in range(pool.size_max, count - 1, -1):
            mask = pool.by_free[free] & ~used
            if mask:
                return cluster.nodes[(mask & -mask).bit_length() - 1]
        return None


class RandomNode(Consolidate):
    """Any node with room; the draw follows from the job and its launch."""

    name = "random-node"

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        self.number = draw(0, job.seq, job.launches, 0)
        return super().plain(cluster, pool, count, job)

    def one_node(self, cluster: ClusterView, pool: PoolView, count: int, used: int) -> NodeView | None:
        roomy = [index for nodes in pool.by_free[count:] for index in bits(nodes & ~used)]
        return cluster.nodes[sorted(roomy)[self.number % len(roomy)]] if roomy else None


KNOWN = {**PLACES, **{place.name: place for place in (LeastLoaded, RandomNode)}}


def placing(make: Make, place: str) -> Make:
    """The same planners, with another placement."""

    def planner(vc: str, policy: str, cluster: ClusterView) -> Planner:
        made = make(vc, policy, cluster)
        assert isinstance(made, Pipeline)
        made.place = KNOWN[place]()
        return made

    return planner
