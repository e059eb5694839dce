"""The owner of every GPU, or of every part of one. `take` and `give` are the only ways to change it, and each reverses
the other exactly.

A whole GPU is a bit of the mask that its holder took: one entry in the node's `holders` for any number of GPUs, and one
in `terms` if it comes with memory or a share mode. A GPU that tenants share has an entry in `shares`. A tenant without
compute (it is suspended, or uses what others leave) is in `shares` too, also beside a holder of the whole GPU. Where a
tenant is booked depends on its own slice only, so the books do not depend on the order of arrival. `core/share.py`
defines which tenants may share a GPU. A GPU is free as long as no tenant has compute there.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import msgspec

from skep.core.allocation import WHOLE, Allocation, Slice, bits, gpus_in
from skep.core.changes import Changes
from skep.core.errors import InvariantBroken
from skep.core.share import SLICE, Tenant, fault_of, memory_of

if TYPE_CHECKING:
    from skep.core.cluster import Node
    from skep.core.model import Extras

TRIAL = -1
"""The owner of trial bookings. The owner of a job's booking is the job's `seq`."""

OTHERS = -2
"""The owner of what tenants outside Skep use."""


class GpuShares(msgspec.Struct, frozen=True):
    """The tenants of a GPU, except for a holder of the whole GPU."""

    milli: int
    memory_mib: int
    tenants: tuple[Tenant, ...]
    """Sorted."""
    mode: str | None = None
    """The share mode of the tenants with compute; None: all are suspended."""


UNSHARED = GpuShares(0, 0, ())


class Ledger:
    """The books of a cluster's nodes."""

    nodes: list[Node]
    turns: dict[int, tuple[tuple[int, int], ...]]
    """The GPUs of each job that takes turns on them, by its seq."""
    _changes: Changes | None

    def changes(self) -> Changes:
        """Tracks which nodes change. Tracking begins with the first call."""
        if self._changes is None:
            self._changes = Changes()
        return self._changes

    def take(self, allocation: Allocation, owner: int = TRIAL) -> None:
        """Book all of it. If any of it is not available, raises `InvariantBroken` and changes nothing."""
        nodes = self.nodes
        taken = 0
        takes_turns = False
        try:
            for piece in allocation.slices:
                node = nodes[piece.node]
                gpus = piece.gpus
                if not gpus:
                    charge(node, piece)
                elif piece.milli == WHOLE:
                    free_mask = node.free_mask
                    if free_mask & gpus != gpus:
                        check_over(node, piece, owner)
                    if piece.gpu_mem_mib or piece.mode or piece.group or piece.slot:
                        take_terms(node, piece, owner)
                    elif piece.cpu_milli or piece.memory_mib or piece.extras:
                        charge(node, piece)
                    node.holders[gpus] = owner
                    node.pool.set_free(node, free_mask & ~gpus)
                else:
                    take_shares(node, piece, owner)
                    takes_turns = takes_turns or piece.mode == SLICE
                taken += 1
            if takes_turns and owner >= 0:
                self._take_turns(allocation, owner)
        except InvariantBroken:
            self.give(Allocation(allocation.slices[:taken], 0), owner)
            raise
        if self._changes is not None:
            self._changes.note(allocation.slices)

    def _take_turns(self, allocation: Allocation, owner: int) -> None:
        """A gang has its turn as a whole, so those who take turns have the same GPUs."""
        mine = self.turns[owner] = allocation.masks()
        for node, mask in mine:
            for gpu in bits(mask):
                for tenant in self.nodes[node].tenants(gpu):
                    if tenant.mode == SLICE and self.turns.get(tenant.owner, mine) != mine:
                        where = f"GPU {gpu} of node {self.nodes[node].name}"
                        raise InvariantBroken(f"{where}: members of share group {tenant.group} must have the same GPUs")

    def give(self, allocation: Allocation, owner: int = TRIAL) -> None:
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
                        raise InvariantBroken(f"GPUs {gpus:#b} of node {node.name} are not held by owner {owner}")
                    if not node.is_plain:
                        node.terms.pop(gpus, None)
                        gpus &= ~node.used_mask()
                    node.pool.set_free(node, node.free_mask | gpus)
                else:
                    give_shares(node, piece, owner)
                    if piece.mode == SLICE:
                        self.turns.pop(owner, None)
            if piece.cpu_milli or piece.memory_mib or piece.extras:
                charge(node, piece, -1)
        if self._changes is not None:
            self._changes.note(allocation.slices)

    def exchange(self, before: Allocation, after: Allocation, owner: int) -> bool:
        """Book the second allocation instead of the first. False, and nothing changes, if that is not possible."""
        self.give(before, owner)
        try:
            self.take(after, owner)
        except InvariantBroken:
            self.take(before, owner)
            return False
        return True

    def neighbours(self, allocation: Allocation, owner: int) -> list[int]:
        """The other jobs that have a part of a GPU of this allocation, each once."""
        found: dict[int, None] = {}
        for piece in allocation.slices:
            node = self.nodes[piece.node]
            if node.shares and piece.gpus:
                for gpu in gpus_in(piece.gpus):
                    for tenant in node.tenants(gpu):
                        found[tenant.owner] = None
        found.pop(owner, None)
        found.pop(OTHERS, None)
        return list(found)


def charge(node: Node, piece: Slice, sign: int = 1) -> None:
    """Book what a slice has beside GPUs; -1: return it."""
    cpu_free = node.cpu_free - sign * piece.cpu_milli
    memory_free = node.memory_free - sign * piece.memory_mib
    if not (0 <= cpu_free <= node.spec.cpu_milli and 0 <= memory_free <= node.spec.memory_mib):
        raise InvariantBroken(f"CPU or memory of node {node.name} over capacity")
    if piece.extras:
        charge_extras(node, piece.extras, sign)
    node.cpu_free, node.memory_free = cpu_free, memory_free


