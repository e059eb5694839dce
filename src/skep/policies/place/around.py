"""A placement around another one: it places some jobs by itself, the rest by the inner placement."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from skep.core.view import ClusterView, JobView, NodeView, PoolView, View
from skep.policies.place.base import Picks, Place


class Around(Place):
    """Delegates everything to the inner placement."""

    has_keys = jumps = True

    def __init__(self, beneath: Place) -> None:
        self.beneath = beneath

    def attach(self, view: View) -> None:
        super().attach(view)
        self.beneath.attach(view)

    def keeps_together(self, job: JobView, now_s: float) -> bool:
        return self.beneath.keeps_together(job, now_s)

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        return self.beneath.plain(cluster, pool, count, job)

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        return self.beneath.prefer(cluster, pool, job, among)

    def key(self, job: JobView, now_s: float) -> Hashable:
        return self.beneath.key(job, now_s)

    def changes_at(self, job: JobView, now_s: float) -> float:
        return self.beneath.changes_at(job, now_s)
