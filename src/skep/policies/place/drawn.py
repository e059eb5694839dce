"""Random placement."""

from __future__ import annotations

from collections.abc import Iterator

from skep.core.chance import draw
from skep.core.cluster import bits, lowest_bits
from skep.core.tasks import Task
from skep.core.view import ClusterView, JobView, NodeView, PoolView
from skep.policies.place.base import Picks, nodes_of
from skep.policies.place.board import Board, Entry
from skep.policies.place.scored import Largest, Scored, mask_of, roomy_parts, tightest


class Random(Scored):
    """Each task goes to a random node that fits; the draw follows from (seed, job, launch, task)."""

    name = "random"
    is_together = False

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        """All nodes that fit are equal."""
        mask = tightest(node, task)
        return None if mask is None else (0, mask)

    def choose(
        self, cluster: ClusterView, board: Board[int], among: int, job: JobView, number: int, task: Task
    ) -> tuple[int, int] | None:
        nodes = list(bits(board.nodes_of.get(0, 0) & among))
        if not nodes:
            return None
        drawn = draw(self.seed, job.seq, job.launches, number)
        index = nodes[drawn % len(nodes)]
        mask = board.entries[index][1]
        if task.is_share:
            node = cluster.nodes[index]
            free = node.free_with(task.gpu_mem_mib)
            shared = [gpu for _, gpu in roomy_parts(node, task)]
            picked = sorted([*shared, *bits(free)], key=lambda gpu: draw(drawn, gpu))[: task.gpus]
            # Idle GPUs are interchangeable: the lowest of the drawn ones are taken.
            mask = mask_of([gpu for gpu in picked if gpu in shared])
            mask |= lowest_bits(free, task.gpus - mask.bit_count())
        return index, mask

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        left = {index: cluster.nodes[index].free for index in bits(pool.up ^ pool.by_free[0])}
        picked: dict[int, int] = {}
        for task in range(count):
            roomy = list(left)
            index = roomy[draw(self.seed, job.seq, job.launches, task) % len(roomy)]
            picked[index] = picked.get(index, 0) + 1
            left[index] -= 1
            if not left[index]:
                del left[index]
        return [(cluster.nodes[index], tasks) for index, tasks in sorted(picked.items())]

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        nodes = list(nodes_of(cluster, among))
        nodes.sort(key=lambda node: draw(self.seed, job.seq, job.launches, node.index))
        return iter(nodes)
