"""The placement of Gandiva_fair."""

from __future__ import annotations

from collections.abc import Iterator

from skep.core.view import ClusterView, JobView, NodeView, PoolView
from skep.policies.place.base import Picks, nodes_of
from skep.policies.place.simple import Consolidate, larger_than_a_node


class ByTickets(Consolidate):
    """Few nodes; of those that fit, the one with the fewest tickets per GPU."""

    name = "tickets"

    def __init__(self) -> None:
        self.load: dict[int, float] = {}
        """By node; set before each search."""

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        if count > pool.size_max:
            return larger_than_a_node(self, cluster, pool, count)
        nodes = nodes_of(cluster, pool.having(count))
        best = min(nodes, key=lambda node: (self.load.get(node.index, 0.0), node.index), default=None)
        return None if best is None else [(best, count)]

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        yield from sorted(nodes_of(cluster, among), key=lambda node: (self.load.get(node.index, 0.0), node.index))
