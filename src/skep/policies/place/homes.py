"""Placement of jobs with a promised part of every hour: each has a home that is kept for it.

A promised job runs at home if that is free, else on any free GPUs as others do: on idle homes only if there is nothing
else. A job that may not be stopped never runs on the home of another. `housing.py` finds the homes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from skep.core.cluster import WHOLE, Allocation, Slice, bits
from skep.core.errors import InvariantBroken
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import ClusterView, JobView, NodeView, View
from skep.policies.order.promises import Promises
from skep.policies.place.around import Around
from skep.policies.place.base import Place


class Homes(Around):
    """The inner placement (`beneath`) determines which GPUs are preferred."""

    name = "homes"

    def __init__(self, beneath: Place, order: Promises) -> None:
        super().__init__(beneath)
        self.order = order
        self.needs_free = beneath.needs_free

    def attach(self, view: View) -> None:
        self.view = view
        super().attach(view)

    def key(self, job: JobView, now_s: float) -> Hashable:
        """Promised jobs have homes of their own."""
        own = job.id if job.id in self.order.book else job.spec.preemptible
        return (super().key(job, now_s), own)

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        if cluster is not self.view.cluster or not self.order.book:
            return self.beneath.seek(cluster, plan, job, shape, now_s)
        promise = self.order.book.get(job.id)
        if promise is not None and promise.home is not None:
            own = copy_of(promise.home)
            is_free = fits(cluster, plan, own)
            if is_free or not job.spec.preemptible:
                return own if is_free and self.order.may_begin(job, now_s, at_home=True) else None
            if not self.order.may_begin(job, now_s, at_home=False):
                return None
        found = self.beneath.seek(cluster, plan, job, shape, now_s)
        owners = self.order.away if job.spec.preemptible else self.order.jobs
        kept = [self.order.book[owner.id].home for owner in owners.values() if owner is not job]
        homes = [home for home in kept if home is not None]
        if found is None or not any(overlap(found, home) for home in homes):
            return found
        mark = plan.mark()
        reserve_free(cluster, plan, homes)
        better = self.beneath.seek(cluster, plan, job, shape, now_s)
        plan.rollback(mark)
        return better if better is not None or not job.spec.preemptible else found


def reserve_free(cluster: ClusterView, plan: Plan, homes: Iterable[Allocation]) -> None:
    """Reserve what is free of these homes, also the rest of a GPU of which others use a part. Whole GPUs go first, all
    those of a node at once: there are many homes, and each step of a plan has its cost."""
    wanted: dict[int, tuple[int, int, int]] = {}
    parts: list[Slice] = []
    for piece in (piece for home in homes for piece in home.slices):
        if piece.milli < WHOLE:
            parts.append(piece)
        else:
            mask, cpu_milli, memory_mib = wanted.get(piece.node, (0, 0, 0))
            wanted[piece.node] = mask | piece.gpus, cpu_milli + piece.cpu_milli, memory_mib + piece.memory_mib
    whole = [free_part(cluster.nodes[index], *amounts) for index, amounts in wanted.items()]
    plan.reserve(Allocation(tuple(filter(None, whole)), 0))
    parts = [Slice(index, mask) for index, (mask, _, _) in wanted.items() if cluster.nodes[index].parts()] + parts
    for piece in parts:
        reserve_left(plan, cluster.nodes[piece.node], piece)


def reserve_left(plan: Plan, node: NodeView, piece: Slice) -> None:
    """Reserve these parts of GPUs, as far as they are left."""
    if not node.is_up:
        return
    if rest := free_part(node, 0, piece.cpu_milli, piece.memory_mib):
        plan.reserve(Allocation((rest,), 0))
    left_milli = dict(node.parts())
    for gpu in bits(piece.gpus):
        milli = min(piece.milli, WHOLE if node.free_mask >> gpu & 1 else left_milli.get(gpu, 0))
        if milli:
            gpu_mem_mib = min(piece.gpu_mem_mib, node.memory_left(gpu))
            plan.reserve(Allocation((Slice(node.index, 1 << gpu, milli=milli, gpu_mem_mib=gpu_mem_mib),), 0))


def free_part(node: NodeView, mask: int, cpu_milli: int, memory_mib: int) -> Slice | None:
    """What is free of these amounts of a node; None if nothing is."""
    mask &= node.free_mask
    cpu_milli, memory_mib = min(cpu_milli, node.cpu_free), min(memory_mib, node.memory_free)
    if not node.is_up or not (mask or cpu_milli or memory_mib):
        return None
    return Slice(node.index, mask, cpu_milli=cpu_milli, memory_mib=memory_mib)


def fits(cluster: ClusterView, plan: Plan, allocation: Allocation) -> bool:
    """True if all of it is free now."""
    for piece in allocation.slices:
        if piece.milli == WHOLE and piece.gpus & ~cluster.nodes[piece.node].free_mask:
            return False
    mark = plan.mark()
    try:
        plan.reserve(allocation)
    except InvariantBroken:
        return False
    plan.rollback(mark)
    return plan.allows(allocation)


def overlap(one: Allocation, other: Allocation) -> bool:
    """True if both use the same GPU, or parts of it."""
    return any(piece.node == each.node and piece.gpus & each.gpus for piece in one.slices for each in other.slices)


def copy_of(allocation: Allocation) -> Allocation:
    """The same in another object: bindings to the cells of a VC are found by the object."""
    return msgspec.structs.replace(allocation)
