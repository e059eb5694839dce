"""Salus' lanes: which jobs fit on one GPU, and which of them take turns (Yu and Chowdhury, "Salus", MLSys'20).

A job keeps its persistent memory P on the GPU all the time and needs its ephemeral memory E while it runs an iteration.
A lane is ephemeral memory that its jobs use one after the other, as large as the largest of them needs: the sum of all
P and of all lanes stays within the GPU. A job opens a lane of its own if P + E are free; else it joins the smallest
lane that is large enough, if P is free; else it enlarges a lane, the smallest first, if P and the missing part of the
lane are free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from skep.core.cluster import WHOLE, Slice
from skep.core.model import JobSpec, Role
from skep.core.share import Tenant
from skep.core.tasks import needs
from skep.core.view import JobView, NodeView
from skep.policies.place.base import Place
from skep.policies.place.beside import Beside, Verdict


class LaneMemory(NamedTuple):
    """Memory of a job, in MiB."""

    persistent: int
    ephemeral: int


class Found(NamedTuple):
    """How a job gets into a lane: 0 opens one, 1 joins one, 2 enlarges one."""

    step: int
    lane: str = ""
    size: int = 0
    """The previous size of the lane."""


def lanes_of(tenants: Iterable[Tenant]) -> dict[str, int]:
    """The size of each lane."""
    sizes: dict[str, int] = {}
    for tenant in tenants:
        if tenant.limit:
            sizes[tenant.group] = max(sizes.get(tenant.group, 0), tenant.ephemeral_mib)
    return sizes


def find_lane(need: LaneMemory, free_mib: int, lanes: Mapping[str, int]) -> Found | None:
    """By the rule of the paper; None if the job must wait."""
    if need.persistent + need.ephemeral <= free_mib:
        return Found(0)
    by_size = sorted((size, lane) for lane, size in lanes.items())
    for size, lane in by_size:
        if size >= need.ephemeral and need.persistent <= free_mib:
            return Found(1, lane, size)
    for size, lane in by_size:
        if need.persistent + max(need.ephemeral - size, 0) <= free_mib:
            return Found(2, lane, size)
    return None


class Lanes(Beside):
    """Jobs of one GPU in lanes: in a lane of their own on the GPU with the fewest jobs, else in that of others.

    `within` decides which jobs run: `fifo` one job of a GPU at a time, `pack` all that have a lane of their own, `rr`
    the jobs of a lane in equal turns, `fair` in turns that make memory × time equal.
    """

    name = "salus"
    mode = "lane"

    def __init__(self, beneath: Place, within: str = "rr") -> None:
        super().__init__(beneath)
        self.within = within

    def shares(self, job: JobSpec) -> bool:
        """True for jobs of a single GPU that state how much of its memory they need, unless they name another mode."""
        role = job.shapes[0].roles[0]
        is_one = len(job.shapes[0].roles) == 1 and role.gpus * role.count == 1
        named = "" if job.share is None else job.share.mode
        return is_one and role.gpu_mem_gib > 0 and named in ("", self.mode)

    def is_indexed(self, job: JobView) -> bool:
        return True

    def judge(self, job: JobView, role: Role, node: NodeView, gpu: int) -> Verdict | None:
        there = [tenant for tenant in node.tenants(gpu) if tenant.limit]
        if not there and not node.free_mask >> gpu & 1:
            return None
        if any(tenant.mode != self.mode for tenant in there):
            return None
        found = find_lane(need_of(job.spec, role), node.memory_left(gpu), lanes_of(there))
        if found is None or (there and self.within == "fifo") or (found.step and self.within == "pack"):
            return None
        return Verdict((found.step, found.size if found.step else len(there)), found.lane)

    def terms(self, job: JobSpec, piece: Slice, verdict: Verdict) -> Slice:
        ephemeral_mib = need_of(job, job.shapes[0].roles[0]).ephemeral
        is_fair = self.within == "fair" and piece.gpu_mem_mib  # a trial may leave the memory out
        weight = max(round(2**20 / piece.gpu_mem_mib), 1) if is_fair else 1
        return msgspec.structs.replace(
            piece,
            milli=0,
            limit=WHOLE,
            mode=self.mode,
            group=verdict.group or job.id,
            weight=weight,
            ephemeral_mib=ephemeral_mib,
        )


def need_of(job: JobSpec, role: Role) -> LaneMemory:
    """Memory that is not declared as ephemeral is needed all the time."""
    total_mib = needs(role)[2]
    ephemeral_gib = 0.0 if job.share is None else job.share.ephemeral_gib
    ephemeral_mib = min(math.ceil(ephemeral_gib * 1024 - 1e-6), total_mib)
    return LaneMemory(total_mib - ephemeral_mib, ephemeral_mib)
