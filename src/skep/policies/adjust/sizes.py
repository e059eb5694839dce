"""Sizes of running jobs: the present shape of a job, seats for a shape on one node, and shrinking to make room."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from skep.core.cluster import WHOLE, Allocation
from skep.core.job import amount_of
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import JobView, NodeView, View
from skep.policies.adjust.base import Walked
from skep.policies.place.base import capacity, role_slice

Kept = Callable[[JobView, int], None]
"""Called with each job that shrank, and the GPUs that it had before."""


def shape_of(job: JobView) -> Shape:
    """The shape in which a job runs: its first one, in the present size if it is elastic."""
    spec = job.spec
    if spec.gpu_range is None or job.allocation is None:
        return job.shapes[0]
    number = spec.elastic_role
    gpus = sum(piece.gpus.bit_count() for piece in job.allocation.slices if piece.role == number)
    return spec.resized(gpus)


def on_node(node: NodeView, shape: Shape) -> Allocation | None:
    """All of a job with one role on this node; None if it does not fit, or the job has several roles or parts of
    GPUs."""
    role = shape.roles[0]
    is_simple = len(shape.roles) == 1 and role.gpus and role.gpu_milli == WHOLE
    if not is_simple or not node.is_up or capacity(node, role) < role.count:
        return None
    seats = role_slice(node, role, 0, role.count, node.pick(shape.gpus, int(role.gpu_mem_gib * 1024)))
    return Allocation((seats,), amount_of(shape))


def resized_on_node(job: JobView, node: NodeView, plan: Plan, gpus: int) -> Allocation | None:
    """Seats on this node, where it is, for this many GPUs of its elastic role; it keeps GPUs that it has."""
    before = job.allocation
    shape = job.spec.resized(gpus)
    role = shape.roles[0]
    if before is None or len(before.slices) != 1 or len(shape.roles) != 1:
        return None
    (piece,) = before.slices
    mark = plan.mark()
    plan.vacate(job)
    fits = capacity(node, role) >= role.count
    rest = node.free_with(piece.gpu_mem_mib) & ~piece.gpus
    plan.rollback(mark)
    if not fits:
        return None
    mask = first_bits(piece.gpus, shape.gpus)
    mask |= first_bits(rest, shape.gpus - mask.bit_count())
    return Allocation((role_slice(node, role, 0, role.count, mask),), amount_of(shape))


def runs_at(view: View, job: JobView, node: NodeView, gpus: int) -> bool:
    """False if it makes no progress with this many GPUs of the node's type."""
    return view.knowledge.standstills.runs(job.spec, job.spec.resized(gpus), node.pool.gpu_type)


def first_bits(mask: int, count: int) -> int:
    """The lowest bits, at most this many."""
    found = 0
    while mask and count > 0:
        found |= mask & -mask
        mask &= mask - 1
        count -= 1
    return found


def shrink_for(
    view: View,
    plan: Plan,
    walked: Walked,
    job: JobView,
    givers: Iterable[tuple[JobView, int]],
    kept: Kept,
) -> bool:
    """Start a pending job on GPUs that others release: each giver shrinks to its smallest size, as few of them as
    possible, in the given order. All or nothing."""
    mark = plan.mark()
    shrunk: list[tuple[JobView, int]] = []
    with plan.bundle():
        for giver, least in givers:
            assert giver.allocation is not None
            nodes = giver.allocation.nodes()
            node, before = view.cluster.nodes[nodes[0]], giver.allocation.gpu_count()
            smaller = resized_on_node(giver, node, plan, least) if len(nodes) == 1 else None
            if smaller is None or before <= least or not runs_at(view, giver, node, least):
                continue
            plan.resize(giver, smaller)
            shrunk.append((giver, before))
            if start_pending(view, plan, walked, job):
                for each, gpus in shrunk:
                    kept(each, gpus)
                return True
    plan.rollback(mark)
    return False


def start_pending(view: View, plan: Plan, walked: Walked, job: JobView) -> bool:
    """Start a pending job where it fits now, if it does."""
    for shape in walked.allocate.shapes(job):
        found = walked.place.find(view.cluster, plan, job, shape, view.now_s)
        if found is not None:
            plan.start(job, found)
            return True
    return False
