"""Orders by the use of a group: dominant share (DRF), and use of a capacity queue's quota (YARN-CS)."""

from __future__ import annotations

import math
from collections.abc import Hashable

from skep.core.cluster import UNLIMITED
from skep.core.history import History
from skep.core.plan import Plan
from skep.core.refusal import Cause
from skep.core.view import ClusterView, JobView, View
from skep.core.weights import EQUAL as EQUAL_WEIGHTS
from skep.core.weights import Weights
from skep.policies.order.base import Order

Amounts = tuple[int, int, int]
"""Thousandths of GPUs and of CPUs, MiB of memory. Integers, so that the use of a group does not depend on the order in
which its jobs came and went."""

NOTHING: Amounts = (0, 0, 0)


class ByUse(Order):
    """First come, first served within a group; groups by what they hold."""

    hears_starts = hears_stops = True

    def attach(self, view: View) -> None:
        self.used: dict[Hashable, Amounts] = {}
        self.capacity = capacity_of(view.cluster)
        for job in view.placed_jobs():
            if job.allocation is not None:
                self._count(job, +1)

    def key(self, job: JobView, now_s: float) -> float:
        return 0.0

    def entered(self, job: JobView, plan: Plan, now_s: float) -> None:
        self._count(job, +1)

    def left(self, job: JobView, plan: Plan, now_s: float) -> None:
        self._count(job, -1)

    def _count(self, job: JobView, sign: int) -> None:
        group = self.group(job)
        held = self.used.get(group, NOTHING)
        asked = amounts_of(job)
        gpus, cpu, memory = (have + sign * want for have, want in zip(held, asked, strict=True))
        self.used[group] = (gpus, cpu, memory)

    def used_by(self, group: Hashable) -> float:
        """GPUs."""
        return self.used.get(group, NOTHING)[0] / 1000


class DominantShare(ByUse):
    """The group with the smallest dominant share for its weight goes first (progressive filling, by whole gangs)."""

    has_groups = ranks_groups = True

    def __init__(self, weights: Weights = EQUAL_WEIGHTS) -> None:
        self.weights = weights

    def attach(self, view: View) -> None:
        self.shares: dict[Hashable, float] = {}
        super().attach(view)

    def group(self, job: JobView) -> Hashable:
        return job.spec.user or job.spec.vc

    def group_key(self, group: Hashable) -> float:
        return self.shares.get(group, 0.0)

    def _count(self, job: JobView, sign: int) -> None:
        super()._count(job, sign)
        group = self.group(job)
        parts = zip(self.used[group], self.capacity, strict=True)
        self.shares[group] = max(have / there for have, there in parts) / weight_of(self.weights, job)


def weight_of(weights: Weights, job: JobView) -> float:
    """Of the job's user, or of its VC where no user is named."""
    return weights.of_user(job.spec.user) if job.spec.user else weights.of_vc(job.spec.vc)


EQUAL, USAGE = "equal", "usage"


class CapacityQueues(ByUse):
    """Each VC has a quota of GPUs; the one that uses the smallest part of its own goes first.

    A VC may use GPUs that others leave idle. A job that does not run while its VC is at its quota waits for quota.
    Quotas are given, equal, or in proportion to what each VC has used so far, as seen: a run counts when it has ended
    or changed. A new VC counts as an average one.
    """

    has_groups = ranks_groups = may_refuse = True

    def __init__(self, quotas: str | dict[str, float], vcs: tuple[str, ...] = ()) -> None:
        self.kind = quotas
        self.known = vcs

    def attach(self, view: View) -> None:
        self.gpu_total = view.cluster.gpu_total
        self.past = view.knowledge.history if self.kind == USAGE else None
        self.vcs = dict.fromkeys((*self.known, *(job.spec.vc for job in view.jobs.values())))
        self._quotas: dict[str, float] | None = None
        self._worked_out_at = -1.0
        super().attach(view)

    @property
    def quotas(self) -> dict[str, float]:
        past = self.past
        if self._quotas is None or (past is not None and self._worked_out_at != past.used_gpu_s):
            self._worked_out_at = -1.0 if past is None else past.used_gpu_s
            self._quotas = self.kind if isinstance(self.kind, dict) else self._shared_out(past)
        return self._quotas

    def _shared_out(self, past: History | None) -> dict[str, float]:
        used = {vc: 0.0 if past is None else past.used_by(vc) for vc in self.vcs}
        known = [gpu_s for gpu_s in used.values() if gpu_s > 0]
        average = math.fsum(known) / len(known) if known else 1.0
        parts = {vc: gpu_s or average for vc, gpu_s in used.items()}
        total = math.fsum(parts.values())  # independent of the order in which VCs became known
        return {vc: self.gpu_total * part / total for vc, part in parts.items()}

    def group(self, job: JobView) -> Hashable:
        if job.spec.vc not in self.vcs:
            self.vcs[job.spec.vc] = None
            self._quotas = None
        return job.spec.vc

    def group_key(self, group: Hashable) -> float:
        quota = self.quotas.get(str(group), 0.0)
        return self.used_by(group) / quota if quota else math.inf

    def is_within(self, job: JobView) -> bool:
        """True if the VC's quota would cover this job too."""
        return self.used_by(job.spec.vc) + job.gpus <= self.quotas.get(job.spec.vc, 0.0) + 1e-9

    def refuses(self, job: JobView) -> Cause | None:
        owns_all = self.quotas.get(job.spec.vc, 0.0) >= self.gpu_total
        return None if owns_all or self.is_within(job) else Cause.QUOTA

    def allowance(self, job: JobView) -> str:
        vc = job.spec.vc
        return f"VC {vc} has {self.used_by(vc):g} of the {self.quotas.get(vc, 0.0):g} GPUs of its quota"


def capacity_of(cluster: ClusterView) -> tuple[float, float, float]:
    """In the units of `Amounts`. An unlimited resource is never dominant."""
    cpu_milli = sum(node.spec.cpu_milli for node in cluster.nodes)
    memory_mib = sum(node.spec.memory_mib for node in cluster.nodes)
    return (
        cluster.gpu_total * 1000 or math.inf,
        cpu_milli if cpu_milli < UNLIMITED else math.inf,
        memory_mib if memory_mib < UNLIMITED else math.inf,
    )


def amounts_of(job: JobView) -> Amounts:
    roles = job.shapes[0].roles
    cpu = sum(role.count * role.cpu for role in roles)
    memory_gib = sum(role.count * role.memory_gib for role in roles)
    return (round(job.gpus * 1000), round(cpu * 1000), round(memory_gib * 1024))
