"""Replica splicing (Shukla et al., "Singularity", 2022): a gang runs on fewer GPUs with all its workers, which take
turns. Its world size stays, so any gang can be scaled down, not only an elastic one.

`GiveWay` scales gangs down for a job that must run. The adjuster gives them their GPUs back when some are free that no
pending job can use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from skep.core.cluster import WHOLE, Allocation, bits
from skep.core.model import Role
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.tasks import needs
from skep.core.view import JobView, NodeView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import Effects, is_settled
from skep.policies.place import Place
from skep.policies.place.base import has_tags, role_slice

Masks = Mapping[int, int]
"""GPUs as bits, by node."""


class Splice:
    """Scales gangs down to at most `depth` workers on a GPU, and up again if they become at least `gain_min` times as
    fast; each at most once in `cool_down_s`."""

    name = "splice"
    needs = frozenset({Need.MIGRATE})

    def __init__(self, *, depth: int = 4, gain_min: float = 1.1, cool_down_s: float = 600.0) -> None:
        self.depth = depth
        self.gain_min = gain_min
        self.effects = Effects(self.name, cool_down_s=cool_down_s, settle_s=300.0)

    def attach(self, view: View) -> None:
        self.effects.attach(view)

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        wake_s = self.scale_up(view, plan, walked)
        return min(wake_s, self.effects.measure(view, plan))

    # Scale down --------------------------------------------------------------------------------------------------

    def may_scale(self, view: View, job: JobView) -> bool:
        return can_splice(job) and self.effects.is_cool(view, job)

    def smaller(self, view: View, plan: Plan, job: JobView, masks: Masks | None = None) -> Allocation | None:
        """On fewer of its GPUs, as many as possible; `masks`: only on some of these."""
        assert job.allocation is not None
        before, count = job.allocation, job.shapes[0].roles[0].count
        deeper = [depth for depth in depths(count, self.depth) if depth > before.depth]
        return spliced(view, plan, job, masks_of(before) if masks is None else masks, deeper)

    def note(self, view: View, plan: Plan, job: JobView, before: Allocation) -> None:
        """Record that it has other GPUs than before."""
        assert job.allocation is not None
        gain = job.allocation.gpus / before.gpus
        self.effects.note(view, plan, job, "scale down" if gain < 1 else "scale up", gain, gpus=before.gpus)

    # Scale up ----------------------------------------------------------------------------------------------------

    def scale_up(self, view: View, plan: Plan, walked: Walked) -> float:
        """The most urgent first. Returns when one in its cool-down may be scaled."""
        wake_s = math.inf
        for job in sorted(walked.seats.spliced.values(), key=lambda job: self.urgency(view, job)):
            last = self.effects.slot.get(view.memory, job.id)
            if last is not None and not self.effects.is_cool(view, job):
                wake_s = min(wake_s, last.at_s + self.effects.cool_down_s)
            elif self.may_scale(view, job) and job.allocation is not None:
                before, larger = job.allocation, self._larger(view, plan, walked.place, job)
                if larger is not None and larger.gpus >= self.gain_min * before.gpus:
                    plan.resize(job, larger)
                    self.note(view, plan, job, before)
                    walked.seats.add(job)
        return wake_s

    def urgency(self, view: View, job: JobView) -> tuple[float, ...]:
        """Jobs with the smallest get GPUs first."""
        return (-depth_of(job), job.seq)

    def _larger(self, view: View, plan: Plan, place: Place, job: JobView) -> Allocation | None:
        """All requested GPUs, wherever they are; else more of those on its nodes."""
        before = job.allocation
        assert before is not None
        if not any(pool.free for pool in view.cluster.pools):
            return None
        mark = plan.mark()
        plan.vacate(job)
        found = place.find(view.cluster, plan, job, job.shapes[0], view.now_s)
        plan.rollback(mark)
        if found is not None:
            return found
        nodes = view.cluster.nodes
        own = masks_of(before)
        masks = {node: own[node] | (nodes[node].free_mask if nodes[node].is_up else 0) for node in own}
        count = job.shapes[0].roles[0].count
        return spliced(view, plan, job, masks, [depth for depth in depths(count, self.depth) if depth < before.depth])


def depth_of(job: JobView) -> int:
    return 1 if job.allocation is None else job.allocation.depth


def depths(workers: int, most: int) -> list[int]:
    """The possible numbers of workers per GPU, equal on each GPU: fewest first."""
    return [depth for depth in range(2, min(workers, most) + 1) if workers % depth == 0]


def can_splice(job: JobView) -> bool:
    """True for a gang of workers with one whole GPU each, alone on its GPUs, that may be stopped and restarted."""
    shape = job.shapes[0]
    role = shape.roles[0]
    is_gang = len(shape.roles) == 1 and role.count > 1 and role.gpus == 1 and role.gpu_milli == WHOLE
    if not is_gang or not job.spec.preemptible or not is_settled(job) or job.allocation is None:
        return False
    is_willing = job.spec.share is None or job.spec.share.mode != "exclusive"
    workers = sum(piece.tasks for piece in job.allocation.slices)
    return is_willing and workers == role.count and not job.allocation.terms.mode


def spliced(view: View, plan: Plan, job: JobView, masks: Masks, deeper: Iterable[int]) -> Allocation | None:
    """All its workers on some of these GPUs, at the first of these depths at which they fit. The job's own GPUs count
    as free. Each worker has its memory, so those of a GPU must fit there together."""
    role = job.shapes[0].roles[0]
    mark = plan.mark()
    plan.vacate(job)
    found = None
    for depth in deeper:
        count = role.count // depth
        places = [(node, gpu) for node in by_gpus(view, masks) for gpu in usable(node, role, depth, masks[node.index])]
        if len(places) >= count:
            slices = [role_slice(node, role, 0, depth, 1 << gpu) for node, gpu in places[:count]]
            memory_mib = needs(role)[2] * depth
            found = Allocation(tuple(msgspec.structs.replace(each, gpu_mem_mib=memory_mib) for each in slices), count)
            break
    plan.rollback(mark)
    return found if found is None or plan.allows(found) else None


def masks_of(allocation: Allocation) -> dict[int, int]:
    masks: dict[int, int] = {}
    for piece in allocation.slices:
        if piece.gpus:
            masks[piece.node] = masks.get(piece.node, 0) | piece.gpus
    return masks


def by_gpus(view: View, masks: Masks) -> list[NodeView]:
    """The nodes with most of these GPUs first."""
    return [view.cluster.nodes[node] for node in sorted(masks, key=lambda node: (-masks[node].bit_count(), node))]


def usable(node: NodeView, role: Role, depth: int, mask: int) -> Iterator[int]:
    """The GPUs among these on which this many workers of the role fit."""
    cpu_milli, memory_mib, gpu_mem_mib = (each * depth for each in needs(role))
    most = WHOLE if has_tags(node, role.tags) else 0
    if cpu_milli:
        most = min(most, node.cpu_free // cpu_milli)
    if memory_mib:
        most = min(most, node.memory_free // memory_mib)
    most = min([most, *(node.extras_free.get(name, 0) // (count * depth) for name, count in role.extras)])
    free = bits(mask & node.free_with(gpu_mem_mib))
    return (gpu for gpu, _ in zip(free, range(most), strict=False))
