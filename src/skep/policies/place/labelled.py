"""KubeShare's placement of parts of GPUs by labels (Yeh et al., "KubeShare", HPDC'20).

A job with an affinity label joins a GPU that has it; if no GPU does, it begins a new one. Jobs with equal anti-affinity
labels never share a GPU; jobs share one only if their exclusion labels are equal. Among the remaining GPUs: best fit on
those without an affinity label, then worst fit on those with one (they keep space for their own kind), then an idle
GPU. Ties go to the lowest node, then GPU.
"""

from __future__ import annotations

import msgspec

from skep.core.cluster import WHOLE, Allocation, Slice, bits
from skep.core.ledger import OTHERS, TRIAL
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Plan
from skep.core.share import Share
from skep.core.tasks import needs
from skep.core.view import ClusterView, JobView, NodeView
from skep.policies.place.beside import Beside, Verdict, is_booked

UNLABELLED = Share()


def share_of(job: JobSpec) -> Share:
    return job.share or UNLABELLED


def go_together(one: Share, other: Share) -> bool:
    """True if the labels of both allow them on one GPU."""
    if one.anti_affinity and one.anti_affinity == other.anti_affinity:
        return False
    return one.exclusion == other.exclusion


class Labelled(Beside):
    """Token mode: the request is guaranteed, the limit is the most a job gets."""

    name = "kubeshare"
    mode = "token"

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        label = share_of(job.spec).affinity
        self.homes = self._homes(cluster, label) if label else set()
        return super().seek(cluster, plan, job, shape, now_s)

    def _homes(self, cluster: ClusterView, label: str) -> set[tuple[int, int]]:
        """(node, GPU) of all GPUs of this cluster, which may be an empty one, with this label from jobs in our mode."""
        found = set()
        for job in self.jobs.values():
            held = job.allocation
            if held is None or share_of(job.spec).affinity != label or held.terms.mode != self.mode:
                continue
            if is_booked(cluster, job):
                found |= {(piece.node, gpu) for piece in held.slices for gpu in bits(piece.gpus)}
        return found

    def is_indexed(self, job: JobView) -> bool:
        """A job with an affinity looks for others with its label, which the books of a node do not have."""
        return not share_of(job.spec).affinity

    def judge(self, job: JobView, role: Role, node: NodeView, gpu: int) -> Verdict | None:
        left = node.milli_left(gpu)
        if left < role.gpu_milli or node.memory_left(gpu) < needs(role)[2]:
            return None
        if self.homes and (node.index, gpu) not in self.homes:
            return None
        mine, tenants = share_of(job.spec), node.tenants(gpu)
        if not tenants:
            return Verdict((2, 0)) if node.free_mask >> gpu & 1 else None
        if mine.affinity and not self.homes and tenants[0].owner != TRIAL:
            return None
        if any(tenant.owner == OTHERS or (tenant.limit and tenant.mode != self.mode) for tenant in tenants):
            return None
        # What is already reserved belongs to tasks of the same job.
        there = [mine if tenant.owner == TRIAL else share_of(self.jobs[tenant.owner].spec) for tenant in tenants]
        if not all(go_together(mine, other) for other in there if other is not mine):
            return None
        has_label = any(other.affinity for other in there)
        return Verdict((1, -left) if has_label else (0, left))

    def terms(self, job: JobSpec, piece: Slice, group: str) -> Slice:
        limit = max(share_of(job).limit_milli or WHOLE, piece.milli)
        return msgspec.structs.replace(piece, mode=self.mode, limit=limit)