def charge_extras(node: Node, extras: Extras, sign: int) -> None:
    free = node.extras_free | {name: node.extras_free.get(name, 0) - sign * count for name, count in extras}
    limits = dict(node.spec.extras)
    if any(not 0 <= free[name] <= limits.get(name, 0) for name, _ in extras):
        raise InvariantBroken(f"{' or '.join(name for name, _ in extras)} of node {node.name} over capacity")
    node.extras_free = free


def take_terms(node: Node, piece: Slice, owner: int) -> None:
    """Check whole GPUs against these terms, and book all but the GPUs. Conflicts over compute were checked before."""
    if piece.mode or piece.ephemeral_mib:
        tenant_of(piece, owner)
    if piece.gpu_mem_mib:
        check_memory(node, piece)
    if piece.cpu_milli or piece.memory_mib or piece.extras:
        charge(node, piece)
    node.terms[piece.gpus] = piece
    node.is_plain = False


def check_memory(node: Node, piece: Slice) -> None:
    """Check that whole GPUs have the requested memory, beside tenants without compute."""
    if piece.gpu_mem_mib > node.spec.gpu_mem_mib:
        raise InvariantBroken(f"a GPU of node {node.name} has less than {piece.gpu_mem_mib} MiB")
    if node.shares:
        tenant = tenant_of(piece, TRIAL)
        for gpu in gpus_in(piece.gpus):
            if memory_of((*node.tenants(gpu), tenant)) > node.spec.gpu_mem_mib:
                raise InvariantBroken(f"GPU {gpu} of node {node.name} has less than {piece.gpu_mem_mib} MiB left")


def check_over(node: Node, piece: Slice, owner: int) -> None:
    """Check whether whole GPUs that are not all free may be taken: all tenants there must be opportunistic."""
    tenant = tenant_of(piece, owner)
    for gpu in bits(piece.gpus & ~node.free_mask):
        if why := node.clash(gpu, tenant):
            raise InvariantBroken(f"GPU {gpu} of node {node.name} is not free: {why}")


def tenant_of(piece: Slice, owner: int) -> Tenant:
    tenant = Tenant(
        owner,
        piece.milli,
        piece.limit or piece.milli,
        piece.gpu_mem_mib,
        piece.mode,
        piece.slot,
        piece.group,
        piece.weight,
        piece.quantum_ms,
        piece.ephemeral_mib,
    )
    if (piece.mode or piece.limit or piece.ephemeral_mib or not 0 <= piece.milli <= WHOLE) and (
        why := fault_of(tenant)
    ):
        raise InvariantBroken(why)
    return tenant


def take_shares(node: Node, piece: Slice, owner: int) -> None:
    tenant = tenant_of(piece, owner)
    changes = []
    for gpu in gpus_in(piece.gpus):
        before = node.shares.get(gpu, UNSHARED)
        changes.append((gpu, before, with_tenant(node, gpu, before, tenant)))
    if piece.cpu_milli or piece.memory_mib or piece.extras:
        charge(node, piece)
    for gpu, before, after in changes:
        node.pool.set_share(node, gpu, before, after)


def give_shares(node: Node, piece: Slice, owner: int) -> None:
    tenant = tenant_of(piece, owner)
    changes = []
    for gpu in gpus_in(piece.gpus):
        before = node.shares.get(gpu, UNSHARED)
        changes.append((gpu, before, without_tenant(node, gpu, before, tenant)))
    for gpu, before, after in changes:
        node.pool.set_share(node, gpu, before, after)


def with_tenant(node: Node, gpu: int, share: GpuShares, tenant: Tenant) -> GpuShares:
    """The entry for the GPU after this tenant is added."""
    milli = share.milli + tenant.milli
    tenants = share.tenants
    memory_mib = memory_of((*tenants, tenant)) if tenant.ephemeral_mib else share.memory_mib + tenant.memory_mib
    mode = share.mode
    if milli > WHOLE or memory_mib > node.spec.gpu_mem_mib:
        raise InvariantBroken(f"GPU {gpu} of node {node.name} would have {milli} milli and {memory_mib} MiB booked")
    # all have parts, or none has
    is_plain = not tenant.mode and not mode and (share.milli or node.free_mask >> gpu & 1)
    if not is_plain and (why := node.clash(gpu, tenant)):
        raise InvariantBroken(f"GPU {gpu} of node {node.name} is not free: {why}")
    if tenant.limit:
        mode = tenant.mode
    at = bisect.bisect_left(tenants, tenant)
    return GpuShares(milli, memory_mib, (*tenants[:at], tenant, *tenants[at:]), mode)


def without_tenant(node: Node, gpu: int, share: GpuShares, tenant: Tenant) -> GpuShares:
    tenants = share.tenants
    try:
        at = tenants.index(tenant)
    except ValueError:
        raise InvariantBroken(f"GPU {gpu} of node {node.name} has no tenant {tenant}") from None
    if len(tenants) == 1:
        return UNSHARED
    left = tenants[:at] + tenants[at + 1 :]
    is_used = not tenant.limit or left[0].limit or any(each.limit for each in left)
    mode = share.mode if is_used else None
    memory_mib = memory_of(left) if tenant.ephemeral_mib else share.memory_mib - tenant.memory_mib
    return GpuShares(share.milli - tenant.milli, memory_mib, left, mode)
