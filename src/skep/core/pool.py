"""Indexes over what is free: the nodes of one gpu type.

For each number of free gpus the set of nodes that have just so many, kept as the bits of one integer: "the fullest
node with at least 3 free gpus, lowest first" is then two machine operations, whatever the size of the cluster, and a
change flips two bits. Shared gpus are in buckets: by the thousandths left, then by the memory left, the nodes that
have such a gpu.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from skep.core.allocation import WHOLE, bits

if TYPE_CHECKING:
    from skep.core.cluster import Cell, Node
    from skep.core.ledger import Shared

NONE = -1
"""Less memory than any gpu has left."""


class Pool:
    """The nodes of one gpu type. Nodes that are down are in no index."""

    __slots__ = (
        "by_free",
        "by_index",
        "free",
        "gpu_type",
        "idle",
        "levels",
        "nodes",
        "racks",
        "roomiest",
        "shared",
        "shared_counts",
        "shared_milli",
        "size_max",
        "total",
        "up",
    )

    def __init__(self, gpu_type: str) -> None:
        self.gpu_type = gpu_type
        self.nodes: list[Node] = []
        self.by_index: dict[int, Node] = {}
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
        self.shared: list[dict[int, int]] = []
        """shared[milli][MiB]: bits of the nodes with a shared gpu of which just so much is left. This and the next two
        are made when the first gpu is shared."""
        self.levels = 0
        """Bits of the milli for which there is a shared gpu."""
        self.roomiest: list[int] = []
        """roomiest[milli]: the most memory left on a shared gpu with so many milli left."""
        self.shared_counts: list[int] = []
        """shared_counts[milli]: shared gpus with so many milli left."""
        self.shared_milli = 0
        """Thousandths left on all shared gpus."""

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.by_index[node.index] = node
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
        for share in node.shares.values():
            if share.milli:
                self._enter(node, share)

    def unindex(self, node: Node) -> None:
        self.up ^= node.bit
        self.free -= node.free
        self.by_free[node.free] ^= node.bit
        if node.free == node.gpu_count:
            self.idle[node.gpu_count] ^= node.bit
        shares = list(node.shares.values())
        while shares:
            share = shares.pop()
            if share.milli:
                self._strike(node, share, shares)

    # Shared gpus -----------------------------------------------------------------------------------------------

    def set_share(self, node: Node, gpu: int, after: Shared | None) -> None:
        """Make the gpu carry just so much; the index follows. It is free as long as nobody has any of its time."""
        before = node.shares.get(gpu)
        if after is not None:
            node.shares[gpu] = after
        else:
            del node.shares[gpu]
        was_used = before is not None and before.milli > 0
        is_used = after is not None and after.milli > 0
        if node.is_up:
            if before is not None and was_used:
                self._strike(node, before, node.shares.values())
            if after is not None and is_used:
                self._enter(node, after)
        if was_used != is_used:
            set_free(node, node.free_mask ^ 1 << gpu)

    def _enter(self, node: Node, share: Shared) -> None:
        if not self.shared:
            self.shared = [{} for _ in range(WHOLE)]
            self.roomiest, self.shared_counts = [NONE] * WHOLE, [0] * WHOLE
        left = WHOLE - share.milli
        left_mib = node.spec.gpu_mem_mib - share.memory_mib
        self.shared_milli += left
        self.shared_counts[left] += 1
        bucket = self.shared[left]
        if not bucket:
            self.levels |= 1 << left
        bucket[left_mib] = bucket.get(left_mib, 0) | node.bit
        if left_mib > self.roomiest[left]:
            self.roomiest[left] = left_mib

    def _strike(self, node: Node, share: Shared, others: Collection[Shared]) -> None:
        """`others`: what else the node's gpus carry; one that has just as much left keeps it in the bucket."""
        milli, memory_mib = share.milli, share.memory_mib
        left = WHOLE - milli
        left_mib = node.spec.gpu_mem_mib - memory_mib
        self.shared_milli -= left
        self.shared_counts[left] -= 1
        for other in others:
            if other.milli == milli and other.memory_mib == memory_mib:
                return
        bucket = self.shared[left]
        nodes = bucket[left_mib] ^ node.bit
        if nodes:
            bucket[left_mib] = nodes
            return
        del bucket[left_mib]
        if not bucket:
            self.levels ^= 1 << left
            self.roomiest[left] = NONE
        elif left_mib == self.roomiest[left]:
            self.roomiest[left] = max(bucket)

    def with_room(self, milli: int) -> int:
        """GPUs of which so many thousandths are free."""
        return self.free if milli >= WHOLE else self.free + sum(self.shared_counts[milli:])

    def has_share(self, milli: int, memory_mib: int) -> bool:
        """Whether a shared gpu has that much left."""
        return bool(self.levels >> milli) and max(self.roomiest[milli:]) >= memory_mib

    def shares(self, milli: int, memory_mib: int) -> Iterator[tuple[Node, int]]:
        """Nodes, and the mask of their shared gpus, with that much left: the fullest first, then by number of the node.

        A node comes once for each amount of thousandths that is left on one of its gpus.
        """
        if not self.has_share(milli, memory_mib):
            return
        for level in bits(self.levels >> milli << milli):
            if self.roomiest[level] >= memory_mib:
                nodes = 0
                for left_mib, those in self.shared[level].items():
                    if left_mib >= memory_mib:
                        nodes |= those
                for index in bits(nodes):
                    node = self.by_index[index]
                    yield node, node.shared_mask(level, memory_mib)


def set_free(node: Node, mask: int) -> None:
    """Make just these gpus the free ones of the node."""
    free, before = mask.bit_count(), node.free
    if node.is_up:
        pool, bit, size = node.pool, node.bit, node.gpu_count
        by_free = pool.by_free
        by_free[before] ^= bit
        by_free[free] ^= bit
        pool.free += free - before
        if before == size or free == size:
            pool.idle[size] ^= bit
    node.free = free
    node.free_mask = mask
