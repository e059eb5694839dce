"""Making room: push out as few running jobs as possible, the last first, and only if the job then really fits."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.core.cluster import Allocation
from skep.core.job import Job
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.state import State
from skep.policies.place import Place


class Room(msgspec.Struct):
    allocation: Allocation
    victims: list[Job]


def make_room(
    view: State, plan: Plan, place: Place, job: Job, shape: Shape, candidates: Iterable[Job], missing: float
) -> Room | None:
    """Stop candidates in turn until the job fits, then spare those that turn out not to be needed.

    On success the plan holds the stops, otherwise it is as before. Nothing is tried before it has a chance: enough
    gpus together, and for a job that must sit on one node, enough on one node.
    """
    mark = plan.mark()
    one_node = shape.is_plain and place.keeps_together(job, view.now_s) and fits_a_node(view, shape)
    on_node: dict[int, int] = {}
    victims: list[Job] = []
    stopped = 0
    for victim in candidates:
        if shape.gpu_types and not is_useful(view, victim, shape):
            continue
        victims.append(victim)
        missing -= victim.gpu_count
        most = add_freed(view, victim, on_node) if one_node else shape.gpus
        if missing <= 0 and most >= shape.gpus:
            for other in victims[stopped:]:
                plan.stop(other, job.id)
            stopped = len(victims)
            allocation = place.find(view.cluster, job, shape, view.now_s)
            if allocation is not None:
                return spare(view, plan, place, job, shape, Room(allocation, victims), mark)
    plan.rollback(mark)
    return None


def fits_a_node(view: State, shape: Shape) -> bool:
    return any(shape.gpus <= pool.size_max for pool in view.cluster.pools_for(shape.gpu_types))


def add_freed(view: State, victim: Job, on_node: dict[int, int]) -> int:
    """Count what each node would have free without this victim too; the most of its nodes."""
    assert victim.allocation is not None
    most = 0
    for piece in victim.allocation.slices:
        before = on_node.get(piece.node)
        free = view.cluster.nodes[piece.node].free if before is None else before
        free = on_node[piece.node] = free + piece.gpus.bit_count()
        most = max(most, free)
    return most


def is_useful(view: State, victim: Job, shape: Shape) -> bool:
    assert victim.allocation is not None
    nodes = view.cluster.nodes
    return any(nodes[piece.node].pool.gpu_type in shape.gpu_types for piece in victim.allocation.slices)


def spare(view: State, plan: Plan, place: Place, job: Job, shape: Shape, room: Room, mark: int) -> Room:
    """Keep every victim, the best ordered first, without which the job fits all the same."""
    if len(room.victims) == 1:
        return room
    cluster = view.cluster
    needed = []
    plan.rollback(mark)
    held = {victim.seq: victim.allocation for victim in room.victims}
    for victim in room.victims:
        plan.stop(victim, job.id)
    allocation = room.allocation
    for victim in reversed(room.victims):
        before = held[victim.seq]
        assert before is not None
        cluster.take(before)
        found = place.find(cluster, job, shape, view.now_s)
        if found is None:
            needed.append(victim)
            cluster.give(before)
        else:
            allocation = found
    for victim in reversed(room.victims):
        if victim not in needed:
            before = held[victim.seq]
            assert before is not None
            cluster.give(before)
    plan.rollback(mark)
    needed.reverse()
    for victim in needed:
        plan.stop(victim, job.id)
    return Room(allocation, needed)
