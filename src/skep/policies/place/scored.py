"""Placements that give each node a score for a part of the job, and take the highest.

A part is a whole role of the job (`is_together`), or a single task. A job that must sit together and that no node could
hold is placed as by `consolidate`. Single tasks are scored if more than numbers of free GPUs matters; tasks that must
not share a GPU with each other are placed by preferred nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from skep.core.changes import Changes
from skep.core.cluster import UNLIMITED, WHOLE, Allocation, Slice, bits
from skep.core.job import amount_of
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.tasks import Task, Unit, fits_nodes, units_of
from skep.core.view import ClusterView, JobView, NodeView, PoolView
from skep.policies.place.base import Picks, Place, has_extras, has_tags, role_slice
from skep.policies.place.board import Board, Entry
from skep.policies.place.simple import Consolidate


class Largest(NamedTuple):
    """The most that any node of the cluster has, if its file states it; at least 1."""

    cpu_milli: int
    gpu_milli: int


class Boards:
    """The scores of the nodes of one cluster, for each kind of task."""

    def __init__(self) -> None:
        self.epoch = -1
        self.largest = Largest(1, 1)
        self.of: dict[Task, Board[int]] = {}

    def follow(self, changes: Changes, nodes: Sequence[NodeView]) -> None:
        if self.epoch != changes.epoch:
            self.epoch = changes.epoch
            self.of.clear()
            cpus = [node.spec.cpu_milli for node in nodes if node.spec.cpu_milli < UNLIMITED]
            gpus = max((node.gpu_count for node in nodes), default=0)
            self.largest = Largest(max(*cpus, 1, 1), max(gpus * WHOLE, 1))


class Scored(Place):
    """The node with the highest score, the lowest on ties."""

    is_together = True

    def __init__(self) -> None:
        self.boards: WeakKeyDictionary[Changes, Boards] = WeakKeyDictionary()
        self.large = Consolidate()

    def score(self, largest: Largest, node: NodeView, task: Task) -> Entry | None:
        """The score of the node for the task, and the GPUs that it would get; None if it does not fit. It must depend
        only on the node's books and on constants: it is computed again when these change."""
        raise NotImplementedError

    def keeps_together(self, job: JobView, now_s: float) -> bool:
        return self.is_together

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        return self.large.plain(cluster, pool, count, job)

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        return self.large.prefer(cluster, pool, job, among)

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        pools = cluster.pools_for(shape.gpu_types if shape.gpus else ())
        gpus_most = max((pool.size_max for pool in pools), default=0) if self.is_together else 1
        units = units_of(shape, gpus_most)
        if not self.is_together and (shape.is_plain or any(role.is_apart for role in shape.roles)):
            return super().seek(cluster, plan, job, shape, now_s)
        if self.is_together:
            is_held = fits_nodes(shape, gpus_most) and all(could_hold(pools, unit) for unit in units)
            if not is_held:
                return self.large.seek(cluster, plan, job, shape, now_s)
        while pools:
            mark = plan.mark()
            slices = self._reserve(cluster, plan, pools, job, shape, units)
            plan.rollback(mark)
            if len(slices) == len(units):
                return Allocation(tuple(slices), amount_of(shape))
            # All GPUs are of one type, unless the job may span several: the type that its first part prefers.
            first = next((cluster.nodes[piece.node].pool for piece in slices if piece.gpus), None)
            if first is None or shape.spans_types:
                return None
            pools = [pool for pool in pools if pool is not first]
        return None

    def _reserve(
        self,
        cluster: ClusterView,
        plan: Plan,
        pools: Sequence[PoolView],
        job: JobView,
        shape: Shape,
        units: tuple[Unit, ...],
    ) -> list[Slice]:
        """Place part after part, as many as fit; each sees the reservations of those before it."""
        slices: list[Slice] = []
        for number, unit in enumerate(units):
            task, role = unit.task, shape.roles[unit.role]
            board = self._board(cluster, task)
            among = 0
            for pool in pools if task.gpus else cluster.pools_for(()):
                among |= pool.up
            nearest = (
                self.choose(cluster, board, nodes, job, number, task) for nodes in self.near(cluster, slices, among)
            )
            found = next(filter(None, nearest), None)
            if found is None:
                break
            node = cluster.nodes[found[0]]
            piece = role_slice(node, role, unit.role, unit.tasks, found[1])
            slices.append(piece)
            if len(units) > 1:
                plan.reserve(Allocation((piece,), 0))
            if task.gpus and not shape.spans_types:
                pools = [node.pool]
        return slices

    def near(self, cluster: ClusterView, placed: list[Slice], among: int) -> Iterator[int]:
        """These nodes (bits), those nearest to the already placed parts of the job first."""
        yield among

    def choose(
        self, cluster: ClusterView, board: Board[int], among: int, job: JobView, number: int, task: Task
    ) -> tuple[int, int] | None:
        """(node, GPUs) for part `number` of the job among these nodes (bits)."""
        return board.best(among)

    def _board(self, cluster: ClusterView, task: Task) -> Board[int]:
        changes, nodes = cluster.changes(), cluster.nodes
        boards = self.boards.get(changes)
        if boards is None:
            boards = self.boards[changes] = Boards()
        boards.follow(changes, nodes)
        board = boards.of.get(task)
        if board is None:
            board = boards.of[task] = Board()
        board.follow(changes, nodes, lambda node: self.score(boards.largest, node, task))
        return board


