"""Profiling (Lucid, ASPLOS'23): new jobs begin on the profiling partition, for a short time.

The job with the fewest GPUs goes first. A job that ends within the time is finished there; any other is stopped and
queued for the other nodes. The partition grows by one node if more than ten jobs wait for it. It gives the node back if
fewer than five wait, the node is idle and the expected load is low. These numbers are those of the authors' simulator.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from skep.core.job import JobState
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.estimate.duration import Duration
from skep.policies.estimate.load import forecast
from skep.policies.order.simple import Shortest
from skep.policies.place.partition import Partition

GROWS_ABOVE, SHRINKS_BELOW = 10, 5
"""Jobs that wait to be profiled."""

LOW_LOAD = 5
"""GPUs submitted in ten minutes for each node of the partition and each GPU of the largest job that is profiled."""

LOOK_S = 100.0
"""How often the load is looked at while the partition is larger."""


class PredictedService(Shortest):
    """Least predicted duration × GPUs first; jobs that are to be profiled are in a line of their own."""

    has_groups = True

    def __init__(self, estimate: Duration, partition: Partition) -> None:
        super().__init__(estimate, by_size=True)
        self.partition = partition

    def group(self, job: JobView) -> Hashable:
        return "new" if self.partition.is_new(job) else ""

    def aside(self, job: JobView) -> int | None:
        return job.gpu_count if self.partition.awaits_profiling(job) else None


class ProfilingPartition:
    """Starts new jobs on the partition for `limit_s`, and resizes it by how many wait and how much work comes."""

    name = "profile"
    needs: frozenset[Need] = frozenset()

    def __init__(self, partition: Partition, *, limit_s: float) -> None:
        self.partition = partition
        self.limit_s = limit_s
        self.low_gpus = LOW_LOAD * partition.count * partition.gpus_max
        """A load of so many GPUs in ten minutes, or less, is low."""

    def attach(self, view: View) -> None:
        pass

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        if not self.partition.count:
            return math.inf
        waiting = self._start_new(view, plan, walked)
        if waiting > GROWS_ABOVE and self.partition.grow(plan):
            self._start_new(view, plan, walked)
            walked.walk_again()
        elif waiting < SHRINKS_BELOW and self.partition.is_extra_idle():
            if forecast(view).gpus > self.low_gpus:
                return view.now_s + LOOK_S
            self.partition.shrink(plan)
            walked.walk_again()
        return math.inf

    def _start_new(self, view: View, plan: Plan, walked: Walked) -> int:
        """Returns how many jobs still wait to be profiled."""
        nodes = self.partition.nodes(view.cluster)
        pending = (job for job in walked.pending_jobs() if job.state is JobState.PENDING)
        new = [job for job in pending if self.partition.awaits_profiling(job)]
        waiting = 0
        for job in sorted(new, key=lambda job: (job.rank, job.gpu_count, job.seq)):
            found = self.partition.room(plan, job.shapes[0], nodes)
            if found is not None:
                plan.start(job, found, until_s=view.now_s + self.limit_s)
            else:
                waiting += 1
        return waiting
