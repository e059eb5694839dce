"""Placements that examine the tenants of a GPU, for jobs that share it in a mode.

Each task of such a job goes to the GPUs that `judge` ranks first, one task after the other. Jobs that do not share are
placed by the inner placement.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from skep.core.changes import Changes
from skep.core.cluster import Allocation, Slice, bits
from skep.core.job import amount_of
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Plan
from skep.core.share import Share
from skep.core.view import ClusterView, JobView, NodeView, PoolView, View
from skep.policies.place.around import Around
from skep.policies.place.base import Place, has_books, role_slice
from skep.policies.place.board import Board

KINDS_MAX = 256
"""The number of kinds of tasks for which nodes are indexed at a time."""

Boards = WeakKeyDictionary[Changes, dict[tuple[Role, Share | None, str], Board[tuple[int, ...]]]]
"""For each cluster, by role, the job's sharing options and, if that matters, its model."""


class Verdict(NamedTuple):
    """The rank of a GPU for a task; lower ranks are better."""

    rank: tuple[int, ...]
    group: str = ""
    """The share group that the task would join; empty: one of its own."""
    slot: int = 0
    """Where its MIG instance would begin."""


class Beside(Around):
    """Jobs that share beside each other; all others by the inner placement."""

    def __init__(self, beneath: Place) -> None:
        super().__init__(beneath)
        self.boards: Boards = WeakKeyDictionary()

    def attach(self, view: View) -> None:
        self.boards.clear()
        super().attach(view)

    @abstractmethod
    def shares(self, job: JobSpec) -> bool:
        """True if the job is to share GPUs."""

    def is_indexed(self, job: JobView) -> bool:
        """True if `judge` depends only on the books of the node, the role and the job's sharing options: then only
        changed nodes are judged again."""
        return False

    @abstractmethod
    def judge(self, job: JobView, role: Role, node: NodeView, gpu: int) -> Verdict | None:
        """The rank of this GPU for a task of the role; None if it does not fit or the tenants are incompatible."""

    @abstractmethod
    def terms(self, job: JobSpec, piece: Slice, verdict: Verdict) -> Slice:
        """The slice with its share mode and terms, on a GPU with this verdict."""

    def key(self, job: JobView, now_s: float) -> Hashable:
        return (self.beneath.key(job, now_s), job.spec.share)

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        if not self.shares(job.spec):
            return self.beneath.seek(cluster, plan, job, shape, now_s)
        pools = cluster.pools_for(shape.gpu_types)
        for group in [pools] if shape.spans_types else [[pool] for pool in pools]:
            mark = plan.mark()
            slices = self._reserve(cluster, plan, group, job, shape)
            plan.rollback(mark)
            if slices is not None:
                return Allocation(tuple(slices), amount_of(shape))
        return None

    def _reserve(
        self, cluster: ClusterView, plan: Plan, pools: Sequence[PoolView], job: JobView, shape: Shape
    ) -> list[Slice] | None:
        """Place task after task; each sees the reservations of those before it. None if one does not fit."""
        slices: list[Slice] = []
        for number, role in enumerate(shape.roles):
            used: dict[int, int] = {}
            for _ in range(role.count):
                is_indexed = not used and self.is_indexed(job)
                find = self._best_indexed if is_indexed else self._best
                found = find(cluster, pools, job, role, used)
                piece = None if found is None else self._piece(job, role, number, *found)
                if piece is None:
                    return None
                plan.reserve(Allocation((piece,), 0))
                slices.append(piece)
                if role.is_apart:
                    used[piece.node] = used.get(piece.node, 0) | piece.gpus
        return slices

    def _piece(self, job: JobView, role: Role, number: int, node: NodeView, mask: int) -> Slice:
        piece = role_slice(node, role, number, 1, mask)
        if not mask:
            return piece
        verdict = self.judge(job, role, node, next(bits(mask)))
        assert verdict is not None, "the mask has only GPUs that fit"
        return self.terms(job.spec, piece, verdict)

    def _best(
        self, cluster: ClusterView, pools: Sequence[PoolView], job: JobView, role: Role, used: Mapping[int, int]
    ) -> tuple[NodeView, int] | None:
        """The best GPUs of one node for one task, except the used ones (a mask for each node); on ties those of the
        lowest node."""
        best: tuple[tuple[int, ...], int] | None = None
        on: NodeView | None = None
        for node in (node for pool in pools for node in nodes_of(pool)):
            found = self._on_node(job, role, node, used.get(node.index, 0))
            if found is not None and (best is None or found[0] > best[0]):
                best, on = found, node
        return None if on is None or best is None else (on, best[1])

    def _best_indexed(
        self, cluster: ClusterView, pools: Sequence[PoolView], job: JobView, role: Role, used: Mapping[int, int]
    ) -> tuple[NodeView, int] | None:
        changes = cluster.changes()
        boards = self.boards.setdefault(changes, {})
        kind = (role, job.spec.share, job.spec.model if self.standstills.are_known else "")
        if kind not in boards and len(boards) >= KINDS_MAX:
            boards.clear()
        board = boards.setdefault(kind, Board())
        board.follow(changes, cluster.nodes, lambda node: self._on_node(job, role, node, 0))
        among = 0
        for pool in pools:
            among |= pool.up
        found = board.best(among)
        return None if found is None else (cluster.nodes[found[0]], found[1])

    def _on_node(self, job: JobView, role: Role, node: NodeView, used: int) -> tuple[tuple[int, ...], int] | None:
        """The best GPUs of a node for one task, and their score, higher is better."""
        if not has_books(node, role, 1):
            return None
        gpus: Iterable[int] = (gpu for gpu in range(node.gpu_count) if not used >> gpu & 1)
        if self.standstills.are_known:
            gpus = [gpu for gpu in gpus if not self.stands_still(job, node, gpu)]
        judged = [(found.rank, gpu) for gpu in gpus if (found := self.judge(job, role, node, gpu)) is not None]
        picked = sorted(judged)[: role.gpus]
        if len(picked) < role.gpus:
            return None
        return tuple(-number for rank, _ in picked for number in rank), sum(1 << gpu for _, gpu in picked)


def nodes_of(pool: PoolView) -> Iterator[NodeView]:
    return (node for node in pool.nodes if node.is_up)


def is_booked(cluster: ClusterView, job: JobView) -> bool:
    """True if the job is in the books of this cluster: not in those of an empty one, nor if a trial has vacated it."""
    pieces = job.allocation.slices if job.allocation is not None else ()
    gpus = ((cluster.nodes[piece.node], gpu) for piece in pieces for gpu in bits(piece.gpus))
    return any(tenant.owner == job.seq for node, gpu in gpus for tenant in node.tenants(gpu))
