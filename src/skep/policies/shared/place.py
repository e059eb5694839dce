"""Any placement, of which only what can be bound counts."""

from __future__ import annotations

from collections.abc import Iterator

from skep.core.cluster import Allocation, Cluster, Node, Pool
from skep.core.job import Job
from skep.core.model import Shape
from skep.policies.place import Place
from skep.policies.shared.clusters import VcCluster


class Bindable(Place):
    """Virtual gpus may be free and still have no healthy, or no permitted, physical ones behind them."""

    def __init__(self, inner: Place) -> None:
        self.inner = inner
        self.name = inner.name

    @classmethod
    def around(cls, place: Place) -> Bindable:
        return place if isinstance(place, Bindable) else cls(place)

    def find(self, cluster: Cluster, job: Job, shape: Shape, now_s: float) -> Allocation | None:
        if not isinstance(cluster, VcCluster):
            return self.inner.find(cluster, job, shape, now_s)
        cluster.is_trial = True
        found = self.inner.find(cluster, job, shape, now_s)
        cluster.is_trial = False
        return found if found is None or cluster.could_bind(found) else None

    def keeps_together(self, job: Job, now_s: float) -> bool:
        return self.inner.keeps_together(job, now_s)

    def prefer(self, cluster: Cluster, pool: Pool, job: Job) -> Iterator[Node]:
        return self.inner.prefer(cluster, pool, job)

    def key(self, job: Job, now_s: float) -> int:
        return self.inner.key(job, now_s)

    def changes_at(self, job: Job, now_s: float) -> float:
        return self.inner.changes_at(job, now_s)
