"""Fragmentation gradient descent (Weng et al., "Beware of Fragmentation", ATC'23)."""

from __future__ import annotations

import math

from skep.core.cluster import WHOLE, Allocation
from skep.core.fragments import Fragments, Typical, typical_tasks
from skep.core.knowledge import KnowledgeView
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.requests import SPARE, Requests
from skep.core.tasks import Task
from skep.core.view import ClusterView, JobView, NodeView, View
from skep.policies.place.board import Entry
from skep.policies.place.scored import Largest, Scored, has_books, roomy_parts, tightest


class Fgd(Scored):
    """Where the part of the idle GPUs that other jobs cannot use grows least, measured by typical tasks: in
    simulations and `skep fill` those of the trace, in a server those of the latest 10,000 jobs."""

    name = "fgd"

    def __init__(self, typical: Typical | None = None) -> None:
        super().__init__()
        self.fragments = Fragments(typical or Typical())
        self.learns = typical is None
        self.known: KnowledgeView | None = None
        self.learned_of = 0
        """The number of submitted jobs by which typical tasks were worked out."""

    def attach(self, view: View) -> None:
        super().attach(view)
        self.known = view.knowledge
        self.learned_of = 0

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        if self.learns and self.known is not None:
            self._learn(cluster, self.known.requests)
        return super().seek(cluster, plan, job, shape, now_s)

    def _learn(self, cluster: ClusterView, requests: Requests) -> None:
        count = settled(requests.count)
        if count != self.learned_of:
            gpus_most = max((pool.size_max for pool in cluster.pools), default=0)
            self.fragments = Fragments(typical_tasks(requests.shapes(count), gpus_most))
            self.boards.clear()
            self.learned_of = count

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        if not has_books(node, task):
            return None
        parts = sorted(left for _, left in node.parts())
        before = self._measure(node, 0, node.free, parts)
        if task.is_share and task.gpus == 1:
            return self._best_gpu(node, task, before, parts)
        mask = tightest(node, task)
        if mask is None:
            return None
        whole = mask & node.free_mask
        after = list(parts)
        for gpu, left in node.parts():
            if mask >> gpu & 1:
                after.remove(left)
                after.append(left - task.milli)
        if task.is_share:
            after += [WHOLE - task.milli] * whole.bit_count()
        return self._points(before - self._measure(node, task.cpu_milli, node.free - whole.bit_count(), after)), mask

    def _best_gpu(self, node: NodeView, task: Task, before: int, parts: list[int]) -> Entry | None:
        """A part of one GPU: the GPU where the measure grows least, the lowest on ties."""
        choices = {}
        for left, gpu in roomy_parts(node, task):
            if left not in choices:
                at = parts.index(left)
                after = [*parts[:at], *parts[at + 1 :], left - task.milli]
                choices[left] = (self._points(before - self._measure(node, task.cpu_milli, node.free, after)), -gpu)
        free = node.free_with(task.gpu_mem_mib)
        if free:
            after = [*parts, WHOLE - task.milli]
            points = self._points(before - self._measure(node, task.cpu_milli, node.free - 1, after))
            choices[WHOLE] = (points, 1 - (free & -free).bit_length())
        if not choices:
            return None
        points, gpu = max(choices.values())
        return points, 1 << -gpu

    def _measure(self, node: NodeView, cpu_milli: int, free: int, parts: list[int]) -> int:
        left = tuple(sorted(filter(None, parts)))
        return self.fragments.of(node.spec.gpu_type, node.cpu_free - cpu_milli, free, left)

    def _points(self, gain: int) -> int:
        """From 0 to 100; 50 if nothing is gained or lost."""
        return int(100 / (1 + math.exp(-gain / (WHOLE * self.fragments.scale))))


def settled(count: int) -> int:
    """The number of jobs by which typical tasks are worked out when so many have been submitted. Up to a tenth of them,
    at most `SPARE`, is left out, so that not every job changes what is typical."""
    return count - count % min(max(count // 10, 1), SPARE)
