"""Placements that look at the tenants of a GPU, not only at what they leave: for jobs that share it in a mode.

Each task of such a job goes to the GPUs that `judge` ranks first, one task after the other. Jobs that do not share go
where the placement beneath puts them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from skep.core.cluster import WHOLE, Allocation, Slice, bits
from skep.core.job import amount_of
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Plan
from skep.core.view import ClusterView, JobView, NodeView, PoolView, View
from skep.policies.place.around import Around
from skep.policies.place.base import Place, has_books, role_slice


class Verdict(NamedTuple):
    """Of a GPU for a task; lower ranks are better."""

    rank: tuple[int, ...]
    group: str = ""
    """The share group that the task would join."""


class Beside(Around):
    """Jobs in one share mode (`mode`) beside each other; all others by the placement beneath."""

    mode: str

    def __init__(self, beneath: Place) -> None:
        super().__init__(beneath)
        self.jobs: Mapping[int, JobView] = {}

    def attach(self, view: View) -> None:
        self.jobs = view.open_jobs
        super().attach(view)

    def shares(self, job: JobSpec) -> bool:
        """True if the job is to run in this mode: it says so, or it wants parts of GPUs and names no mode."""
        named = "" if job.share is None else job.share.mode
        return named == self.mode or (not named and job.shapes[0].gpu_milli < WHOLE)

    @abstractmethod
    def judge(self, job: JobView, role: Role, node: NodeView, gpu: int) -> Verdict | None:
        """How good this GPU is for a task of the role; none where it has no room or the tenants do not go together."""

    @abstractmethod
    def terms(self, job: JobSpec, piece: Slice, group: str) -> Slice:
        """The slice with its share mode and what follows from it."""

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
        """Task after task, each of which sees what is reserved for those before it; none where one finds no room."""
        slices: list[Slice] = []
        for number, role in enumerate(shape.roles):
            used: dict[int, int] = {}
            for _ in range(role.count):
                piece = self._task(pools, job, role, number, used)
                if piece is None:
                    return None
                plan.reserve(Allocation((piece,), 0))
                slices.append(piece)
                if role.is_apart:
                    used[piece.node] = used.get(piece.node, 0) | piece.gpus
        return slices

    def _task(
        self, pools: Sequence[PoolView], job: JobView, role: Role, number: int, used: dict[int, int]
    ) -> Slice | None:
        """The best GPUs of one node for one task, none of those that are used (a mask for each node); on ties those of
        the lowest node."""
        best: list[tuple[Verdict, int]] = []
        on: NodeView | None = None
        for node in (node for pool in pools for node in nodes_of(pool) if has_books(node, role, 1)):
            gpus = (gpu for gpu in range(node.gpu_count) if not used.get(node.index, 0) >> gpu & 1)
            judged = [(found, gpu) for gpu in gpus if (found := self.judge(job, role, node, gpu)) is not None]
            picked = sorted(judged)[: role.gpus]
            if len(picked) == role.gpus and (on is None or verdicts(picked) < verdicts(best)):
                best, on = picked, node
        if on is None:
            return None
        mask = sum(1 << gpu for _, gpu in best)
        piece = role_slice(on, role, number, 1, mask)
        return self.terms(job.spec, piece, best[0][0].group) if mask else piece


def nodes_of(pool: PoolView) -> Iterator[NodeView]:
    return (node for node in pool.nodes if node.is_up)


def is_booked(cluster: ClusterView, job: JobView) -> bool:
    """True if the job is in the books of this cluster: not in those of an empty one, nor if a trial has vacated it."""
    pieces = job.allocation.slices if job.allocation is not None else ()
    gpus = ((cluster.nodes[piece.node], gpu) for piece in pieces for gpu in bits(piece.gpus))
    return any(tenant.owner == job.seq for node, gpu in gpus for tenant in node.tenants(gpu))


def verdicts(picked: list[tuple[Verdict, int]]) -> list[Verdict]:
    return [verdict for verdict, _ in picked]
