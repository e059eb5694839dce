"""The hardware: a tree of cells, nodes with gpus, and indexes over what is free.

Free gpus are indexed per pool (all nodes of one gpu type): for each number of free gpus the set of nodes
that have just so many, kept as the bits of one integer. "The fullest node with at least 3 free gpus, lowest
first" is then two machine operations, whatever the size of the cluster, and a change flips two bits.

All amounts are integers (thousandths of a cpu, MiB), so that giving back restores exactly what was.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator

import msgspec

from skep.core.errors import InvariantBroken
from skep.core.refusal import Cause

UNLIMITED = 1 << 60
"""Cpus and memory of a node whose file does not say."""

WHOLE = 1000
"""Thousandths in a gpu."""


class Slice(msgspec.Struct, frozen=True):
    """What one role of a job holds on one node."""

    node: int
    gpus: int = 0
    """Bit mask of the node's gpus."""
    milli: int = WHOLE
    """Thousandths of each of these gpus."""
    gpu_mem_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    role: int = 0
    tasks: int = 1


class Allocation(msgspec.Struct, frozen=True):
    """Everything a job holds. `gpus` is their amount: 0.46 for a share of one."""

    slices: tuple[Slice, ...]
    gpus: float

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
        return Allocation(tuple(slices), self.gpus)


class Cell:
    """A piece of hardware: a rack, a node, a switch within a node. The gpus are the bits of `mask`."""

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
    """A node as the cluster's file describes it. `within` names the cells above it, outermost first."""

    name: str
    gpus: int
    gpu_type: str = ""
    gpu_mem_mib: int = UNLIMITED
    cpu_milli: int = UNLIMITED
    memory_mib: int = UNLIMITED
    within: tuple[tuple[str, str], ...] = ()
    inner: tuple[tuple[str, int], ...] = ()
    """Cells inside the node, outermost first: (level, gpus in one such cell)."""


class Node:
    """A node and what is free on it."""

    __slots__ = (
        "bit",
        "cell",
        "cpu_free",
        "free",
        "free_mask",
        "gpu_count",
        "index",
        "inner",
        "is_up",
        "memory_free",
        "name",
        "pool",
        "shares",
        "spec",
    )

    def __init__(self, index: int, spec: NodeSpec, pool: Pool, cell: Cell) -> None:
        self.index = index
        self.bit = 1 << index
        self.spec = spec
        self.name = spec.name
        self.pool = pool
        self.cell = cell
        self.gpu_count = spec.gpus
        self.free = spec.gpus
        """Gpus nobody holds any part of."""
        self.free_mask = cell.mask
        self.cpu_free = spec.cpu_milli
        self.memory_free = spec.memory_mib
        self.is_up = True
        self.shares: dict[int, tuple[int, int]] = {}
        """Gpus that are partly used: index → (milli used, MiB used)."""
        self.inner = [cell for cell in walk(self.cell) if cell is not self.cell]

    def pick(self, count: int) -> int:
        """A mask of `count` free gpus: from the smallest inner cell that has them, the lowest first."""
        mask = self.free_mask
        if count == self.free:
            return mask
        if self.inner:
            fitting = [cell.mask & mask for cell in self.inner if (cell.mask & mask).bit_count() >= count]
            mask = min(fitting, key=int.bit_count, default=mask)
        return lowest_bits(mask, count)


