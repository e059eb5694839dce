"""Who has what of every gpu. `take` and `give` are the only ways to change that, and each undoes the other exactly.

A whole gpu is a bit of the mask by which its holder took it: one entry of a node's `holders`, however many gpus it
is, and one of `terms` where it has more than their time. A gpu of which tenants have parts has an entry in `shares`. A
tenant without any part of a gpu's time (it is suspended, or uses what others leave) stands in `shares` too, also beside
a holder of the whole: where a tenant is entered follows from its own slice alone, so that the books do not depend on
who came first.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from skep.core.allocation import MODES, WHOLE, Allocation, Slice, bits
from skep.core.changes import Changes
from skep.core.errors import InvariantBroken
from skep.core.pool import unlist

if TYPE_CHECKING:
    from skep.core.cluster import Node

NOBODY = -1
"""The owner of what is taken to try something. Jobs are owners by their `seq`."""

OTHERS = -2
"""The owner of what tenants have that are none of Skep's jobs."""


class Tenant(msgspec.Struct, frozen=True, order=True):
    """What one slice has of one gpu. The launch is that of the job, which is wanted in one place at a time."""

    owner: int
    milli: int
    limit: int
    memory_mib: int
    mode: str = ""
    slot: int = 0
    group: str = ""


class Shared(msgspec.Struct, frozen=True):
    """What tenants have of a gpu, whoever has it whole aside."""

    milli: int
    memory_mib: int
    tenants: tuple[Tenant, ...]
    """Sorted."""


UNSHARED = Shared(0, 0, ())


class Ledger:
    """The books of a cluster's nodes."""

    nodes: list[Node]
    _changes: Changes | None = None

    def changes(self) -> Changes:
        """Which nodes change from now on. Nothing is noted before somebody asks."""
        if self._changes is None:
            self._changes = Changes()
        return self._changes

    def take(self, allocation: Allocation, owner: int = NOBODY) -> None:
        """All of it; where something is not there to be had, `InvariantBroken` and nothing is changed."""
        nodes = self.nodes
        taken = 0
        try:
            for piece in allocation.slices:
                node = nodes[piece.node]
                gpus = piece.gpus
                if not gpus:
                    charge(node, piece.cpu_milli, piece.memory_mib)
                elif piece.milli == WHOLE:
                    free_mask = node.free_mask
                    if free_mask & gpus != gpus:
                        raise InvariantBroken(f"gpus {gpus:#b} of node {node.name} are not all free")
                    if piece.gpu_mem_mib:
                        check_memory(node, piece)
                    if piece.cpu_milli or piece.memory_mib:
                        charge(node, piece.cpu_milli, piece.memory_mib)
                    node.holders[gpus] = owner
                    if piece.gpu_mem_mib or piece.mode or piece.group or piece.slot:
                        node.terms[gpus] = piece
                    node.free_mask = free_mask ^ gpus
                    if node.is_listed:
                        unlist(node)
                else:
                    take_shares(node, piece, owner)
                taken += 1
        except InvariantBroken:
            self.give(Allocation(allocation.slices[:taken], 0), owner)
            raise
        if self._changes is not None:
            self._changes.note(allocation.slices)

    def give(self, allocation: Allocation, owner: int = NOBODY) -> None:
        nodes = self.nodes
        for piece in allocation.slices:
            node = nodes[piece.node]
            gpus = piece.gpus
            if gpus:
                if piece.milli == WHOLE:
                    holder = node.holders.pop(gpus, None)
                    if holder != owner:
                        if holder is not None:
                            node.holders[gpus] = holder
                        raise InvariantBroken(f"gpus {gpus:#b} of node {node.name} are not held by {owner}")
                    if node.terms:
                        node.terms.pop(gpus, None)
                    node.free_mask |= gpus
                    if node.is_listed:
                        unlist(node)
                else:
                    give_shares(node, piece, owner)
            if piece.cpu_milli or piece.memory_mib:
                charge(node, -piece.cpu_milli, -piece.memory_mib)
        if self._changes is not None:
            self._changes.note(allocation.slices)

    def neighbours(self, allocation: Allocation, owner: int) -> list[int]:
        """The other jobs that have part of a gpu of this allocation, each once."""
        found: dict[int, None] = {}
        for piece in allocation.slices:
            node = self.nodes[piece.node]
            if node.shares and piece.gpus:
                for gpu in bits(piece.gpus):
                    for tenant in node.tenants(gpu):
                        found[tenant.owner] = None
        found.pop(owner, None)
        found.pop(OTHERS, None)
        return list(found)


