"""AntMan's placement (Xiao et al., "AntMan", OSDI'20): guaranteed jobs ignore opportunistic ones, which go to the GPU
with the lowest use.

A guaranteed job needs quota. It takes free GPUs, else also GPUs with only opportunistic jobs, if its memory fits beside
theirs. An opportunistic job of one GPU goes to the GPU with the lowest utilisation, if that is below a limit, its
memory fits and fewer than `per_gpu` opportunistic jobs are there; one of several GPUs begins on idle ones.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from skep.core.cluster import WHOLE, Allocation, Slice
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Plan
from skep.core.share import Tenant
from skep.core.tasks import needs
from skep.core.view import ClusterView, JobView, NodeView, View
from skep.policies.order.classes import LEND, Classes, claim_of
from skep.policies.place.base import Place
from skep.policies.place.beside import Beside, Verdict, is_booked


class Lend(Beside):
    """Mode `lend`: guaranteed jobs have whole GPUs, opportunistic ones have no guaranteed part."""

    name = "antman"
    mode = LEND

    def __init__(
        self, beneath: Place, order: Classes, *, per_gpu: int = 1, busy: float = 0.8, is_sharing: bool = True
    ) -> None:
        super().__init__(beneath)
        self.order = order
        self.per_gpu = per_gpu
        self.busy = busy
        """A GPU with at least this utilisation takes no opportunistic job."""
        self.is_sharing = is_sharing
        self.needs_free = not is_sharing

    def attach(self, view: View) -> None:
        self.view = view
        super().attach(view)

    def shares(self, job: JobSpec) -> bool:
        """True for jobs of whole GPUs that name no other mode."""
        is_whole = all(role.gpu_milli == WHOLE for role in job.shapes[0].roles if role.gpus)
        return self.is_sharing and is_whole and (job.share is None or job.share.mode in ("", self.mode))

    def key(self, job: JobView, now_s: float) -> Hashable:
        return (super().key(job, now_s), job.spec.vc, claim_of(job))

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        claim = claim_of(job)
        if claim != "opportunistic" and shape.gpus:
            is_live = cluster is self.view.cluster
            has_quota = self.order.is_within(job) if is_live else self.order.could_ever(job)
            found = self._guaranteed(cluster, plan, job, shape, now_s) if has_quota else None
            if found is not None or claim == "guaranteed" or not self.shares(job.spec):
                return found
        if shape.gpus:
            return super().seek(cluster, plan, job, shape, now_s)
        return self.beneath.seek(cluster, plan, job, shape, now_s)

    def _guaranteed(
        self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float
    ) -> Allocation | None:
        found = self.beneath.seek(cluster, plan, job, shape, now_s)
        if not self.shares(job.spec):
            return found
        if found is None and cluster is self.view.cluster:
            found = self._over_guests(cluster, plan, job, shape, now_s)
        return None if found is None else found.on_terms(mode=LEND, milli=WHOLE, limit=WHOLE)

    def _over_guests(
        self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float
    ) -> Allocation | None:
        """Where it would be if opportunistic jobs had no compute; they keep their memory and CPUs."""
        placed = [guest for guest in self.order.guests() if guest.allocation and guest.allocation.terms.mode == LEND]
        guests = [guest for guest in placed if is_booked(cluster, guest)]
        if not guests:
            return None
        mark = plan.mark()
        for guest in guests:
            assert guest.allocation is not None
            plan.vacate(guest)
            plan.reserve(guest.allocation.parked())
        found = self.beneath.seek(cluster, plan, job, shape, now_s)
        plan.rollback(mark)
        return found

    def judge(self, job: JobView, role: Role, node: NodeView, gpu: int) -> Verdict | None:
        if node.memory_left(gpu) < needs(role)[2]:
            return None
        there = [tenant for tenant in node.tenants(gpu) if tenant.limit]
        if not there:
            return Verdict((0,)) if node.free_mask >> gpu & 1 else None
        guests = [tenant for tenant in there if not tenant.milli]
        if job.gpu_count > 1 or len(guests) >= self.per_gpu or any(tenant.mode != LEND for tenant in there):
            return None
        used = sum(self._use(tenant) for tenant in there)
        return Verdict((round(used * WHOLE),)) if used < self.busy else None

    def _use(self, tenant: Tenant) -> float:
        """The part of the GPU that a tenant uses: as measured for its model, else as last seen; unknown counts as all
        of it."""
        job = self.jobs.get(tenant.owner)
        if job is None:
            return 1.0
        known = self.view.knowledge.use(job.spec.model)
        if known is not None:
            return max(known)
        return 1.0 if job.share is None else job.share

    def terms(self, job: JobSpec, piece: Slice, verdict: Verdict) -> Slice:
        return msgspec.structs.replace(piece, milli=0, limit=WHOLE, mode=LEND)
