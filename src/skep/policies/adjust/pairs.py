"""Pairs by packing score (Lucid, ASPLOS'23): a pending job runs together with one that it slows down little.

Each workload has a score by its mean speed beside others: 0 (tiny) if it keeps at least 0.95 of its speed alone, 1
(medium) from 0.85 on, else 2 (jumbo), also if it was not measured. Two jobs share their GPUs if they have the same
number, at most `gpus_max`, need less memory together than a GPU has, their scores add up to at most 2, and the
predicted service of the new one is at most twice that of the running one.
"""

from __future__ import annotations

import math

from skep.core.cluster import WHOLE, Allocation
from skep.core.model import JobSpec
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.tasks import needs
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.slices import give_alone, join, may_host, sharing_role
from skep.policies.estimate.load import forecast
from skep.policies.place.partition import Partition
from skep.policies.seats import Changed, SharedSeat

PACK = "pack"
TINY, MEDIUM, JUMBO = 0, 1, 2
SCORE_MAX = 2


class PackPairs:
    """At most two jobs on a GPU; jobs that are being profiled stay alone."""

    name = "pairs"
    needs = frozenset({Need.SHARE})

    def __init__(self, partition: Partition, *, quiet: float = 0.0, gpus_max: int = 8, ratio: float = 2.0) -> None:
        self.partition = partition
        self.quiet = quiet
        """If fewer jobs are expected in ten minutes, no pairs are made."""
        self.gpus_max = gpus_max
        self.ratio = ratio

    def attach(self, view: View) -> None:
        self.changed = Changed()

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        for seat in self.changed.take(walked.seats):
            if len(seat.members) == 1 and seat.mode == PACK:
                give_alone(plan, seat)
        is_quiet = self.quiet and forecast(view).jobs < self.quiet
        if not is_quiet and next(walked.pending_jobs(), None) is not None:
            scores = Scores(view, walked)
            profiling = {node.index for node in self.partition.nodes(view.cluster)}
            walked.offer_pending(lambda job: self._join_any(view, plan, walked, job, scores, profiling))
        return math.inf

    def _join_any(
        self, view: View, plan: Plan, walked: Walked, job: JobView, scores: Scores, profiling: set[int]
    ) -> bool:
        role = sharing_role(job, PACK)
        if role is None or role.count * role.gpus > self.gpus_max or self.partition.awaits_profiling(job):
            return False
        for seat in walked.seats.with_room(role.count * role.gpus, 2):
            if any(node in profiling for node, _ in seat.key) or not may_host(view, seat, job, PACK):
                continue
            if self._go_together(view, walked, seat, job, scores) and join(view, plan, seat, job, role, packed):
                for each in (*seat.members, job):
                    walked.seats.add(each)
                return True
        return False

    def _go_together(self, view: View, walked: Walked, seat: SharedSeat, job: JobView, scores: Scores) -> bool:
        (member,) = seat.members
        if not has_memory_left(view, seat, (member, job)):
            return False
        gpu_type = view.cluster.nodes[seat.key[0][0]].pool.gpu_type
        if scores.of(job, gpu_type) + scores.of(member, gpu_type) > SCORE_MAX:
            return False
        return bool(walked.order.key(job, view.now_s) <= self.ratio * walked.order.key(member, view.now_s))


def has_memory_left(view: View, seat: SharedSeat, jobs: tuple[JobView, ...]) -> bool:
    """True if these jobs together need less memory than each of the GPUs has, or need none that is known."""
    needed_mib = sum(needs(job.spec.shapes[0].roles[0])[2] for job in jobs)
    return not needed_mib or all(needed_mib < view.cluster.nodes[node].spec.gpu_mem_mib for node, _ in seat.key)


def packed(job: JobView, seats: Allocation) -> Allocation:
    return seats.on_terms(mode=PACK, milli=0, limit=WHOLE)


class Scores:
    """The packing score of each model, by its speed beside the models that run now and beside itself."""

    def __init__(self, view: View, walked: Walked) -> None:
        self.view = view
        self.others: dict[str, JobSpec] = {}
        for _, job in sorted(walked.seats.jobs.items()):
            if job.spec.model:
                self.others.setdefault(job.spec.model, job.spec)
        self._found: dict[tuple[str, int, str], int] = {}

    def of(self, job: JobView, gpu_type: str) -> int:
        kind = (job.spec.model, job.gpu_count, gpu_type)
        if kind not in self._found:
            self._found[kind] = score(self._mean(job.spec, gpu_type))
        return self._found[kind]

    def _mean(self, job: JobSpec, gpu_type: str) -> float | None:
        """The average part of its speed that it keeps; None if not measured."""
        known, shape = self.view.knowledge, job.shapes[0]
        alone = known.rate(job, shape, gpu_type)
        others = {**self.others, job.model: job} if job.model else {}
        beside = [known.rate(job, shape, gpu_type, [other]) for _, other in sorted(others.items())]
        measured = [rate for rate in beside if rate is not None]
        return sum(measured) / len(measured) / alone if alone and measured else None


def score(left: float | None) -> int:
    """By the part of its speed that a workload keeps beside others."""
    if left is None or left < 0.85:
        return JUMBO
    return TINY if left >= 0.95 else MEDIUM
