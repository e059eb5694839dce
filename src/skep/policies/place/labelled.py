"""KubeShare's placement of parts of GPUs by labels (Yeh et al., "KubeShare", HPDC'20).

A job with an affinity label joins a GPU that has it; if no GPU does, it begins a new one. Jobs with equal anti-affinity
labels never share a GPU; jobs share one only if their exclusion labels are equal. Among the remaining GPUs: best fit on
those without an affinity label, then worst fit on those with one (they keep space for their own kind), then an idle
GPU. Ties go to the lowest node, then GPU.

Parts are shared by tokens, or in the mode that a job names: `pack`, `mps`, `mig`, in simulations also `instant`. The
requests on a GPU add up to the GPU at most, in any of them. A MIG instance also needs a free place among the slots, and
its memory must suffice.
"""

from __future__ import annotations

import msgspec

from skep.core.cluster import WHOLE, Allocation, Slice, bits
from skep.core.ledger import OTHERS, TRIAL
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Plan
from skep.core.share import MIG, MODES, Share, mig_memory_mib, mig_slot
from skep.core.tasks import needs
from skep.core.view import ClusterView, JobView, NodeView
from skep.policies.place.base import Place
from skep.policies.place.beside import Beside, Verdict, is_booked

UNLABELLED = Share()
TOKEN = "token"
NAMED = frozenset({TOKEN, "pack", "mps", MIG, "instant"})
"""The modes that a job may name. Those of share groups need more than a part of a GPU."""


def share_of(job: JobSpec) -> Share:
    return job.share or UNLABELLED


def go_together(one: Share, other: Share) -> bool:
    """True if the labels of both allow them on one GPU."""
    if one.anti_affinity and one.anti_affinity == other.anti_affinity:
        return False
    return one.exclusion == other.exclusion


def mode_of(job: JobSpec) -> str:
    return share_of(job).mode or TOKEN


class Labelled(Beside):
    """The request is guaranteed, the limit is the most a job gets, if its mode gives more than the request."""

    name = "kubeshare"

    def __init__(self, beneath: Place, *, is_simulated: bool = True) -> None:
        super().__init__(beneath)
        self.modes = frozenset(mode for mode in NAMED if is_simulated or not MODES[mode].is_simulated)

    def shares(self, job: JobSpec) -> bool:
        """True for jobs that name one of the modes, or request parts of GPUs and name none."""
        named = share_of(job).mode
        return named in self.modes or (not named and job.shapes[0].gpu_milli < WHOLE)

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        label = share_of(job.spec).affinity
        self.homes = self._homes(cluster, label) if label else set()
        return super().seek(cluster, plan, job, shape, now_s)

    def _homes(self, cluster: ClusterView, label: str) -> set[tuple[int, int]]:
        """(node, GPU) of all GPUs of this cluster, which may be an empty one, with this label from jobs in our mode."""
        found = set()
        for job in self.jobs.values():
            held = job.allocation
            if held is None or share_of(job.spec).affinity != label or held.terms.mode not in self.modes:
                continue
            if is_booked(cluster, job):
                found |= {(piece.node, gpu) for piece in held.slices for gpu in bits(piece.gpus)}
        return found

    def is_indexed(self, job: JobView) -> bool:
        """A job with an affinity looks for others with its label, which the books of a node do not have."""
        return not share_of(job.spec).affinity

    def judge(self, job: JobView, role: Role, node: NodeView, gpu: int) -> Verdict | None:
        left, memory_mib, mode = node.milli_left(gpu), needs(role)[2], mode_of(job.spec)
        if left < role.gpu_milli or node.memory_left(gpu) < memory_mib:
            return None
        if self.homes and (node.index, gpu) not in self.homes:
            return None
        mine, tenants = share_of(job.spec), node.tenants(gpu)
        slot = 0
        if mode == MIG:
            place = mig_slot(role.gpu_milli, (tenant for tenant in tenants if tenant.mode == MIG))
            if place is None or memory_mib > mig_memory_mib(role.gpu_milli, node.spec.gpu_mem_mib):
                return None
            slot = place
        if not tenants:
            return Verdict((2, 0), slot=slot) if node.free_mask >> gpu & 1 else None
        if mine.affinity and not self.homes and tenants[0].owner != TRIAL:
            return None
        if any(tenant.owner == OTHERS or (tenant.limit and tenant.mode != mode) for tenant in tenants):
            return None
        # What is already reserved belongs to tasks of the same job.
        there = [mine if tenant.owner == TRIAL else share_of(self.jobs[tenant.owner].spec) for tenant in tenants]
        if not all(go_together(mine, other) for other in there if other is not mine):
            return None
        has_label = any(other.affinity for other in there)
        return Verdict((1, -left) if has_label else (0, left), slot=slot)

    def terms(self, job: JobSpec, piece: Slice, verdict: Verdict) -> Slice:
        mode = mode_of(job)
        limit = max(share_of(job).limit_milli or WHOLE, piece.milli) if MODES[mode].may_exceed else piece.milli
        return msgspec.structs.replace(piece, mode=mode, limit=limit, slot=verdict.slot)
