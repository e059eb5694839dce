"""What a job holds: slices of nodes (whole GPUs or thousandths of them), also while it is suspended.

All amounts are integers (thousandths of a CPU, MiB), so that returning an allocation restores the previous amounts
exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

import msgspec

WHOLE = 1000
"""Thousandths in a GPU."""

MemoryPlace = Literal["resident", "swapped"]
"""Where the memory of a suspended job is: still on its GPUs, or in the memory of its nodes."""


class Slice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one role of a job holds on one node."""

    node: int
    gpus: int = 0
    """Bit mask of the node's GPUs."""
    milli: int = WHOLE
    """Thousandths of each of these GPUs that are guaranteed."""
    gpu_mem_mib: int = 0
    """Of each of these GPUs."""
    cpu_milli: int = 0
    memory_mib: int = 0
    role: int = 0
    tasks: int = 1
    limit: int = 0
    """The most it may use of each of these GPUs; 0: only the guaranteed part."""
    mode: str = ""
    """The share mode (`core/share.py`); empty: it uses the guaranteed part only."""
    slot: int = 0
    """The index of its part of the GPU, in modes that number the parts."""
    group: str = ""
    """The share group whose members take turns."""
    weight: int = 1
    """Its weight against the other members of the share group."""
    quantum_ms: int = 0
    """The length of a turn. A group uses the smallest quantum of its members. 0: the engine decides."""
    ephemeral_mib: int = 0
    """The part of `gpu_mem_mib` that it needs only while it runs. Jobs of a lane run one after the other and share the
    memory of the largest one."""
    extras: tuple[tuple[str, int], ...] = ()
    """Other countable resources of the node, by name."""


class Seat(msgspec.Struct, frozen=True, array_like=True):
    """The node of one task and the GPUs it uses there."""

    role: int
    node: int
    gpus: tuple[int, ...] = ()


class Allocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a job holds. `gpus` is the amount that it asked for: 0.46 for a part of one, also where a share mode
    guarantees less of it. Of a job that is resized or spliced it is what it has."""

    slices: tuple[Slice, ...]
    gpus: float
    memory: MemoryPlace | None = None
    """For a suspended job: where its GPU memory is kept."""
    resumes_as: Allocation | None = None
    """For a suspended job: the allocation it had and will get back."""
    seats: tuple[Seat, ...] = ()
    """The tasks, in rank order, of all roles whose tasks do not have their default GPUs."""

    @property
    def is_suspended(self) -> bool:
        return self.resumes_as is not None

    def nodes(self) -> list[int]:
        return sorted({piece.node for piece in self.slices})

    def gpu_count(self) -> int:
        """The number of GPUs it uses; a shared GPU counts as one."""
        count = 0
        for piece in self.slices:
            count += piece.gpus.bit_count()
        return count

    def masks(self) -> tuple[tuple[int, int], ...]:
        """Its GPUs as (node, mask), by node, however they are divided into slices."""
        found: dict[int, int] = {}
        for piece in self.slices:
            if piece.gpus:
                found[piece.node] = found.get(piece.node, 0) | piece.gpus
        return tuple(sorted(found.items()))

    @property
    def depth(self) -> int:
        """Workers that take turns on each GPU; 1: each has its own. A gang that is spliced runs on fewer GPUs with all
        its workers: it has a slice for each GPU, with several tasks."""
        return depth_of(self.slices)

    def mode(self) -> str:
        """The share mode of its GPUs, as in its terms; empty: none."""
        for piece in self.slices:
            if piece.gpus:
                return piece.mode
        return ""

    @property
    def terms(self) -> Slice:
        """The first slice with GPUs, which has the terms of the job; an empty slice if there is none."""
        for piece in self.slices:
            if piece.gpus:
                return piece
        return NO_SLICE

    def has_seats_of(self, other: Allocation) -> bool:
        """True if both have the same GPUs, memory and tasks, under any terms, and neither is suspended."""
        if self.resumes_as is not None or other.resumes_as is not None or self.gpus != other.gpus:
            return False
        if self.seats != other.seats:
            return False
        return list(map(seat_of, self.slices)) == list(map(seat_of, other.slices))

    def on_terms(
        self,
        *,
        mode: str = "",
        milli: int,
        limit: int = 0,
        group: str = "",
        weight: int = 1,
        quantum_ms: int = 0,
        ephemeral_mib: int = 0,
    ) -> Allocation:
        """The same seats under these terms on every GPU."""
        terms = Slice(
            -1,
            milli=milli,
            limit=limit,
            mode=mode,
            group=group,
            weight=weight,
            quantum_ms=quantum_ms,
            ephemeral_mib=ephemeral_mib,
        )
        slices = [on_terms(piece, terms) if piece.gpus else piece for piece in self.slices]
        return Allocation(tuple(slices), self.gpus, seats=self.seats)

    def with_terms_of(self, other: Allocation) -> Allocation:
        """The same seats, each role under the terms it has in the other allocation."""
        of_role = {piece.role: piece for piece in reversed(other.slices) if piece.gpus}
        slices = [on_terms(piece, of_role[piece.role]) if piece.gpus else piece for piece in self.slices]
        return Allocation(tuple(slices), self.gpus, seats=self.seats)

    def parked(self) -> Allocation:
        """The same seats without compute: an intermediate step between two sets of terms within one plan."""
        slices = [
            msgspec.structs.replace(piece, milli=0, limit=0, mode="") if piece.gpus else piece for piece in self.slices
        ]
        return Allocation(tuple(slices), self.gpus)

    @property
    def is_parked(self) -> bool:
        terms = self.terms
        return self.resumes_as is None and not terms.milli and not terms.limit

    def renumbered(self, numbers: dict[int, int]) -> Allocation:
        """The same allocation with the node numbers of another cluster."""
        slices = [msgspec.structs.replace(piece, node=numbers[piece.node]) for piece in self.slices]
        resumes_as = None if self.resumes_as is None else self.resumes_as.renumbered(numbers)
        seats = tuple(msgspec.structs.replace(seat, node=numbers[seat.node]) for seat in self.seats)
        return Allocation(tuple(slices), self.gpus, self.memory, resumes_as, seats)

    def suspended(self, memory: MemoryPlace) -> Allocation:
        """The same without compute: no GPU time and no CPUs. Its GPU memory stays on the GPUs or moves to the node's
        memory."""
        return Allocation(tuple(halted(piece, memory) for piece in self.slices), 0, memory, self, self.seats)

    def seating(self) -> list[Seat]:
        """The seats of all tasks, role by role, in rank order. By default the tasks of a slice get equal parts of its
        GPUs, lowest first, slice after slice."""
        if not self.seats:
            return default_seats(self.slices)
        given = {seat.role for seat in self.seats}
        rest = default_seats(tuple(piece for piece in self.slices if piece.role not in given))
        return sorted([*self.seats, *rest], key=lambda seat: seat.role)

    def seated(self, seats: Iterable[Seat]) -> Allocation:
        """The same with these seats; roles with default seats are left out."""
        wanted, usual = by_role(seats), by_role(default_seats(self.slices))
        kept = [seat for role in sorted(wanted) if wanted[role] != usual.get(role) for seat in wanted[role]]
        return msgspec.structs.replace(self, seats=tuple(kept))


def depth_of(slices: tuple[Slice, ...]) -> int:
    """The depth of an allocation with these slices."""
    most = 1
    for piece in slices:
        if piece.tasks > most and piece.gpus:
            most = max(most, piece.tasks // piece.gpus.bit_count())
    return most


def default_seats(slices: tuple[Slice, ...]) -> list[Seat]:
    found = [Seat(piece.role, piece.node, part(piece, number)) for piece in slices for number in range(piece.tasks)]
    return sorted(found, key=lambda seat: seat.role)


def part(piece: Slice, number: int) -> tuple[int, ...]:
    """The GPUs of one task of a slice; tasks that share a GPU have all of the slice's GPUs."""
    gpus = tuple(bits(piece.gpus))
    each = len(gpus) // piece.tasks
    return gpus[number * each : (number + 1) * each] if each else gpus


