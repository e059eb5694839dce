"""How much of the idle GPUs no job could use: the measure of "Beware of Fragmentation" (Weng et al., ATC'23).

For a node and a typical task: if the node cannot run the task, or the task needs no GPU, everything idle on the node's
GPUs is a fragment; otherwise only the GPUs with less left than the task needs of each. The measure of a node is the
average over the typical tasks, weighted by their frequency. It depends only on the GPU type, the free CPUs and what is
left of the GPUs, so the result is cached by these. All numbers are integers (thousandths of GPUs times the number of
typical tasks), so that equal states compare as equal.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

import msgspec

from skep.core.allocation import WHOLE
from skep.core.model import Shape
from skep.core.tasks import Task, units_of
from skep.core.view import NodeView

COVERED = 0.95
"""The most frequent classes of tasks that together make up this part of all tasks count as typical."""


class Typical(msgspec.Struct, frozen=True):
    """Typical tasks, most frequent first, and the number of each."""

    tasks: tuple[tuple[Task, int], ...] = ()

    @property
    def count(self) -> int:
        return sum(count for _, count in self.tasks)


def typical_tasks(shapes: Iterable[Shape], gpus_most: int) -> Typical:
    """The most frequent classes (CPUs, GPUs, part of each, types) of what these jobs need on one node, up to 95% of
    all."""
    counts: dict[Shape, int] = {}
    for shape in shapes:
        counts[shape] = counts.get(shape, 0) + 1
    classes: dict[Task, int] = {}
    for shape, count in counts.items():
        for unit in units_of(shape, gpus_most):
            asked = unit.task
            task = Task(asked.gpus, asked.milli, asked.cpu_milli, gpu_types=asked.gpu_types)
            classes[task] = classes.get(task, 0) + count
    ranked = sorted(classes.items(), key=lambda item: (-item[1], *msgspec.structs.astuple(item[0])))
    total, covered = sum(classes.values()), 0
    found = []
    for task, count in ranked:
        if covered >= COVERED * total:
            break
        found.append((task, count))
        covered += count
    return Typical(tuple(found))


class Level(msgspec.Struct, frozen=True):
    """The typical tasks for nodes of one GPU type whose free CPUs lie in one interval."""

    lost: int
    """The number of tasks that such a node cannot run, whatever its GPUs."""
    whole: tuple[tuple[int, int], ...]
    """(GPUs, number of tasks that need this many)"""
    shared: tuple[tuple[int, int, int], ...]
    """(thousandths, GPUs, number of tasks that need such parts of this many)"""

    def fragment(self, free: int, parts: tuple[int, ...]) -> int:
        shared = sum(parts)
        total = free * WHOLE + shared
        found = self.lost * total
        for gpus, count in self.whole:
            found += count * (shared if free >= gpus else total)
        for milli, gpus, count in self.shared:
            at = bisect.bisect_left(parts, milli)
            found += count * (sum(parts[:at]) if free + len(parts) - at >= gpus else total)
        return found


class Fragments:
    """The measure for given typical tasks. Results are cached."""

    KEPT_MOST = 500_000

    def __init__(self, typical: Typical) -> None:
        self.typical = typical
        self.scale = max(typical.count, 1)
        """Divide the measure of a node by this to get thousandths of GPUs."""
        self._steps: dict[str, list[int]] = {}
        self._levels: dict[tuple[str, int], Level] = {}
        self._found: dict[tuple[str, int, int, tuple[int, ...]], int] = {}

    def of(self, gpu_type: str, cpu_free: int, free: int, parts: tuple[int, ...] = ()) -> int:
        """The measure of a node with this many idle GPUs and, ascending, this much left of each shared one."""
        steps = self._steps.get(gpu_type)
        if steps is None:
            steps = self._steps[gpu_type] = sorted({task.cpu_milli for task, _ in self._wanting(gpu_type)})
        key = (gpu_type, bisect.bisect_right(steps, cpu_free), free, parts)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= self.KEPT_MOST:
                self._found.clear()
            found = self._found[key] = self._level(gpu_type, key[1], cpu_free).fragment(free, parts)
        return found

    def of_node(self, node: NodeView) -> int:
        """The measure of a node in its present state."""
        parts = tuple(sorted(left for _, left in node.parts() if left)) if node.free < node.gpu_count else ()
        return self.of(node.spec.gpu_type, node.cpu_free, node.free, parts)

    def _wanting(self, gpu_type: str) -> list[tuple[Task, int]]:
        return [
            (task, count)
            for task, count in self.typical.tasks
            if task.gpus and (not task.gpu_types or gpu_type in task.gpu_types)
        ]

    def _level(self, gpu_type: str, step: int, cpu_free: int) -> Level:
        level = self._levels.get((gpu_type, step))
        if level is None:
            whole: dict[int, int] = {}
            shared: dict[tuple[int, int], int] = {}
            served = 0
            for task, count in self._wanting(gpu_type):
                if task.cpu_milli <= cpu_free:
                    served += count
                    if task.is_share:
                        shared[task.milli, task.gpus] = shared.get((task.milli, task.gpus), 0) + count
                    else:
                        whole[task.gpus] = whole.get(task.gpus, 0) + count
            parts = tuple((milli, gpus, count) for (milli, gpus), count in shared.items())
            level = Level(self.typical.count - served, tuple(whole.items()), parts)
            self._levels[gpu_type, step] = level
        return level
