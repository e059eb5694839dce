"""Making room: preempt as few running jobs as possible, the last first, and only if the pending job then fits."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.core.cluster import Allocation
from skep.core.job import is_beside_others
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.place import Place


class Room(msgspec.Struct):
    allocation: Allocation
    victims: list[JobView]


def lacking(
    view: View, place: Place, job: JobView, shape: Shape, victims: Iterable[JobView], missing: float
) -> float | None:
    """Not None only if the job would not fit even if all of these were stopped: the GPUs that would still be missing; 0
    or less if it must sit on few nodes and no node would have enough. A job that needs no more GPUs still needs one of
    them to be stopped."""
    freed = Freed(view, shape) if shape.is_plain and place.keeps_together(job, view.now_s) else None
    is_enough = freed is None
    for victim in victims:
        missing -= victim.gpu_count
        is_enough = is_enough or (freed is not None and freed.add(victim))
        if is_enough and missing <= 0:
            return None
    return missing


def fits_without(
    view: View, plan: Plan, place: Place, job: JobView, shape: Shape, victims: Iterable[JobView], missing: float
) -> bool:
    """True if the job would fit if all of these were stopped; the plan is unchanged. A plain shape is tried as soon as
    it has a chance, since it fits with more free GPUs too; most fit when a few victims are gone."""
    freed = Freed(view, shape) if shape.is_plain and place.keeps_together(job, view.now_s) else None
    mark = plan.mark()
    has_chance, is_found = freed is None, False
    staying: list[JobView] = []

    def fits() -> bool:
        for victim in staying:
            plan.vacate(victim)
        staying.clear()
        return place.find(view.cluster, plan, job, shape, view.now_s) is not None

    for victim in victims:
        staying.append(victim)
        missing -= victim.gpu_count
        has_more = freed is None or freed.add(victim)
        has_chance = has_chance or has_more
        if shape.is_plain and has_more and missing <= 0 and fits():
            is_found = True
            break
    is_found = is_found or (has_chance and missing <= 0 and bool(staying) and fits())
    plan.rollback(mark)
    return is_found


def make_room(
    view: View, plan: Plan, place: Place, job: JobView, shape: Shape, candidates: Iterable[JobView], missing: float
) -> Room | None:
    """Stop candidates in turn until the job fits, then keep those that turn out not to be needed.

    On success the plan has the stops, otherwise it is unchanged. A placement is tried only when it has a chance: enough
    GPUs in total and, for a job that must sit on few nodes, on few nodes.
    """
    mark = plan.mark()
    is_together = shape.is_plain and place.keeps_together(job, view.now_s)
    freed = Freed(view, shape) if is_together else None
    victims: list[JobView] = []
    stopped = 0
    for victim in candidates:
        if shape.gpu_types and not is_useful(view, victim, shape):
            continue
        victims.append(victim)
        missing -= victim.gpu_count
        has_chance = freed.add(victim) if freed is not None else True
        if missing <= 0 and has_chance:
            for other in victims[stopped:]:
                plan.stop(other, job.id)
            stopped = len(victims)
            allocation = place.find(view.cluster, plan, job, shape, view.now_s)
            if allocation is not None:
                return spare(view, plan, place, job, shape, Room(allocation, victims), mark)
    plan.rollback(mark)
    return None


class Freed:
    """An upper bound on what each node would have free without the victims so far."""

    def __init__(self, view: View, shape: Shape) -> None:
        pools = view.cluster.pools_for(shape.gpu_types)
        size = max([pool.size_max for pool in pools], default=0)
        self.nodes = view.cluster.nodes
        self.on_node: dict[int, int] = {}
        self.gpus = shape.gpus
        self.is_small = shape.gpus <= size
        self.idle_wanted = shape.gpus // size if size else 0
        """The number of nodes that a job larger than a node needs for itself."""
        self.idle = 0
        if not self.is_small:
            self.idle = sum(idle.bit_count() for pool in pools for idle in pool.idle.values())

    def add(self, victim: JobView) -> bool:
        """True if the job could fit now, by this bound."""
        assert victim.allocation is not None
        on_node, is_small, has_room = self.on_node, self.is_small, False
        for piece in victim.allocation.slices:
            node = self.nodes[piece.node]
            before = on_node.get(piece.node, node.free)
            free = on_node[piece.node] = before + piece.gpus.bit_count()
            if is_small:
                has_room = has_room or free >= self.gpus
            elif before < node.gpu_count <= free:
                self.idle += 1
        return has_room if is_small else self.idle >= self.idle_wanted


def is_useful(view: View, victim: JobView, shape: Shape) -> bool:
    assert victim.allocation is not None
    nodes = view.cluster.nodes
    return any(nodes[piece.node].pool.gpu_type in shape.gpu_types for piece in victim.allocation.slices)


def spare(view: View, plan: Plan, place: Place, job: JobView, shape: Shape, room: Room, mark: int) -> Room:
    """Keep every victim, best ordered first, without which the job still fits."""
    if len(room.victims) == 1 or all(is_needed(view, place, shape, victim) for victim in room.victims):
        return room
    if shape.is_plain and not place.keeps_together(job, view.now_s):
        counted = spare_by_count(view, plan, place, job, shape, room, mark)
        if counted is not None:
            return counted
    needed = []
    plan.rollback(mark)
    for victim in room.victims:
        plan.vacate(victim)
    allocation = room.allocation
    for victim in reversed(room.victims):
        if is_needed(view, place, shape, victim):
            needed.append(victim)
            continue
        plan.occupy(victim)
        found = place.find(view.cluster, plan, job, shape, view.now_s)
        if found is None:
            needed.append(victim)
            plan.vacate(victim)
        else:
            allocation = found
    plan.rollback(mark)
    needed.reverse()
    for victim in needed:
        plan.stop(victim, job.id)
    return Room(allocation, needed)


def spare_by_count(
    view: View, plan: Plan, place: Place, job: JobView, shape: Shape, room: Room, mark: int
) -> Room | None:
    """The same for a job that fits wherever enough GPUs are free; None if it does not fit then."""
    if shape.gpu_types or not place.needs_free or any(is_beside_others(victim) for victim in room.victims):
        return None
    left, needed = view.cluster.free_gpus() - shape.gpus, []
    for victim in reversed(room.victims):
        if victim.gpu_count > left:
            needed.append(victim)
        else:
            left -= victim.gpu_count
    plan.rollback(mark)
    for victim in reversed(needed):
        plan.stop(victim, job.id)
    allocation = place.find(view.cluster, plan, job, shape, view.now_s)
    return None if allocation is None else Room(allocation, needed[::-1])


def is_needed(view: View, place: Place, shape: Shape, victim: JobView) -> bool:
    """True only if the job would not fit if this one stayed, because it has more GPUs than the job leaves free."""
    if shape.gpu_types or not shape.is_plain or not place.needs_free or is_beside_others(victim):
        return False
    return victim.gpu_count > view.cluster.free_gpus() - shape.gpus