def by_role(seats: Iterable[Seat]) -> dict[int, list[Seat]]:
    found: dict[int, list[Seat]] = {}
    for seat in seats:
        found.setdefault(seat.role, []).append(seat)
    return found


def sits_right(allocation: Allocation) -> bool:
    """True if the seats match the slices: on each node the same number of tasks of the role and the same GPUs, and for
    each task the default number of GPUs."""
    if not allocation.seats:
        return True
    given = {seat.role for seat in allocation.seats}
    usual = default_seats(tuple(piece for piece in allocation.slices if piece.role in given))
    return all(count_of(allocation.seats) == count_of(usual) for count_of in (sizes_of, gpus_of))


def sizes_of(seats: Iterable[Seat]) -> Counter[tuple[int, int, int]]:
    return Counter((seat.role, seat.node, len(seat.gpus)) for seat in seats)


def gpus_of(seats: Iterable[Seat]) -> Counter[tuple[int, int, int]]:
    return Counter((seat.role, seat.node, gpu) for seat in seats for gpu in seat.gpus)


NO_SLICE = Slice(-1)


def part_of_extras(piece: Slice, count: int, total: int) -> tuple[tuple[str, int], ...]:
    """Its extras for `count` of `total` equal parts."""
    return tuple((name, each * count // total) for name, each in piece.extras)


def seat_of(piece: Slice) -> tuple[object, ...]:
    """The place of a slice, independent of its terms. Another slot of a GPU is another place."""
    return (
        piece.node,
        piece.gpus,
        piece.gpu_mem_mib,
        piece.cpu_milli,
        piece.memory_mib,
        piece.role,
        piece.tasks,
        piece.slot,
        piece.extras,
    )


def on_terms(piece: Slice, terms: Slice) -> Slice:
    return msgspec.structs.replace(
        piece,
        milli=terms.milli,
        limit=terms.limit,
        mode=terms.mode,
        group=terms.group,
        weight=terms.weight,
        quantum_ms=terms.quantum_ms,
        ephemeral_mib=terms.ephemeral_mib,
    )


def halted(piece: Slice, memory: MemoryPlace) -> Slice:
    if memory == "resident":
        return msgspec.structs.replace(piece, milli=0, limit=0, mode="", cpu_milli=0)
    node_mib = piece.memory_mib + (piece.gpu_mem_mib - piece.ephemeral_mib) * piece.gpus.bit_count()
    return msgspec.structs.replace(
        piece, milli=0, limit=0, mode="", cpu_milli=0, gpu_mem_mib=0, ephemeral_mib=0, memory_mib=node_mib
    )


def lowest_bits(mask: int, count: int) -> int:
    picked = 0
    for _ in range(count):
        low = mask & -mask
        picked |= low
        mask ^= low
    return picked


def bits(mask: int) -> Iterator[int]:
    """The positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@lru_cache(maxsize=1 << 12)
def gpus_in(mask: int) -> tuple[int, ...]:
    """`bits` of a mask of one node's GPUs. Such masks are few, so each is worked out once."""
    return tuple(bits(mask))
