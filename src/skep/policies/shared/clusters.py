"""What a VC sees as its cluster, and the physical GPUs behind it.

Three ways to share, one interface: the plans of a VC are booked here, on GPUs of the VC's cluster; `physical` returns
the real GPUs behind them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence

from skep.core.changes import Changes
from skep.core.cluster import WHOLE, Allocation, Cluster, NodeSpec
from skep.core.plan import PlanBooks
from skep.core.refusal import Cause
from skep.core.state import State
from skep.core.view import ClusterView, NodeView, PoolView, View

Gpus = tuple[tuple[int, int], ...]
"""Physical GPUs, as (node, number on it)."""


class VcBooks:
    """The books of a VC; GPUs that are taken have a physical counterpart."""

    is_whole = False
    """True if its GPUs are the physical ones, so that a booking here is a physical booking."""

    pinned = ""
    """The name of the pinned cell, if this is one."""

    ignores_bad = False
    """True during a trial in which all nodes are in use."""

    is_refused = False
    """True if free cells could not be used (`allows`) since this was last reset."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def shown(self) -> ClusterView:
        """What the VC's planner sees."""
        return self.cluster

    def over(self, whole: PlanBooks) -> PlanBooks:
        """Where plans of this VC are booked, given the books of the whole cluster."""
        return self

    def blank(self, whole: View) -> tuple[View, VcBooks]:
        """The same with no allocations and no bindings, as part of another whole."""
        cluster = self.cluster.blank()
        return State(cluster, whole.knowledge), VcBooks(cluster)

    def take(self, allocation: Allocation, owner: int) -> None:
        self.cluster.take(allocation, owner)

    def give(self, allocation: Allocation, owner: int) -> None:
        self.cluster.give(allocation, owner)

    def reserve(self, allocation: Allocation) -> None:
        """Trials do not bind anything."""
        self.cluster.take(allocation)

    def release(self, allocation: Allocation) -> None:
        self.cluster.give(allocation)

    def allows(self, allocation: Allocation) -> bool:
        return True

    def nodes_behind(self) -> Collection[int] | None:
        """The numbers of the nodes on which its own depend; None: all."""
        return None

    @contextlib.contextmanager
    def all_up(self) -> Iterator[None]:
        """For a trial: as if all nodes were in use."""
        down = [] if self.is_whole else [node for node in self.cluster.nodes if not node.is_up]
        self.ignores_bad = True
        for node in down:
            self.cluster.restore(node)
        try:
            yield
        finally:
            self.ignores_bad = False
            for node in down:
                self.cluster.lose(node)

    def physical(self, allocation: Allocation) -> Allocation:
        return allocation

    def has_nodes(self, allocation: Allocation) -> bool:
        """Otherwise it is from a log in which pinned cells were among the nodes of a VC."""
        return all(piece.node < len(self.shown.nodes) for piece in allocation.slices)

    def gpus_behind(self, allocation: Allocation) -> Gpus:
        """The physical GPU behind each virtual one, if that does not follow from the allocations."""
        return ()

    def adopt(self, allocation: Allocation, gpus: Gpus, owner: int) -> None:
        """Take an allocation that already runs on these physical GPUs."""
        self.take(allocation, owner)

    def ended(self, allocation: Allocation, owner: int) -> None:
        """Remove the allocation of a job whose physical GPUs are already free."""
        self.give(allocation, owner)

    def forget(self, allocation: Allocation) -> Callable[[], None]:
        """Drop what is kept in case it is taken again. Returns how to undo that."""
        return lambda: None


class PrivateBooks(VcBooks):
    """Hardware of the VC's own: its nodes are a range of the nodes of the whole cluster."""

    def __init__(self, specs: list[NodeSpec], first: int, pinned: str = "") -> None:
        super().__init__(Cluster(specs))
        self.first = first
        self.pinned = pinned

    def follow(self, whole: ClusterView) -> None:
        """Its nodes are up when the physical ones are."""
        for node, real in zip(self.cluster.nodes, whole.nodes[self.first :], strict=False):
            (self.cluster.restore if real.is_up else self.cluster.lose)(node)

    def physical(self, allocation: Allocation) -> Allocation:
        return allocation.renumbered({node: node + self.first for node in allocation.nodes()})


class NumberCluster:
    """The shared nodes themselves, of which the VC may use a number of GPUs; which ones is not guaranteed."""

    def __init__(self, whole: ClusterView, quota: int) -> None:
        self.whole = whole
        self.quota = quota
        self.used_milli = 0
        """In thousandths of a GPU, because fractions would not add up exactly."""

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
    """Counts what the VC has; the GPUs are booked with the whole cluster."""

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
    """The books of the whole cluster, on which a VC may take a number of GPUs."""

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