class Pool:
    """The nodes of one gpu type, indexed by free gpus. Nodes that are down are in no index."""

    __slots__ = ("by_free", "free", "gpu_type", "idle", "nodes", "partial", "racks", "size_max", "total", "up")

    def __init__(self, gpu_type: str) -> None:
        self.gpu_type = gpu_type
        self.nodes: list[Node] = []
        self.racks: dict[Cell | None, int] = {}
        """Bits of the nodes right below each cell."""
        self.size_max = 0
        self.total = 0
        self.free = 0
        self.up = 0
        """Bits of all nodes that are up."""
        self.by_free: list[int] = [0]
        """by_free[n]: bits of the nodes with n free gpus."""
        self.idle: dict[int, int] = {}
        """idle[n]: bits of the wholly free nodes of n gpus, largest size first."""
        self.partial: list[tuple[int, int, int]] = []
        """Shared gpus with room: (milli left, node, gpu), sorted."""

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.racks[node.cell.parent] = self.racks.get(node.cell.parent, 0) | node.bit
        self.total += node.gpu_count
        if node.gpu_count > self.size_max:
            self.by_free.extend([0] * (node.gpu_count - self.size_max))
            self.size_max = node.gpu_count
        if node.gpu_count not in self.idle:
            self.idle[node.gpu_count] = 0
            self.idle = dict(sorted(self.idle.items(), reverse=True))
        self.index(node)

    def index(self, node: Node) -> None:
        self.up |= node.bit
        self.free += node.free
        self.by_free[node.free] |= node.bit
        if node.free == node.gpu_count:
            self.idle[node.gpu_count] |= node.bit
        for gpu in node.shares:
            bisect.insort(self.partial, self._partial(node, gpu))

    def unindex(self, node: Node) -> None:
        self.up ^= node.bit
        self.free -= node.free
        self.by_free[node.free] ^= node.bit
        if node.free == node.gpu_count:
            self.idle[node.gpu_count] ^= node.bit
        for gpu in node.shares:
            self._drop_partial(node, gpu)

    def set_free(self, node: Node, mask: int) -> None:
        free = mask.bit_count()
        if node.is_up:
            bit = node.bit
            self.by_free[node.free] ^= bit
            self.by_free[free] ^= bit
            self.free += free - node.free
            if node.free == node.gpu_count or free == node.gpu_count:
                self.idle[node.gpu_count] ^= bit
        node.free = free
        node.free_mask = mask

    def set_share(self, node: Node, gpu: int, milli: int, gpu_mem_mib: int) -> None:
        """Make the gpu carry just so much; the index follows."""
        if node.is_up and gpu in node.shares:
            self._drop_partial(node, gpu)
        if milli or gpu_mem_mib:
            node.shares[gpu] = (milli, gpu_mem_mib)
            if node.is_up:
                bisect.insort(self.partial, self._partial(node, gpu))
        else:
            del node.shares[gpu]

    def with_room(self, milli: int) -> int:
        """GPUs of which so many thousandths are free."""
        return self.free if milli == WHOLE else self.free + len(self.partial) - self.first_partial(milli)

    def first_partial(self, milli: int) -> int:
        """Where in `partial` the GPUs with so much room begin."""
        return bisect.bisect_left(self.partial, (milli,))

    def _partial(self, node: Node, gpu: int) -> tuple[int, int, int]:
        return (WHOLE - node.shares[gpu][0], node.index, gpu)

    def _drop_partial(self, node: Node, gpu: int) -> None:
        entry = self._partial(node, gpu)
        del self.partial[bisect.bisect_left(self.partial, entry)]