def could_hold(pools: Sequence[PoolView], unit: Unit) -> bool:
    """True if an idle node could hold all of it; a single task has no other way."""
    task = unit.task
    return unit.tasks == 1 or any(
        node.gpu_count >= task.gpus
        and node.spec.cpu_milli >= task.cpu_milli
        and node.spec.memory_mib >= task.memory_mib
        and node.spec.gpu_mem_mib >= task.gpu_mem_mib
        and has_tags(node, task.tags)
        and all(count <= dict(node.spec.extras).get(name, 0) for name, count in task.extras)
        for pool in pools
        for node in pool.nodes
    )


def has_books(node: NodeView, task: Task) -> bool:
    is_enough = task.cpu_milli <= node.cpu_free and task.memory_mib <= node.memory_free
    return is_enough and has_tags(node, task.tags) and has_extras(node, task.extras)


def roomy_parts(node: NodeView, task: Task) -> list[tuple[int, int]]:
    """(thousandths left, GPU) of the shared GPUs with enough left for the task, fullest first."""
    found = [(left, gpu) for gpu, left in node.parts() if left >= task.milli]
    if task.gpu_mem_mib:
        found = [entry for entry in found if node.memory_left(entry[1]) >= task.gpu_mem_mib]
    return sorted(found)


def tightest(node: NodeView, task: Task) -> int | None:
    """The GPUs with the least that suffices; None if the node has not enough."""
    if not has_books(node, task):
        return None
    if not task.gpus:
        return 0
    if task.milli == WHOLE:
        if node.free < task.gpus or node.free_with(task.gpu_mem_mib).bit_count() < task.gpus:
            return None
        return node.pick(task.gpus, task.gpu_mem_mib)
    order = [gpu for _, gpu in roomy_parts(node, task)]
    if len(order) < task.gpus:
        order += bits(node.free_with(task.gpu_mem_mib))
    return mask_of(order[: task.gpus]) if len(order) >= task.gpus else None


def roomiest(node: NodeView, task: Task, uses: Sequence[int] = ()) -> int | None:
    """The GPUs with the most left; of shared ones, if `uses` are given, those with the lowest."""
    if not task.is_share:
        return tightest(node, task)
    if not has_books(node, task):
        return None
    order = list(bits(node.free_with(task.gpu_mem_mib)))
    if len(order) < task.gpus:
        parts = roomy_parts(node, task)
        order += [gpu for _, gpu in sorted(parts, key=lambda part: (uses[part[1]] if uses else -part[0], part[1]))]
    return mask_of(order[: task.gpus]) if len(order) >= task.gpus else None


def mask_of(gpus: Sequence[int]) -> int:
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


def left_milli(node: NodeView) -> int:
    """Thousandths of all its GPUs that are left."""
    return node.free * WHOLE + sum(left for _, left in node.parts())
