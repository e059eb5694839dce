"""What a job holds: slices of nodes, whole gpus or thousandths of them, and the form it takes while it is suspended.

All amounts are integers (thousandths of a cpu, MiB), so that giving back restores exactly what was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

WHOLE = 1000
"""Thousandths in a gpu."""

MODES = frozenset({"slice", "pack", "token", "lend", "lane", "instant", "mps", "mig"})
"""Ways to share in which a tenant may use more of a gpu than is guaranteed to it."""

MemoryPlace = Literal["resident", "swapped"]
"""Where the memory of a suspended job is: still on its GPUs, or in the memory of its nodes."""


class Slice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one role of a job holds on one node."""

    node: int
    gpus: int = 0
    """Bit mask of the node's gpus."""
    milli: int = WHOLE
    """Thousandths of each of these gpus that are guaranteed."""
    gpu_mem_mib: int = 0
    """Of each of these gpus."""
    cpu_milli: int = 0
    memory_mib: int = 0
    role: int = 0
    tasks: int = 1
    limit: int = 0
    """The most it may use of each of these gpus; 0: what is guaranteed."""
    mode: str = ""
    """The share mode; nothing: it uses what is guaranteed and no more."""
    slot: int = 0
    """Which part of the gpu, where a mode counts them."""
    group: str = ""
    """The share group with which it takes turns."""


class Allocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a job holds. `gpus` is their amount: 0.46 for a share of one."""

    slices: tuple[Slice, ...]
    gpus: float
    memory: MemoryPlace | None = None
    """Of a suspended job: where the memory of its gpus is."""
    resumes_as: Allocation | None = None
    """Of a suspended job: what it had, and will have again."""

    @property
    def is_suspended(self) -> bool:
        return self.resumes_as is not None

    def nodes(self) -> list[int]:
        return sorted({piece.node for piece in self.slices})

    def gpu_count(self) -> int:
        """Gpus it touches: a share counts as one."""
        count = 0
        for piece in self.slices:
            count += piece.gpus.bit_count()
        return count

    def renumbered(self, numbers: dict[int, int]) -> Allocation:
        """The same on a cluster that counts its nodes otherwise."""
        slices = [msgspec.structs.replace(piece, node=numbers[piece.node]) for piece in self.slices]
        resumes_as = None if self.resumes_as is None else self.resumes_as.renumbered(numbers)
        return Allocation(tuple(slices), self.gpus, self.memory, resumes_as)

    def suspended(self, memory: MemoryPlace) -> Allocation:
        """The same without compute: no gpu time, no cpus. The memory of its gpus stays there or goes to the node."""
        return Allocation(tuple(halted(piece, memory) for piece in self.slices), 0, memory, self)


def halted(piece: Slice, memory: MemoryPlace) -> Slice:
    if memory == "resident":
        return msgspec.structs.replace(piece, milli=0, limit=0, mode="", cpu_milli=0)
    swapped_mib = piece.gpu_mem_mib * piece.gpus.bit_count()
    node_mib = piece.memory_mib + swapped_mib
    return msgspec.structs.replace(piece, milli=0, limit=0, mode="", cpu_milli=0, gpu_mem_mib=0, memory_mib=node_mib)


def lowest_bits(mask: int, count: int) -> int:
    picked = 0
    for _ in range(count):
        low = mask & -mask
        picked |= low
        mask ^= low
    return picked


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