class Cluster:
    """All nodes. `take` and `give` are the only ways to change what is held, and each undoes the other exactly."""

    quota_left = math.inf
    """All that is there may be used."""

    def __init__(self, specs: list[NodeSpec], name: str = "") -> None:
        self.name = name
        self.specs = specs
        self.root = Cell("cluster", name, None)
        self.nodes: list[Node] = []
        self.pools: list[Pool] = []
        self.by_name: dict[str, Node] = {}
        self._pools_for: dict[tuple[str, ...], list[Pool]] = {}
        pools: dict[str, Pool] = {}
        above: dict[tuple[tuple[str, str], ...], Cell] = {(): self.root}
        for index, spec in enumerate(specs):
            pool = pools.setdefault(spec.gpu_type, Pool(spec.gpu_type))
            node = Node(index, spec, pool, node_cell(spec, above))
            self.nodes.append(node)
            self.by_name[spec.name] = node
            pool.add(node)
        self.pools = list(pools.values())
        self.gpu_total = sum(pool.total for pool in self.pools)

    def blank(self) -> Cluster:
        """The same hardware with nothing on it and every node up."""
        return Cluster(self.specs, self.name)

    def pools_for(self, gpu_types: tuple[str, ...]) -> list[Pool]:
        """The pools a job that accepts these types may use, in the order of the cluster's file."""
        found = self._pools_for.get(gpu_types)
        if found is None:
            found = [pool for pool in self.pools if not gpu_types or pool.gpu_type in gpu_types]
            self._pools_for[gpu_types] = found
        return found

    def free_gpus(self, gpu_types: tuple[str, ...] = (), milli: int = WHOLE) -> int:
        """GPUs of these types of which so many thousandths are free."""
        return sum(pool.with_room(milli) for pool in self.pools_for(gpu_types))

    def why_not(self, gpus: int, free: int) -> Cause:
        """Why a request for so many gpus finds no place while so many of the types it accepts are free."""
        return Cause.FRAGMENTATION if 0 < gpus <= free else Cause.CAPACITY

    def take(self, allocation: Allocation) -> None:
        for piece in allocation.slices:
            node = self.nodes[piece.node]
            if piece.gpus:
                if piece.milli == WHOLE:
                    if node.free_mask & piece.gpus != piece.gpus:
                        raise InvariantBroken(f"gpus {piece.gpus:#b} of node {node.name} are not all free")
                    node.pool.set_free(node, node.free_mask ^ piece.gpus)
                else:
                    for gpu in bits(piece.gpus):
                        self._share(node, gpu, piece.milli, piece.gpu_mem_mib)
            if piece.cpu_milli or piece.memory_mib:
                self._charge(node, piece.cpu_milli, piece.memory_mib)

    def give(self, allocation: Allocation) -> None:
        for piece in allocation.slices:
            node = self.nodes[piece.node]
            if piece.gpus:
                if piece.milli == WHOLE:
                    if node.free_mask & piece.gpus:
                        raise InvariantBroken(f"gpus {piece.gpus:#b} of node {node.name} were free already")
                    node.pool.set_free(node, node.free_mask | piece.gpus)
                else:
                    for gpu in bits(piece.gpus):
                        self._share(node, gpu, -piece.milli, -piece.gpu_mem_mib)
            if piece.cpu_milli or piece.memory_mib:
                self._charge(node, -piece.cpu_milli, -piece.memory_mib)

    def reserve(self, allocation: Allocation) -> None:
        self.take(allocation)

    def release(self, allocation: Allocation) -> None:
        self.give(allocation)

    def allows(self, allocation: Allocation) -> bool:
        """Whatever is free here can be had."""
        return True

    def _charge(self, node: Node, cpu_milli: int, memory_mib: int) -> None:
        node.cpu_free -= cpu_milli
        node.memory_free -= memory_mib
        if not (0 <= node.cpu_free <= node.spec.cpu_milli and 0 <= node.memory_free <= node.spec.memory_mib):
            raise InvariantBroken(f"cpu or memory of node {node.name} over capacity")

    def _share(self, node: Node, gpu: int, milli: int, gpu_mem_mib: int) -> None:
        """Change what one shared gpu carries; the first share makes an idle gpu partial, the last gives it back."""
        is_first = gpu not in node.shares
        if is_first and not node.free_mask >> gpu & 1:
            raise InvariantBroken(f"gpu {gpu} of node {node.name} is not free")
        used_milli, used_mib = node.shares.get(gpu, (0, 0))
        milli += used_milli
        gpu_mem_mib += used_mib
        if not (0 <= milli <= WHOLE and 0 <= gpu_mem_mib <= node.spec.gpu_mem_mib):
            raise InvariantBroken(f"gpu {gpu} of node {node.name} would carry {milli} milli, {gpu_mem_mib} MiB")
        node.pool.set_share(node, gpu, milli, gpu_mem_mib)
        if is_first or gpu not in node.shares:
            node.pool.set_free(node, node.free_mask ^ 1 << gpu)

    def lose(self, node: Node) -> None:
        """Nothing new goes to this node; what was there keeps its books until it is given back."""
        if node.is_up:
            node.pool.unindex(node)
            node.is_up = False

    def restore(self, node: Node) -> None:
        if not node.is_up:
            node.is_up = True
            node.pool.index(node)

    def common_level(self, allocation: Allocation) -> str:
        """The level of the smallest cell that holds the whole allocation."""
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


def node_cell(spec: NodeSpec, above: dict[tuple[tuple[str, str], ...], Cell]) -> Cell:
    """The node's cell with its inner cells, hung below the cells that `within` names (made when new)."""
    for depth in range(1, len(spec.within) + 1):
        path = spec.within[:depth]
        if path not in above:
            level, name = path[-1]
            above[path] = Cell(level, name, above[path[:-1]])
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
    """The cells above this one, from the inside out."""
    found = []
    parent = cell.parent
    while parent is not None:
        found.append(parent)
        parent = parent.parent
    return found


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
