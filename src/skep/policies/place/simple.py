"""The placements that consider only free GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from skep.core.cluster import bits
from skep.core.view import ClusterView, JobView, NodeView, PoolView
from skep.policies.place.base import Picks, Place, nodes_of


class Consolidate(Place):
    """Fewest nodes; the fullest that fits, the lowest on ties. Larger than a node: idle nodes plus one for the rest."""

    name = "consolidate"

    def keeps_together(self, job: JobView, now_s: float) -> bool:
        return True

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        if count > pool.size_max:
            return larger_than_a_node(self, cluster, pool, count)
        node = self.one_node(cluster, pool, count, 0)
        return None if node is None else [(node, count)]

    def one_node(self, cluster: ClusterView, pool: PoolView, count: int, used: int) -> NodeView | None:
        """The preferred node with that many free GPUs, none of the `used` ones (bits)."""
        by_free = pool.by_free
        for free in range(count, pool.size_max + 1):
            mask = by_free[free] & ~used
            if mask:
                return cluster.nodes[(mask & -mask).bit_length() - 1]
        return None

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        for mask in pool.by_free:
            yield from nodes_of(cluster, mask & among)


class FirstFit(Consolidate):
    """The first node, in the order of the cluster, that holds the whole job; larger jobs as `consolidate`."""

    name = "first-fit"

    def one_node(self, cluster: ClusterView, pool: PoolView, count: int, used: int) -> NodeView | None:
        mask = pool.having(count) & ~used
        return cluster.nodes[(mask & -mask).bit_length() - 1] if mask else None

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        return nodes_of(cluster, among)


def larger_than_a_node(place: Consolidate, cluster: ClusterView, pool: PoolView, count: int) -> Picks | None:
    """Idle nodes, largest first, and one node for the rest."""
    picks: Picks = []
    rest = count
    used = 0
    for size, idle in pool.idle.items():
        for index in bits(idle):
            if rest < size or not size:
                break
            picks.append((cluster.nodes[index], size))
            used |= 1 << index
            rest -= size
    if not rest:
        return picks
    last = place.one_node(cluster, pool, rest, used) if rest <= pool.size_max else None
    return None if last is None else [*picks, (last, rest)]


class Anywhere(Place):
    """Free GPUs anywhere, in the order of the cluster."""

    name = "any"

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        mask, nodes = pool.up ^ pool.by_free[0], cluster.nodes
        picks: Picks = []
        while True:
            low = mask & -mask
            node = nodes[low.bit_length() - 1]
            free = node.free_mask.bit_count()
            if free >= count:
                picks.append((node, count))
                return picks
            picks.append((node, free))
            count -= free
            mask ^= low

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        return nodes_of(cluster, among)


class MostFreeFirst(Place):
    """Each task goes to the node with the most free GPUs, the lowest on ties."""

    name = "spread"

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        levels = list(pool.by_free)
        picked: dict[int, int] = {}
        level = len(levels) - 1
        for _ in range(count):
            while not levels[level]:
                level -= 1
            low = levels[level] & -levels[level]
            levels[level] ^= low
            levels[level - 1] ^= low
            index = low.bit_length() - 1
            picked[index] = picked.get(index, 0) + 1
        return [(cluster.nodes[index], tasks) for index, tasks in sorted(picked.items())]

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        for mask in reversed(pool.by_free):
            yield from nodes_of(cluster, mask & among)


class RoomiestFirst(MostFreeFirst):
    """The nodes with the most free GPUs, the lowest on ties, each filled before the next."""

    name = "roomiest"

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        return fill(self.prefer(cluster, pool, job, pool.up ^ pool.by_free[0]), count)


class EvenSplit(RoomiestFirst):
    """As few nodes as possible, with equal numbers of GPUs on each or one more on some (Optimus); if there are no such
    nodes, as `roomiest`."""

    name = "even"

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        nodes = list(self.prefer(cluster, pool, job, pool.up ^ pool.by_free[0]))
        for split in range(1, min(len(nodes), count) + 1):
            least, more = divmod(count, split)
            parts = [least + 1] * more + [least] * (split - more)
            if all(node.free >= part for node, part in zip(nodes, parts, strict=False)):
                return list(zip(nodes, parts, strict=False))
        return fill(iter(nodes), count)


def fill(nodes: Iterator[NodeView], count: int) -> Picks | None:
    """Take the free GPUs of these nodes, none of them full, until there are enough."""
    picks: Picks = []
    for node in nodes:
        tasks = min(node.free, count)
        picks.append((node, tasks))
        count -= tasks
        if not count:
            return picks
    return None