def charge(node: Node, cpu_milli: int, memory_mib: int) -> None:
    cpu_free = node.cpu_free - cpu_milli
    memory_free = node.memory_free - memory_mib
    if not (0 <= cpu_free <= node.spec.cpu_milli and 0 <= memory_free <= node.spec.memory_mib):
        raise InvariantBroken(f"cpu or memory of node {node.name} over capacity")
    node.cpu_free, node.memory_free = cpu_free, memory_free


def check_memory(node: Node, piece: Slice) -> None:
    """Whether whole gpus have the memory that is asked for, beside tenants without a part of their time."""
    if piece.gpu_mem_mib > node.spec.gpu_mem_mib:
        raise InvariantBroken(f"a gpu of node {node.name} has no {piece.gpu_mem_mib} MiB")
    if node.shares:
        for gpu in bits(piece.gpus):
            if piece.gpu_mem_mib > node.memory_left(gpu):
                raise InvariantBroken(f"gpu {gpu} of node {node.name} has no {piece.gpu_mem_mib} MiB left")


def tenant_of(piece: Slice, owner: int) -> Tenant:
    milli = piece.milli
    if 0 <= milli <= WHOLE and not piece.limit and not piece.mode:
        return Tenant(owner, milli, milli, piece.gpu_mem_mib, "", piece.slot, piece.group)
    limit = piece.limit or milli
    if not 0 <= piece.milli <= limit <= WHOLE:
        raise InvariantBroken(f"{piece.milli} milli with a limit of {limit} are no part of a gpu")
    if piece.mode:
        if piece.mode not in MODES:
            raise InvariantBroken(f"there is no share mode {piece.mode!r}")
    elif limit > piece.milli:
        raise InvariantBroken(
            f"{piece.milli} milli with a limit of {limit}: more than is guaranteed needs a share mode"
        )
    return Tenant(owner, piece.milli, limit, piece.gpu_mem_mib, piece.mode, piece.slot, piece.group)


def take_shares(node: Node, piece: Slice, owner: int) -> None:
    tenant = tenant_of(piece, owner)
    changes = []
    for gpu in gpus_of(piece):
        before = node.shares.get(gpu, UNSHARED)
        changes.append((gpu, before, with_tenant(node, gpu, before, tenant)))
    if piece.cpu_milli or piece.memory_mib:
        charge(node, piece.cpu_milli, piece.memory_mib)
    for gpu, before, after in changes:
        node.pool.set_share(node, gpu, before, after)


def give_shares(node: Node, piece: Slice, owner: int) -> None:
    tenant = tenant_of(piece, owner)
    changes = []
    for gpu in gpus_of(piece):
        before = node.shares.get(gpu, UNSHARED)
        changes.append((gpu, before, without_tenant(node, gpu, before, tenant)))
    for gpu, before, after in changes:
        node.pool.set_share(node, gpu, before, after)


def gpus_of(piece: Slice) -> Iterable[int]:
    gpus = piece.gpus
    return bits(gpus) if gpus & gpus - 1 else (gpus.bit_length() - 1,)


def with_tenant(node: Node, gpu: int, share: Shared, tenant: Tenant) -> Shared:
    """What the gpu carries once this tenant is there too."""
    milli = share.milli + tenant.milli
    memory_mib = share.memory_mib + tenant.memory_mib
    held_mib = 0
    if not share.milli and not node.free_mask >> gpu & 1:  # somebody has it whole
        if gpu >= node.gpu_count or tenant.milli:
            raise InvariantBroken(f"gpu {gpu} of node {node.name} is not free")
        held_mib = node.holder(gpu).memory_mib
    if milli > WHOLE or memory_mib + held_mib > node.spec.gpu_mem_mib:
        raise InvariantBroken(f"gpu {gpu} of node {node.name} would carry {milli} milli, {memory_mib + held_mib} MiB")
    tenants = share.tenants
    at = bisect.bisect_left(tenants, tenant)
    return Shared(milli, memory_mib, (*tenants[:at], tenant, *tenants[at:]))


def without_tenant(node: Node, gpu: int, share: Shared, tenant: Tenant) -> Shared:
    tenants = share.tenants
    try:
        at = tenants.index(tenant)
    except ValueError:
        raise InvariantBroken(f"gpu {gpu} of node {node.name} does not carry {tenant}") from None
    if len(tenants) == 1:
        return UNSHARED
    return Shared(share.milli - tenant.milli, share.memory_mib - tenant.memory_mib, tenants[:at] + tenants[at + 1 :])
