"""Lucid's profiling partition (Hu et al., "Lucid", ASPLOS'23): a few nodes on which new jobs run for a short time.

The partition is the first nodes that are up, and one more while many jobs wait for it; at most half of the nodes. A job
of few GPUs that has never run begins there (`adjust/profile.py` starts it, and resizes the partition). All other jobs
are placed on the other nodes, unless they fit only with the partition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator

import msgspec

from skep.core.cluster import Allocation, Slice
from skep.core.memory import Of, Slot
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.refusal import listed
from skep.core.view import ClusterView, JobView, NodeView, View
from skep.policies.adjust.sizes import on_node
from skep.policies.place.around import Around
from skep.policies.place.base import Place


class ExtraNode(msgspec.Struct, frozen=True, array_like=True):
    """The node by which the partition has grown."""

    name: str


EXTRA = Slot("profiling node", ExtraNode, Of.ALL)


class Partition(Around):
    """`nodes` for profiling, for jobs of up to `gpus_max` GPUs; the inner placement is for the other nodes."""

    name = "partition"

    def __init__(self, beneath: Place, *, nodes: int, gpus_max: int) -> None:
        super().__init__(beneath)
        self.count = nodes
        self.gpus_max = gpus_max
        self.is_trial = False
        """True while a job is explained: new jobs are placed where `adjust/profile.py` would start them."""

    def attach(self, view: View) -> None:
        self.view = view
        self.blank = view.blank()
        self.trial = self.blank.new_plan()
        extra = EXTRA.get(view.memory)
        self.extra = "" if extra is None else extra.name
        """The node by which it has grown, from the memory."""
        self._fits: dict[Hashable, bool] = {}
        self._fits_node: dict[Shape, bool] = {}
        self._divides = bool(self.nodes(self.blank.cluster))
        """True if there are enough nodes for a partition."""
        super().attach(view)

    def nodes(self, cluster: ClusterView) -> list[NodeView]:
        """The profiling partition."""
        there = [node for node in cluster.nodes if node.gpu_count and node.is_up] if self.count else []
        most = len(there) // 2
        found = there[: min(self.count, most)]
        if self.extra and len(found) < most:
            found += [node for node in there[len(found) :] if node.name == self.extra]
        return found

    def grow(self, plan: Plan) -> bool:
        """Grow by the node with the most free GPUs, the lowest on ties. False if it has grown, or no node may join."""
        there = [node for node in self.view.cluster.nodes if node.gpu_count and node.is_up]
        nodes = self.nodes(self.view.cluster)
        others = [node for node in there if node not in nodes and node.free]
        if self.extra or len(nodes) >= len(there) // 2 or not others:
            return False
        self._resize(plan, max(others, key=lambda node: (node.free, -node.index)).name)
        return True

    def is_extra_idle(self) -> bool:
        """True if the partition has grown, and nothing runs on that node; or the node is not in it any more."""
        node = next((node for node in self.nodes(self.view.cluster) if node.name == self.extra), None)
        return bool(self.extra) and (node is None or node.free == node.gpu_count)

    def shrink(self, plan: Plan) -> None:
        self._resize(plan, "")

    def _resize(self, plan: Plan, extra: str) -> None:
        self.extra = extra
        plan.remember(EXTRA, "", ExtraNode(extra) if extra else None)
        self._fits.clear()

    def is_new(self, job: JobView) -> bool:
        """True if the job is to be profiled: it has never run, is small, and fits on a node. That does not depend on
        which nodes are up or in the partition, because jobs are queued by it."""
        shape = job.shapes[0]
        if job.launches or not 0 < shape.gpus <= self.gpus_max:
            return False
        fits = self._fits_node.get(shape)
        if fits is None:
            nodes = self.blank.cluster.nodes
            fits = self._fits_node[shape] = self._divides and any(self.hosts(node, shape) for node in nodes)
        return fits

    def awaits_profiling(self, job: JobView) -> bool:
        """True if a new job waits for the present partition. If that has no node for it, it begins elsewhere."""
        shape = job.shapes[0]
        return self.is_new(job) and any(self.hosts(node, shape) for node in self.nodes(self.view.cluster))

    def hosts(self, node: NodeView, shape: Shape) -> bool:
        """True if an idle node can hold all of such a job."""
        if shape.gpu_types and node.pool.gpu_type not in shape.gpu_types:
            return False
        return on_node(self.blank.cluster.nodes[node.index], shape) is not None

    def room(self, plan: Plan, shape: Shape, nodes: list[NodeView]) -> Allocation | None:
        """For a new job on these nodes of the partition."""
        rooms = (on_node(node, shape) for node in nodes if node.free and self.hosts(node, shape))
        return next((room for room in rooms if room is not None and plan.allows(room)), None)

    @contextlib.contextmanager
    def trials(self) -> Iterator[None]:
        self.is_trial = True
        try:
            yield
        finally:
            self.is_trial = False

    def reach(self, job: JobView, shape: Shape, free: int) -> tuple[int, str]:
        nodes = self.nodes(self.view.cluster)
        names = f"node{'s' if len(nodes) > 1 else ''} {listed([node.name for node in nodes])}"
        if self.awaits_profiling(job):
            there = sum(node.free for node in nodes if self.hosts(node, shape))
            return there, f" on {names}, where new jobs are profiled first"
        if not nodes or not self._fits_outside(job, shape):
            return free, ""
        pools = self.view.cluster.pools_for(shape.gpu_types)
        kept = sum(node.free for node in nodes if node.pool in pools)
        return free - kept, f", {kept} more on {names}, where new jobs are profiled" if kept else ""

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        if cluster is self.view.cluster and self.awaits_profiling(job):
            return self.room(plan, shape, self.nodes(cluster)) if self.is_trial else None
        found = self._outside(cluster, plan, job, shape, now_s)
        if found is None and (cluster is self.blank.cluster or not self._fits_outside(job, shape)):
            found = self.beneath.seek(cluster, plan, job, shape, now_s)
        return found

    def _outside(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        """On the other nodes: what is left of the GPUs of the partition counts as taken."""
        mark = plan.mark()
        for node in self.nodes(cluster):
            parts = [Slice(node.index, 1 << gpu, milli=left) for gpu, left in node.parts() if left]
            whole = [Slice(node.index, node.free_mask)] if node.free_mask else []
            if whole or parts:
                plan.reserve(Allocation((*whole, *parts), 0))
        found = self.beneath.seek(cluster, plan, job, shape, now_s)
        plan.rollback(mark)
        return found

    def _fits_outside(self, job: JobView, shape: Shape) -> bool:
        """True if the other nodes could hold the job if they were idle."""
        kind = (shape, self.beneath.key(job, self.view.now_s))
        fits = self._fits.get(kind)
        if fits is None:
            found = self._outside(self.blank.cluster, self.trial, job, shape, self.view.now_s)
            fits = self._fits[kind] = found is not None
        return fits

    def key(self, job: JobView, now_s: float) -> Hashable:
        return (self.beneath.key(job, now_s), self.is_new(job))
