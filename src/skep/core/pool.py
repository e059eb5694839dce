"""Indexes over free resources: the nodes of one GPU type.

For each number of free GPUs there is the set of nodes with exactly that many, kept as the bits of one integer: finding
"the fullest node with at least 3 free GPUs, lowest first" takes two machine operations at any cluster size, and a
change flips two bits. GPUs that jobs share without a share mode are in buckets, by the thousandths left and then by the
memory left; each bucket has the nodes with such a GPU. The largest memory left for every number of thousandths, and for
every `BLOCK` of them, shows at once if nothing fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skep.core.allocation import WHOLE, bits
from skep.core.tags import has_tags

if TYPE_CHECKING:
    from skep.core.cluster import Cell, Node
    from skep.core.ledger import GpuShares

NONE = -1
"""Less than any real amount of memory left."""

BLOCK = 25
"""The number of buckets that are skipped at once if none of them has a GPU with enough memory left."""


class Pool:
    """The nodes of one GPU type. Nodes that are down are in no index."""

    __slots__ = (
        "by_free",
        "by_index",
        "free",
        "gpu_type",
        "nodes",
        "racks",
        "roomiest",
        "shared",
        "shared_counts",
        "size_max",
        "sized",
        "stale",
        "tagged_by",
        "tops",
        "total",
        "up",
    )

    def __init__(self, gpu_type: str) -> None:
        self.gpu_type = gpu_type
        self.nodes: list[Node] = []
        self.by_index: dict[int, Node] = {}
        self.racks: dict[Cell | None, int] = {}
        """Bits of the nodes directly below each cell."""
        self.size_max = 0
        self.tagged_by: dict[tuple[str, ...], int] = {}
        """Answers of `tagged`."""
        self.total = 0
        self.up = 0
        """Bits of all nodes that are up."""
        self.by_free: list[int] = [0]
        """by_free[n]: bits of the nodes with n free GPUs."""
        self.free = 0
        """Free GPUs of all nodes that are up."""
        self.sized: dict[int, int] = {}
        """sized[n]: bits of the nodes of n GPUs, up or not, largest size first."""
        self.shared: list[dict[int, int]] = []
        """shared[milli][MiB]: bits of the nodes with a shared GPU of which exactly this much is left. This and the next
        three are created when the first GPU is shared."""
        self.roomiest: list[int] = []
        """roomiest[milli]: the most memory left on a shared GPU with this many milli left."""
        self.tops: list[int] = []
        """The maximum of each `BLOCK` entries of `roomiest`."""
        self.shared_counts: list[int] = []
        """shared_counts[milli]: the number of shared GPUs with this many milli left."""
        self.stale: list[Node] = []
        """Nodes whose entries in the index are out of date. The index is updated when it is read, because most trial
        bookings are undone before."""

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.by_index[node.index] = node
        self.racks[node.cell.parent] = self.racks.get(node.cell.parent, 0) | node.bit
        self.total += node.gpu_count
        if node.gpu_count > self.size_max:
            self.by_free.extend([0] * (node.gpu_count - self.size_max))
            self.size_max = node.gpu_count
        self.sized[node.gpu_count] = self.sized.get(node.gpu_count, 0) | node.bit
        self.sized = dict(sorted(self.sized.items(), reverse=True))
        self.index(node)

    def index(self, node: Node) -> None:
        self.up |= node.bit
        self.free += node.free
        self.by_free[node.free] |= node.bit
        for share in node.shares.values():
            if share.mode == "":
                self._enter(node, share)

    def unindex(self, node: Node) -> None:
        self.follow()
        self.up ^= node.bit
        self.free -= node.free
        self.by_free[node.free] ^= node.bit
        for share in node.shares.values():
            if share.mode == "":
                self._strike(node, share)

    def set_free(self, node: Node, free_mask: int) -> None:
        """Note which GPUs of the node are free now."""
        before = node.free
        free = free_mask.bit_count()
        node.free_mask = free_mask
        node.free = free
        if node.is_up:
            by_free, bit = self.by_free, node.bit
            by_free[before] ^= bit
            by_free[free] ^= bit
            self.free += free - before

    @property
    def idle(self) -> dict[int, int]:
        """idle[n]: bits of the fully free nodes of n GPUs, largest size first."""
        by_free = self.by_free
        return {size: nodes & by_free[size] for size, nodes in self.sized.items()}

    def tagged(self, needed: tuple[str, ...]) -> int:
        """Bits of the nodes, up or not, that have what these expressions say."""
        found = self.tagged_by.get(needed)
        if found is None:
            found = sum(node.bit for node in self.nodes if has_tags(frozenset(node.spec.tags), needed))
            self.tagged_by[needed] = found
        return found

    def having(self, gpus: int) -> int:
        """Bits of the nodes with at least this many free GPUs."""
        nodes = 0
        for those in self.by_free[gpus:]:
            nodes |= those
        return nodes

    # Shared GPUs -----------------------------------------------------------------------------------------------

    def set_share(self, node: Node, gpu: int, before: GpuShares, after: GpuShares) -> None:
        """Note what is booked on the GPU now. It is free as long as no tenant has compute there."""
        if after.tenants:
            node.shares[gpu] = after
            node.is_plain = False
        else:
            del node.shares[gpu]
        if node.is_up and gpu not in node.indexed:
            node.indexed[gpu] = before
            self.stale.append(node)
        is_used = after.mode is not None
        if is_used != (before.mode is not None) and (before.milli or after.milli or not node.is_held(gpu)):
            self.set_free(node, node.free_mask ^ 1 << gpu)

    def follow(self) -> None:
        """Update the index of shared GPUs with the changes since it was last read."""
        for node in self.stale:
            for gpu, before in node.indexed.items():
                after = node.shares.get(gpu)
                if before.mode == "":
                    self._strike(node, before)
                if after is not None and after.mode == "":
                    self._enter(node, after)
            node.indexed.clear()
        self.stale.clear()

    def _enter(self, node: Node, share: GpuShares) -> None:
        if not self.shared:
            self.shared = [{} for _ in range(WHOLE)]
            self.roomiest, self.shared_counts = [NONE] * WHOLE, [0] * WHOLE
            self.tops = [NONE] * (WHOLE // BLOCK)
        left, left_mib = WHOLE - share.milli, node.spec.gpu_mem_mib - share.memory_mib
        self.shared_counts[left] += 1
        lefts, kind = node.lefts, left_mib * WHOLE + left
        if kind in lefts:
            lefts[kind] += 1
            return
        lefts[kind] = 1
        bucket = self.shared[left]
        bucket[left_mib] = bucket.get(left_mib, 0) | node.bit
        if left_mib > self.roomiest[left]:
            self.roomiest[left] = left_mib
            if left_mib > self.tops[left // BLOCK]:
                self.tops[left // BLOCK] = left_mib

    def _strike(self, node: Node, share: GpuShares) -> None:
        left, left_mib = WHOLE - share.milli, node.spec.gpu_mem_mib - share.memory_mib
        self.shared_counts[left] -= 1
        lefts, kind = node.lefts, left_mib * WHOLE + left
        count = lefts.pop(kind)
        if count > 1:
            lefts[kind] = count - 1
            return
        bucket = self.shared[left]
        nodes = bucket.pop(left_mib) ^ node.bit
        if nodes:
            bucket[left_mib] = nodes
        elif left_mib == self.roomiest[left]:
            self.roomiest[left] = max(bucket, default=NONE)
            block = left // BLOCK
            if left_mib == self.tops[block]:
                self.tops[block] = max(self.roomiest[block * BLOCK : (block + 1) * BLOCK])

    @property
    def shared_milli(self) -> int:
        """Thousandths left on all shared GPUs."""
        if self.stale:
            self.follow()
        return sum(left * count for left, count in enumerate(self.shared_counts) if count)

    def with_room(self, milli: int) -> int:
        """GPUs of which this many thousandths are free."""
        if self.stale:
            self.follow()
        return self.free + sum(self.shared_counts[milli:])

    def shares(self, milli: int, memory_mib: int) -> Iterator[tuple[Node, int]]:
        """Nodes, and the mask of their shared GPUs, with this much left: fullest first, then by node number.

        A node is returned once for each amount of thousandths left on one of its GPUs.
        """
        if self.stale:
            self.follow()
        for block in range(milli // BLOCK, len(self.tops)):
            if self.tops[block] >= memory_mib:
                for level in range(max(block * BLOCK, milli), (block + 1) * BLOCK):
                    if self.roomiest[level] >= memory_mib:
                        yield from self._with_left(level, memory_mib)

    def _with_left(self, milli: int, memory_mib: int) -> Iterator[tuple[Node, int]]:
        nodes = 0
        for left_mib, those in self.shared[milli].items():
            if left_mib >= memory_mib:
                nodes |= those
        for index in bits(nodes):
            node = self.by_index[index]
            yield node, node.shared_mask(milli, memory_mib)
