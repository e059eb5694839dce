"""Profiling (Lucid, ASPLOS'23): new jobs begin on the profiling partition, for a short time.

The job with the fewest GPUs goes first. A job that ends within the time is finished there; any other is stopped and
queued for the other nodes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.sizes import on_node
from skep.policies.estimate.duration import Duration
from skep.policies.order.simple import Shortest
from skep.policies.place.partition import Partition


class PredictedService(Shortest):
    """Least predicted duration × GPUs first; jobs that are to be profiled are in a line of their own."""

    def __init__(self, estimate: Duration, partition: Partition) -> None:
        super().__init__(estimate, by_size=True)
        self.partition = partition

    def group(self, job: JobView) -> Hashable:
        return "new" if self.partition.is_new(job) else ""


class ProfilingPartition:
    """Starts new jobs on the partition for `limit_s`."""

    name = "profile"
    needs: frozenset[Need] = frozenset()

    def __init__(self, partition: Partition, *, limit_s: float) -> None:
        self.partition = partition
        self.limit_s = limit_s

    def attach(self, view: View) -> None:
        pass

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        nodes = self.partition.nodes(view.cluster)
        if any(node.free for node in nodes):
            new = [job for job in walked.pending_jobs() if self.partition.awaits_profiling(job)]
            for job in sorted(new, key=lambda job: (job.rank, job.gpu_count, job.seq)):
                shape = job.spec.shapes[0]
                rooms = (on_node(node, shape) for node in nodes if self.partition.hosts(node, shape))
                found = next((room for room in rooms if room is not None and plan.allows(room)), None)
                if found is not None:
                    plan.start(job, found, until_s=view.now_s + self.limit_s)
        return math.inf
