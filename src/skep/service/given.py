"""What an engine really gave a launch, in the terms of the core."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.core.allocation import Seat, lowest_bits
from skep.core.cluster import Allocation, Cluster, Slice, bits
from skep.core.events import TasksPlaced
from skep.core.job import Job
from skep.core.reports import GivenSeat, Moved, Started


def placed_elsewhere(
    cluster: Cluster, job: Job, wanted: Allocation | None, report: Started | Moved, *, has_vcs: bool
) -> list[TasksPlaced]:
    """An event if the engine gave the tasks other GPUs or nodes than was wanted. With VCs they may belong to the cells
    of another one, so the job cannot keep them."""
    if wanted is None or not report.given or report.launch != job.launches:
        return []
    given = allocation_given(cluster, wanted, report.given)
    return [] if given == wanted else [TasksPlaced(job.id, None if has_vcs else given, report.launch)]


def allocation_given(cluster: Cluster, wanted: Allocation, given: tuple[GivenSeat, ...]) -> Allocation | None:
    """The wanted allocation with these seats; None if it cannot be that. GPUs that the engine does not know are booked
    on those that were wanted or, on another node, on any free ones."""
    usual = wanted.seating()
    if len(given) != len(usual):
        return None
    picked: dict[int, int] = {}
    seats = []
    for seat, each in zip(usual, given, strict=True):
        node = cluster.by_name.get(each.node)
        if node is None:
            return None
        gpus = each.gpus
        if gpus is None:
            free = node.free_mask & ~picked.get(node.index, 0)
            gpus = seat.gpus if node.index == seat.node else tuple(bits(lowest_bits(free, len(seat.gpus))))
        if len(gpus) != len(seat.gpus) or any(gpu >= node.gpu_count for gpu in gpus):
            return None
        picked[node.index] = picked.get(node.index, 0) | mask_of(gpus)
        seats.append(Seat(seat.role, node.index, gpus))
    return wanted if seats == usual else reseated(wanted, seats)


def reseated(wanted: Allocation, seats: list[Seat]) -> Allocation | None:
    """None for workers that take turns on a GPU: they are not counted seat by seat."""
    if wanted.depth > 1:
        return None
    terms = {piece.role: piece for piece in reversed(wanted.slices)}
    together: dict[tuple[int, int], list[Seat]] = {}
    for seat in seats:
        together.setdefault((seat.role, seat.node), []).append(seat)
    slices = [slice_of(terms[role], node, each) for (role, node), each in together.items()]
    return Allocation(tuple(slices), wanted.gpus).seated(seats)


def slice_of(terms: Slice, node: int, seats: list[Seat]) -> Slice:
    return msgspec.structs.replace(
        terms,
        node=node,
        gpus=mask_of(gpu for seat in seats for gpu in seat.gpus),
        tasks=len(seats),
        cpu_milli=terms.cpu_milli // terms.tasks * len(seats),
        memory_mib=terms.memory_mib // terms.tasks * len(seats),
    )


def mask_of(gpus: Iterable[int]) -> int:
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask
