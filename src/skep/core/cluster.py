"""The hardware: a tree of cells, and nodes with GPUs.

Allocations are booked by the ledger (`core/ledger.py`); free resources are found through the indexes of the pools
(`core/pool.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from skep.core.allocation import WHOLE, Allocation, MemoryPlace, Slice, bits, lowest_bits
from skep.core.ledger import OTHERS, TRIAL, GpuShares, Ledger, tenant_of
from skep.core.pool import Pool
from skep.core.refusal import CAPACITY, FRAGMENTATION, Cause
from skep.core.share import Tenant, clash, memory_of

__all__ = [
    "TRIAL",
    "UNLIMITED",
    "WHOLE",
    "Allocation",
    "Cell",
    "Cluster",
    "MemoryPlace",
    "Node",
    "NodeSpec",
    "Pool",
    "Slice",
    "Tenant",
    "bits",
    "lowest_bits",
]

UNLIMITED = 1 << 60
"""CPUs and memory of a node whose file does not state them."""


class Cell:
    """A piece of hardware: a rack, a node, a switch within a node. Its GPUs are the bits of `mask`."""

    __slots__ = ("children", "level", "mask", "name", "parent")

    def __init__(self, level: str, name: str, parent: Cell | None, mask: int = 0) -> None:
        self.level = level
        self.name = name
        self.parent = parent
        self.mask = mask
        self.children: list[Cell] = []
        if parent is not None:
            parent.children.append(self)


class NodeSpec(msgspec.Struct, frozen=True):
    """A node as described in the cluster file. `within` names the cells above it, outermost first."""

    name: str
    gpus: int
    gpu_type: str = ""
    gpu_mem_mib: int = UNLIMITED
    cpu_milli: int = UNLIMITED
    memory_mib: int = UNLIMITED
    within: tuple[tuple[str, str], ...] = ()
    inner: tuple[tuple[str, int], ...] = ()
    """Cells inside the node, outermost first: (level, GPUs per cell)."""
    speeds: tuple[tuple[str, float], ...] = ()
    """Declared speeds of virtual GPUs, as parts of a full one: by model, for all others under an empty name."""
    tags: tuple[str, ...] = ()
    """See `core/tags.py`."""
    extras: tuple[tuple[str, int], ...] = ()
    """Other countable resources: ports of a network, huge pages, …"""

    def speed_of(self, model: str) -> float:
        declared = dict(self.speeds)
        return declared.get(model, declared.get("", 1.0))


GONE = NodeSpec("", 0, cpu_milli=0, memory_mib=0)
"""Placeholder for a node that has left, so that the other nodes keep their numbers."""


class Node:
    """A node and its free resources."""

    __slots__ = (
        "bit",
        "cell",
        "cpu_free",
        "extras_free",
        "free",
        "free_mask",
        "gpu_count",
        "holders",
        "index",
        "indexed",
        "inner",
        "is_plain",
        "is_up",
        "lefts",
        "memory_free",
        "name",
        "pool",
        "shares",
        "spec",
        "terms",
    )

    def __init__(self, index: int, spec: NodeSpec, pool: Pool, cell: Cell) -> None:
        self.index = index
        self.bit = 1 << index
        self.spec = spec
        self.name = spec.name
        self.pool = pool
        self.cell = cell
        self.gpu_count = spec.gpus
        self.free_mask = cell.mask
        """GPUs on which no job has compute."""
        self.free = spec.gpus
        """Their number."""
        self.cpu_free = spec.cpu_milli
        self.memory_free = spec.memory_mib
        self.extras_free = dict(spec.extras)
        self.is_up = True
        self.is_plain = True
        """True until anything other than plain whole GPUs is booked here: `terms` and `shares` are empty until then."""
        self.holders: dict[int, int] = {}
        """Whole GPUs: the mask as it was taken → the owner."""
        self.terms: dict[int, Slice] = {}
        """Whole GPUs taken with memory or in a share mode → the terms."""
        self.shares: dict[int, GpuShares] = {}
        """GPUs with tenants that have a part of the GPU, or only memory."""
        self.indexed: dict[int, GpuShares] = {}
        """The amounts under which the index lists GPUs that changed since the index was last read."""
        self.lefts: dict[int, int] = {}
        """For the index: the number of shared GPUs by what is left of them (MiB × 1000 + milli)."""
        self.inner = [cell for cell in walk(self.cell) if cell is not self.cell]

    def pick(self, count: int, memory_mib: int = 0) -> int:
        """A mask of `count` free GPUs with this much memory left: from the smallest inner cell that has them, lowest
        first."""
        mask = self.free_with(memory_mib) if memory_mib else self.free_mask
        if count == self.free:
            return mask
        if self.inner:
            fitting = [cell.mask & mask for cell in self.inner if (cell.mask & mask).bit_count() >= count]
            mask = min(fitting, key=int.bit_count, default=mask)
        return lowest_bits(mask, count)

    def holder(self, gpu: int) -> Tenant:
        """The owner that holds this whole GPU."""
        mask, owner = next(entry for entry in self.holders.items() if entry[0] >> gpu & 1)
        return tenant_of(self.terms[mask], owner) if mask in self.terms else Tenant(owner, WHOLE, WHOLE, 0)

    def tenants(self, gpu: int) -> tuple[Tenant, ...]:
        """All tenants of a GPU, the holder of the whole GPU first."""
        share = self.shares.get(gpu)
        tenants = share.tenants if share is not None else ()
        if self.free_mask >> gpu & 1 or (share is not None and share.milli) or not self.is_held(gpu):
            return tenants
        return (self.holder(gpu), *tenants)

    def is_held(self, gpu: int) -> bool:
        """True if one tenant has the whole GPU."""
        return any(mask >> gpu & 1 for mask in self.holders)

    def used_mask(self) -> int:
        """The GPUs on which tenants other than a holder of the whole GPU have compute."""
        mask = 0
        for gpu, share in self.shares.items():
            if share.mode is not None:
                mask |= 1 << gpu
        return mask

    def clash(self, gpu: int, tenant: Tenant) -> str:
        """Why this tenant does not fit on the GPU beside its present tenants; empty: it fits."""
        if not 0 <= gpu < self.gpu_count:
            return "there is no such GPU"
        there = self.tenants(gpu)
        milli = tenant.milli + sum(each.milli for each in there)
        memory_mib = memory_of((*there, tenant))
        if milli > WHOLE or memory_mib > self.spec.gpu_mem_mib:
            return f"it would have {milli} milli and {memory_mib} MiB booked"
        return clash(tenant, there)

    @property
    def others_mask(self) -> int:
        """The GPUs of which a tenant that is not a job of Skep uses a part."""
        found = 0
        for mask, owner in self.holders.items():
            if owner == OTHERS:
                found |= mask
        for gpu, share in self.shares.items():
            if any(tenant.owner == OTHERS for tenant in share.tenants):
                found |= 1 << gpu
        return found

    def milli_left(self, gpu: int) -> int:
        """Thousandths of a GPU that are not guaranteed to a tenant."""
        if self.free_mask >> gpu & 1:
            return WHOLE
        share = self.shares.get(gpu)
        return WHOLE - share.milli if share is not None and (share.milli or not self.is_held(gpu)) else 0

    def memory_left(self, gpu: int) -> int:
        """Free memory of a GPU in MiB."""
        return self.spec.gpu_mem_mib - memory_of(self.tenants(gpu))

    def free_with(self, memory_mib: int) -> int:
        """The mask of the free GPUs with this much memory left."""
        if memory_mib > self.spec.gpu_mem_mib:
            return 0
        mask = self.free_mask
        if memory_mib and self.shares:
            for gpu, share in self.shares.items():
                if share.memory_mib + memory_mib > self.spec.gpu_mem_mib:
                    mask &= ~(1 << gpu)
        return mask

    def parts(self) -> list[tuple[int, int]]:
        """(GPU, thousandths left) of GPUs that jobs share without a share mode."""
        return [(gpu, WHOLE - share.milli) for gpu, share in self.shares.items() if share.mode == ""]

    def sizes(self) -> list[int]:
        """The number of GPUs that each owner has on this node; 0 for parts of GPUs. A job in a share mode counts with
        its GPUs."""
        sizes = [mask.bit_count() for mask in self.holders]
        sharers: dict[int, int] = {}
        for share in self.shares.values():
            for tenant in share.tenants:
                if tenant.mode:
                    sharers[tenant.owner] = sharers.get(tenant.owner, 0) + 1
                else:
                    sizes.append(0)
        return sizes + list(sharers.values())

    def shared_mask(self, milli: int, memory_mib: int) -> int:
        """The mask of the shared GPUs with exactly this many milli and at least this much memory left."""
        mask = 0
        used, most_mib = WHOLE - milli, self.spec.gpu_mem_mib - memory_mib
        for gpu, share in self.shares.items():
            if share.milli == used and share.mode == "" and share.memory_mib <= most_mib:
                mask |= 1 << gpu
        return mask


class Cluster(Ledger):
    """All nodes and their allocations."""

    def __init__(self, specs: list[NodeSpec], name: str = "") -> None:
        self.name = name
        self.specs = specs
        self.root = Cell("cluster", name, None)
        self.nodes: list[Node] = []
        self.pools: list[Pool] = []
        self.by_name: dict[str, Node] = {}
        self.turns = {}
        self._changes = None
        self.quota_left = math.inf
        """The whole cluster may be used; a VC may be limited to fewer thousandths."""
        self._pools_for: dict[tuple[str, ...], list[Pool]] = {}
        pools: dict[str, Pool] = {}
        above: dict[tuple[tuple[str, str], ...], Cell] = {(): self.root}
        for index, spec in enumerate(specs):
            if spec == GONE:
                self.nodes.append(gone(index))
                continue
            pool = pools.setdefault(spec.gpu_type, Pool(spec.gpu_type))
            node = Node(index, spec, pool, node_cell(spec, above))
            self.nodes.append(node)
            self.by_name[spec.name] = node
            pool.add(node)
        self.pools = list(pools.values())
        self.gpu_total = sum(pool.total for pool in self.pools)

    def blank(self) -> Cluster:
        """The same hardware with no allocations and every node up."""
        return Cluster(self.specs, self.name)

    def renew(self, specs: list[NodeSpec]) -> None:
        """Replace the nodes; nothing is allocated on them. Nodes that stay get their numbers again."""
        changes = self._changes
        Cluster.__init__(self, specs, self.name)
        if changes is not None:
            changes.renew()
            self._changes = changes

    def pools_for(self, gpu_types: tuple[str, ...]) -> list[Pool]:
        """The pools that a job accepting these types may use, in the order of the cluster file."""
        found = self._pools_for.get(gpu_types)
        if found is None:
            found = [pool for pool in self.pools if not gpu_types or pool.gpu_type in gpu_types]
            self._pools_for[gpu_types] = found
        return found

    def free_gpus(self, gpu_types: tuple[str, ...] = (), milli: int = WHOLE) -> int:
        """GPUs of these types with this many thousandths free."""
        free = 0
        for pool in self.pools_for(gpu_types):
            free += pool.free if milli >= WHOLE else pool.with_room(milli)
        return free

    def why_not(self, gpus: int, free: int) -> Cause:
        """Why a request for this many GPUs finds no place although this many GPUs of accepted types are free."""
        return FRAGMENTATION if 0 < gpus <= free else CAPACITY

    def reserve(self, allocation: Allocation) -> None:
        self.take(allocation, TRIAL)

    def release(self, allocation: Allocation) -> None:
        self.give(allocation, TRIAL)

    def allows(self, allocation: Allocation) -> bool:
        """Always true here: everything that is free may be used."""
        return True

    def lose(self, node: Node) -> None:
        """Start nothing new on this node; existing allocations stay booked until they are returned."""
        if node.is_up:
            node.pool.unindex(node)
            node.is_up = False

    def restore(self, node: Node) -> None:
        if not node.is_up:
            node.is_up = True
            node.pool.index(node)

    def common_level(self, allocation: Allocation) -> str:
        """The level of the smallest cell that contains the whole allocation."""
        pieces = [piece for piece in allocation.slices if piece.gpus]
        if len({piece.node for piece in pieces}) <= 1:
            return self._inner_level(pieces)
        paths = [ancestors(self.nodes[piece.node].cell) for piece in pieces]
        shared = [cell for cell in paths[0] if all(cell in path for path in paths[1:])]
        return shared[0].level

    def _inner_level(self, pieces: list[Slice]) -> str:
        mask = 0
        for piece in pieces:
            mask |= piece.gpus
        if mask.bit_count() <= 1:
            return "gpu"
        node = self.nodes[pieces[0].node]
        holding = [cell for cell in node.inner if cell.mask & mask == mask]
        return min(holding, key=lambda cell: cell.mask.bit_count()).level if holding else "node"


def gone(index: int) -> Node:
    node = Node(index, GONE, Pool(""), Cell("node", "", None))
    node.is_up = False
    return node


def node_cell(spec: NodeSpec, above: dict[tuple[tuple[str, str], ...], Cell]) -> Cell:
    """The node's cell with its inner cells, attached below the cells named by `within` (created if new)."""
    for depth, (level, name) in enumerate(spec.within):
        path = spec.within[: depth + 1]
        if path not in above:
            above[path] = Cell(level, name, above[path[:depth]])
    cell = Cell("node", spec.name, above[spec.within], (1 << spec.gpus) - 1)
    parents = [cell]
    for level, size in spec.inner:
        parents = [
            Cell(
                level,
                f"{parent.name}/{level}{start // size}",
                parent,
                ((1 << size) - 1 << start) & parent.mask,
            )
            for parent in parents
            for start in range(0, spec.gpus, size)
            if (1 << start) & parent.mask
        ]
    return cell


def walk(cell: Cell) -> Iterator[Cell]:
    yield cell
    for child in cell.children:
        yield from walk(child)


def ancestors(cell: Cell) -> list[Cell]:
    """The cells above this one, innermost first."""
    found = []
    parent = cell.parent
    while parent is not None:
        found.append(parent)
        parent = parent.parent
    return found
