"""Fragmentation gradient descent (Weng et al., "Beware of Fragmentation", ATC'23)."""

from __future__ import annotations

import math

from skep.core.cluster import WHOLE
from skep.core.fragments import Fragments, Typical
from skep.core.tasks import Task
from skep.core.view import NodeView
from skep.policies.place.board import Entry
from skep.policies.place.scored import Largest, Scored, has_books, roomy_parts, tightest


class Fgd(Scored):
    """Where the part of the idle GPUs that other jobs cannot use grows least, measured by typical tasks: in
    simulations and `skep fill` those of the trace. A server provides none yet: all nodes are then equal, and the
    lowest is taken."""

    name = "fgd"

    def __init__(self, typical: Typical | None = None) -> None:
        super().__init__()
        self.fragments = Fragments(typical or Typical())

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
