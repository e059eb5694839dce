"""Topology-aware placement (Amaral et al., SC'17): the communication graph is mapped onto the graph of GPUs.

All tasks of a job communicate with each other (all-reduce), so a bi-partition of the job cuts least if one side is as
large as its half of the hardware allows. The hardware is halved repeatedly along its cells, racks above nodes, sockets
and switches within them: a job goes into the smallest cell that can hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skep.core.cluster import WHOLE, Allocation, Cell, Slice, bits, lowest_bits
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.tasks import Task
from skep.core.view import ClusterView, JobView, NodeView, PoolView
from skep.policies.place.base import nodes_of, plain_allocation
from skep.policies.place.board import Entry
from skep.policies.place.gated import fewest_nodes
from skep.policies.place.scored import Largest, Scored, has_books, mask_of, roomy_parts


class Topology(Scored):
    """The GPUs that are nearest to each other, with few neighbours, on the node with the least left idle (Amaral).

    Roles of a job are placed near each other; a job larger than a node within one rack if possible.
    """

    name = "topology"

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        if not has_books(node, task):
            return None
        if not task.gpus:
            return 0, 0
        mask = self._gpus(node, task)
        return None if mask is None else (int(WHOLE * utility(node, mask, task)), mask)

    def _gpus(self, node: NodeView, task: Task) -> int | None:
        free = node.free_with(task.gpu_mem_mib)
        if task.is_share:
            shared = mask_of([gpu for _, gpu in roomy_parts(node, task)])
            free = shared if shared.bit_count() >= task.gpus else shared | free
        return map_onto(node.cell, free, task.gpus) if free.bit_count() >= task.gpus else None

    def near(self, cluster: ClusterView, placed: list[Slice], among: int) -> Iterator[int]:
        if placed:
            used = mask_of([piece.node for piece in placed])
            yield used & among
            yield in_the_racks_of(cluster, used) & among
        yield among

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        if shape.is_plain:
            for pool in cluster.pools_for(shape.gpu_types):
                if shape.gpus > pool.size_max > 0 and len(pool.racks) > 1:
                    found = in_one_rack(cluster, pool, shape.gpus)
                    if found is not None:
                        return found
        return super().seek(cluster, plan, job, shape, now_s)


def map_onto(cell: Cell, free: int, count: int) -> int:
    """This many of these GPUs (bits): all in one cell below this one if possible, the smallest that suffices; else as
    many as possible in one of them, and the rest again in one of the others."""
    free &= cell.mask
    if count == free.bit_count() or not cell.children:
        return lowest_bits(free, count)
    parts = [(child, child.mask & free) for child in cell.children if child.mask & free]
    enough = [part for part in parts if part[1].bit_count() >= count]
    if enough:
        child, mask = min(enough, key=lambda part: part[1].bit_count())
        return map_onto(child, mask, count)
    _, mask = max(parts, key=lambda part: part[1].bit_count(), default=(cell, 0))
    if not mask:
        return lowest_bits(free, count)
    return mask | map_onto(cell, free & ~mask, count - mask.bit_count())


def utility(node: NodeView, mask: int, task: Task) -> float:
    """Between 0 and 1, each a third: how near the GPUs are to each other, how few other jobs are on the node, and how
    little of the node stays idle."""
    whole = node.gpu_count
    beside = whole - mask.bit_count()
    busy = whole - node.free - (mask & ~node.free_mask).bit_count()
    idle = node.free - (mask & node.free_mask).bit_count()
    return (nearness(node.cell, mask) + (1 - busy / beside if beside else 1.0) + 1 - idle / whole) / 3


def nearness(cell: Cell, mask: int) -> float:
    """1 for GPUs of one innermost cell, 0 if all pairs lie in different outermost cells."""
    count = mask.bit_count()
    if count < 2 or not cell.children:
        return 1.0
    depth, apart, level = 0, 0, [cell]
    while level := [child for each in level for child in each.children]:
        depth += 1
        together = sum((child.mask & mask).bit_count() * ((child.mask & mask).bit_count() - 1) for child in level)
        apart += count * (count - 1) - together
    return 1 - apart / (depth * count * (count - 1))


def in_the_racks_of(cluster: ClusterView, nodes: int) -> int:
    """The nodes (bits) directly below the same cells as these."""
    found = 0
    for pool in cluster.pools:
        for rack, members in pool.racks.items():
            if rack is not None and any(cluster.nodes[index].cell.parent is rack for index in bits(nodes)):
                found |= members
    return found


def in_one_rack(cluster: ClusterView, pool: PoolView, count: int) -> Allocation | None:
    """On as few nodes of one rack as the job needs, in the rack with the least free that suffices."""
    racks: Sequence[int] = [mask & pool.up for mask in pool.racks.values()]
    fewest = -(-count // pool.size_max)
    for mask in sorted(racks, key=lambda mask: sum(node.free for node in nodes_of(cluster, mask))):
        picks = fewest_nodes(cluster, pool, mask, count)
        if picks is not None and len(picks) == fewest:
            return plain_allocation(picks, count)
    return None
