"""The placements that FGD was compared with (Weng et al., ATC'23), and similar ones. Scores are whole numbers up to
100, as there: nodes that are nearly the same are equal, and the lowest of them is taken."""

from __future__ import annotations

from skep.core.cluster import WHOLE, bits
from skep.core.needs import Need
from skep.core.share import Tenant
from skep.core.tasks import Task
from skep.core.view import ClusterView, JobView, NodeView, PoolView, View
from skep.policies.place.base import Picks
from skep.policies.place.board import Entry
from skep.policies.place.scored import Largest, Scored, left_milli, roomiest, tightest
from skep.policies.place.simple import fill

BEST = 100


class DotProduct(Scored):
    """The smallest product of free and requested resources, over CPUs and GPUs (Tetris, as in FGD)."""

    name = "dot-product"

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        mask = tightest(node, task)
        if mask is None:
            return None
        cpus, gpus = largest
        cpu_part = min(node.cpu_free / cpus, 1.0) * min(task.cpu_milli / cpus, 1.0)
        gpu_part = left_milli(node) / gpus * task.total_milli / gpus
        return int(BEST * (1 - (cpu_part + gpu_part) / 2)), mask


class BestFit(Scored):
    """Each task goes to the fullest node that fits, so that large free spaces remain; a gang may span nodes. If CPUs or
    parts of GPUs are requested too: the node that would keep the fewest CPUs and GPUs, and its fullest GPU."""

    name = "best-fit"
    is_together = False

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        return fill(self.prefer(cluster, pool, job, pool.up ^ pool.by_free[0]), count)

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        mask = tightest(node, task)
        return None if mask is None else (int(BEST * (1 - kept(largest, node, task))), mask)


class WorstFit(Scored):
    """The node that would keep the most CPUs and GPUs, and its emptiest GPUs."""

    name = "worst-fit"

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        mask = roomiest(node, task)
        return None if mask is None else (int(BEST * kept(largest, node, task)), mask)


def kept(largest: Largest, node: NodeView, task: Task) -> float:
    """What would be left of the node, relative to the largest one: CPUs and GPUs have equal weight."""
    cpus, gpus = largest
    cpu_part = min((node.cpu_free - task.cpu_milli) / cpus, 1.0)
    return (cpu_part + (left_milli(node) - task.total_milli) / gpus) / 2


class GpuPacking(Scored):
    """Shared GPUs that fit first, the fullest of them; then idle GPUs of nodes in use; then idle nodes."""

    name = "gpu-packing"

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        mask = tightest(node, task)
        if mask is None or not task.gpus:
            return None if mask is None else (0, mask)
        if node.free == node.gpu_count:
            return max(BEST // 3 - node.free, 0), mask
        idle = (mask & node.free_mask).bit_count()
        if idle:
            return max(BEST // 2 - idle, BEST // 3), mask
        left = sum(left * 100 // WHOLE for gpu, left in node.parts() if mask >> gpu & 1)
        return max(BEST - left // 10, BEST // 2), mask


class GpuClustering(Scored):
    """Nodes with only jobs of the same size; then those that have others too; then idle ones; then the rest."""

    name = "gpu-clustering"

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        mask = tightest(node, task)
        if mask is None or not task.gpus:
            return None if mask is None else (0, mask)
        gpus = largest.gpu_milli
        return BEST // 4 * (gpus - left_milli(node)) // gpus + BEST // 4 * standing(node, task), mask


def standing(node: NodeView, task: Task) -> int:
    """3: only jobs with the same number of GPUs, 2: also such jobs, 1: idle, 0: only others. A part of a GPU counts as
    a size of its own."""
    sizes = set(node.sizes())
    if not sizes:
        return 1
    size = 0 if task.is_share else task.gpus
    return (3 if len(sizes) == 1 else 2) if size in sizes else 0


class LeastUtilised(Scored):
    """The GPUs with the lowest use, then the node with the lowest use (AntMan for opportunistic jobs). A job uses what
    was measured for its model, at most its limit; what it has booked if nothing was."""

    name = "least-utilised"
    needs = frozenset({Need.THROUGHPUT})

    def __init__(self) -> None:
        super().__init__()
        self.view: View | None = None

    def attach(self, view: View) -> None:
        self.view = view

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        uses = [sum(map(self._use, node.tenants(gpu))) for gpu in range(node.gpu_count)]
        mask = roomiest(node, task, uses)
        if mask is None:
            return None
        used = sum(uses[gpu] for gpu in bits(mask))
        total = node.gpu_count * WHOLE
        return -(used * (BEST + 1) + (BEST * sum(uses) // total if total else 0)), mask

    def _use(self, tenant: Tenant) -> int:
        """In thousandths of a GPU."""
        job = self.view.open_jobs.get(tenant.owner) if self.view is not None else None
        known = self.view.knowledge.use(job.spec.model) if self.view is not None and job is not None else None
        if known is None:
            return tenant.milli
        return min(round(max(known) * WHOLE), tenant.limit or tenant.milli)


class Affinity(Scored):
    """Gandiva: nodes with jobs of the same size, then idle ones, then others; the least loaded of each."""

    name = "affinity"

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        mask = tightest(node, task)
        if mask is None:
            return None
        rank = (0, 1, 2, 2)[standing(node, task)] if task.gpus else 0
        return rank * BEST - height(node), mask


def height(node: NodeView) -> int:
    """The requested GPUs relative to those of the node, rounded up; parts of a GPU count as one."""
    asked = sum(size or 1 for size in node.sizes())
    return -(-asked // node.gpu_count) if node.gpu_count else 0
