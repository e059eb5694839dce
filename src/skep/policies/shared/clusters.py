"""What a VC sees as its cluster, and what its gpus really are.

Three ways to share, one interface: the plans of a VC are booked here, on gpus of what the VC sees as its cluster;
`physical` says which of the real one these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skep.core.changes import Changes
from skep.core.cluster import WHOLE, Allocation, Cluster, NodeSpec
from skep.core.plan import PlanBooks
from skep.core.refusal import Cause
from skep.core.state import State
from skep.core.view import ClusterView, NodeView, PoolView, View

Gpus = tuple[tuple[int, int], ...]
"""Physical gpus, as (node, number on it)."""


class VcBooks:
    """Books of a VC's own; gpus that are taken have a physical counterpart."""

    is_whole = False
    """Whether its gpus are the physical ones, so that taking them takes those."""

    pinned = ""
    """The pinned cell that it is, of those of its VC."""

    is_refused = False
    """Whether cells were free and could not be had (`allows`) since somebody reset this."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def shown(self) -> ClusterView:
        """What the VC's planner sees."""
        return self.cluster

    def over(self, whole: PlanBooks) -> PlanBooks:
        """Where plans of this VC are booked, given where those of the whole cluster are."""
        return self

    def blank(self, whole: View) -> tuple[View, VcBooks]:
        """The same with nothing on it and nothing bound, as part of another whole."""
        cluster = self.cluster.blank()
        return State(cluster, whole.knowledge), VcBooks(cluster)

    def take(self, allocation: Allocation, owner: int) -> None:
        self.cluster.take(allocation, owner)

    def give(self, allocation: Allocation, owner: int) -> None:
        self.cluster.give(allocation, owner)

    def reserve(self, allocation: Allocation) -> None:
        """Nothing is bound for that."""
        self.cluster.take(allocation)

    def release(self, allocation: Allocation) -> None:
        self.cluster.give(allocation)

    def allows(self, allocation: Allocation) -> bool:
        return True

    def physical(self, allocation: Allocation) -> Allocation:
        return allocation

    def has_nodes(self, allocation: Allocation) -> bool:
        """Otherwise it is of a time when pinned cells were among the nodes of a VC."""
        return all(piece.node < len(self.shown.nodes) for piece in allocation.slices)

    def gpus_behind(self, allocation: Allocation) -> Gpus:
        """The physical gpu behind each virtual one, where that is not plain from the allocations."""
        return ()

    def adopt(self, allocation: Allocation, gpus: Gpus, owner: int) -> None:
        """Take an allocation that runs on these physical gpus already."""
        self.take(allocation, owner)

    def ended(self, allocation: Allocation, owner: int) -> None:
        """A job is gone whose physical gpus are free already."""
        self.give(allocation, owner)

    def forget(self, allocation: Allocation) -> Callable[[], None]:
        """It will not be taken again; how to take that back."""
        return lambda: None


class PrivateBooks(VcBooks):
    """Hardware of the VC's own: its nodes are a stretch of the nodes of the whole."""

    def __init__(self, specs: list[NodeSpec], first: int, pinned: str = "") -> None:
        super().__init__(Cluster(specs))
        self.first = first
        self.pinned = pinned

    def follow(self, whole: ClusterView) -> None:
        """Its nodes are up when theirs are."""
        for node, real in zip(self.cluster.nodes, whole.nodes[self.first :], strict=False):
            (self.cluster.restore if real.is_up else self.cluster.lose)(node)

    def physical(self, allocation: Allocation) -> Allocation:
        return allocation.renumbered({node: node + self.first for node in allocation.nodes()})


class NumberCluster:
    """The shared nodes themselves, of which the VC may use a number of gpus: which ones is nobody's promise."""

    def __init__(self, whole: ClusterView, quota: int) -> None:
        self.whole = whole
        self.quota = quota
        self.used_milli = 0
        """In thousandths of a gpu: fractions would not add up exactly."""

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def nodes(self) -> Sequence[NodeView]:
        return self.whole.nodes

    @property
    def pools(self) -> Sequence[PoolView]:
        return self.whole.pools

    @property
    def gpu_total(self) -> int:
        return self.whole.gpu_total

    @property
    def quota_left(self) -> float:
        return self.quota * WHOLE - self.used_milli

    def pools_for(self, gpu_types: tuple[str, ...]) -> Sequence[PoolView]:
        return self.whole.pools_for(gpu_types)

    def free_gpus(self, gpu_types: tuple[str, ...] = (), milli: int = WHOLE) -> int:
        return self.whole.free_gpus(gpu_types, milli)

    def why_not(self, gpus: int, free: int) -> Cause:
        return Cause.QUOTA if gpus * WHOLE > self.quota_left else self.whole.why_not(gpus, free)

    def neighbours(self, allocation: Allocation, owner: int) -> list[int]:
        return self.whole.neighbours(allocation, owner)

    def common_level(self, allocation: Allocation) -> str:
        return self.whole.common_level(allocation)

    def changes(self) -> Changes:
        return self.whole.changes()


class NumberBooks(VcBooks):
    """Counts what the VC has; which gpus these are is booked with the whole."""

    is_whole = True

    def __init__(self, numbers: NumberCluster) -> None:
        self.numbers = numbers

    @property
    def shown(self) -> ClusterView:
        return self.numbers

    def over(self, whole: PlanBooks) -> PlanBooks:
        return Counted(self.numbers, whole)

    def blank(self, whole: View) -> tuple[View, VcBooks]:
        blank = whole.blank()
        return blank, NumberBooks(NumberCluster(blank.cluster, self.numbers.quota))

    def adopt(self, allocation: Allocation, gpus: Gpus, owner: int) -> None:
        self.numbers.used_milli += milli_of(allocation)

    def ended(self, allocation: Allocation, owner: int) -> None:
        self.numbers.used_milli -= milli_of(allocation)


class Counted:
    """The books of the whole, on which a VC may take a number of gpus."""

    def __init__(self, numbers: NumberCluster, whole: PlanBooks) -> None:
        self.numbers = numbers
        self.whole = whole
        self.reserve = whole.reserve
        self.release = whole.release

    def take(self, allocation: Allocation, owner: int) -> None:
        self.whole.take(allocation, owner)
        self.numbers.used_milli += milli_of(allocation)

    def give(self, allocation: Allocation, owner: int) -> None:
        self.whole.give(allocation, owner)
        self.numbers.used_milli -= milli_of(allocation)

    def allows(self, allocation: Allocation) -> bool:
        return milli_of(allocation) <= self.numbers.quota_left


def milli_of(allocation: Allocation) -> int:
    return round(allocation.gpus * WHOLE)
