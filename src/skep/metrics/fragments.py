"""Idle GPUs over time, and how much of them typical tasks could not use (FGD's measure, `core/fragments.py`).

The measure is computed after every batch of events, so it must be cheap. If jobs take whole GPUs and CPUs do not
matter, nodes with equally many free GPUs are equal, and the index of the pool counts them. Otherwise the measure of
every node is cached, and only nodes whose books have changed are computed again.
"""

from __future__ import annotations

from operator import mul

from skep.core.allocation import bits
from skep.core.cluster import UNLIMITED, WHOLE, Cluster, Node, Pool
from skep.core.fragments import Fragments, Typical


class IdleGpus:
    """What is idle in a cluster now, in thousandths of GPUs."""

    def __init__(self, cluster: Cluster, typical: Typical) -> None:
        self.cluster = cluster
        self.fragments = Fragments(typical)
        wants_cpus = any(task.gpus and task.cpu_milli for task, _ in typical.tasks)
        is_counted = not wants_cpus or all(spec.cpu_milli >= UNLIMITED for spec in cluster.specs)
        self.weights: dict[Pool, list[int]] = {}
        self.by_node = None if is_counted else ByNode(cluster, self.fragments)
        """None as long as nodes of a pool with equally many free GPUs are equal, because no GPU was shared yet."""

    def now(self) -> tuple[int, int]:
        """(idle, fragments × the scale of the measure)."""
        if self.by_node is not None:
            return self.by_node.now()
        idle = found = 0
        for pool in self.cluster.pools:
            if pool.shared or pool.stale:
                self.by_node = ByNode(self.cluster, self.fragments)
                return self.by_node.now()
            free = pool.free
            if free:
                idle += free
                weights = self.weights.get(pool) or self._weigh(pool)
                found += sum(map(mul, weights, map(int.bit_count, pool.by_free)))
        return idle * WHOLE, found

    def _weigh(self, pool: Pool) -> list[int]:
        """The measure of a node by the number of its free GPUs."""
        of = self.fragments.of
        weights = self.weights[pool] = [of(pool.gpu_type, UNLIMITED, free) for free in range(pool.size_max + 1)]
        return weights


class ByNode:
    """Sums over nodes, updated for those that have changed. Nodes that are down count nothing."""

    def __init__(self, cluster: Cluster, fragments: Fragments) -> None:
        self.cluster = cluster
        self.fragments = fragments
        self.epoch = self.seen = -1
        self.up = 0
        self.of: dict[int, tuple[int, int]] = {}
        self.idle = self.found = 0

    def now(self) -> tuple[int, int]:
        changes, nodes = self.cluster.changes(), self.cluster.nodes
        up = 0
        for pool in self.cluster.pools:
            up |= pool.up
        if changes.epoch != self.epoch:
            self.of, self.idle, self.found = {}, 0, 0
            changed = list(range(len(nodes)))
        else:
            changed = changes.since(self.seen)
            if up != self.up:
                changed += bits(up ^ self.up)
        self.epoch, self.seen, self.up = changes.epoch, changes.count, up
        for index in changed:
            idle, found = self._measure(nodes[index])
            before = self.of.get(index, (0, 0))
            self.of[index] = idle, found
            self.idle += idle - before[0]
            self.found += found - before[1]
        return self.idle, self.found

    def _measure(self, node: Node) -> tuple[int, int]:
        if not node.is_up:
            return 0, 0
        return node.free * WHOLE + sum(left for _, left in node.parts()), self.fragments.of_node(node)
