"""Quota preemption (YARN-CS): a VC below its quota takes GPUs back from VCs above theirs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from skep.core.job import JobState
from skep.core.view import JobView, View
from skep.policies.adjust.preempt import FIRST, LAST, ByPriority, is_of_now, may_stop
from skep.policies.lines import Entry
from skep.policies.order.base import Key, Order
from skep.policies.order.shares import CapacityQueues
from skep.policies.running import Running


class TakeBack:
    """Only while at least `busy` of all GPUs are in use. The newest jobs of VCs above their quota are stopped first,
    also those of this instant, as soon as they run; and no VC falls below its quota."""

    name = "take-back"
    preempts = True
    is_by_order = False

    def __init__(self, busy: float) -> None:
        self.busy = busy
        self.by_priority = ByPriority()

    def edge(self, order: Order, running: Running) -> tuple[Key, ...]:
        return LAST if running.entries else FIRST

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        return self.candidates(view, order, running, entry)

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        assert isinstance(order, CapacityQueues)
        if running.entries and running.entries[-1][0] > entry[0]:
            return self.by_priority.candidates(view, order, running, entry)
        cluster = view.cluster
        in_use = cluster.gpu_total - cluster.free_gpus()
        if not order.is_within(entry[3]):
            return ()
        if in_use < self.busy * cluster.gpu_total:
            running.has_spared = True  # jobs that are started after this attempt may make the cluster busy
            return ()
        surplus = {vc: order.used_by(vc) - order.quotas.get(str(vc), 0.0) for vc in order.used}
        return self._newest_above_quota(view, running, surplus)

    def _newest_above_quota(self, view: View, running: Running, surplus: dict[Hashable, float]) -> list[JobView]:
        found = []
        for job in sorted(
            [entry[3] for entry in running.entries], key=lambda job: (-began_s(job, view.now_s), -job.seq)
        ):
            if job.gpus <= surplus[job.spec.vc] and (job.state is JobState.RUNNING or is_of_now(job, view.now_s)):
                if not may_stop(view, running, job):
                    break  # it is the next to go, not an older one
                surplus[job.spec.vc] -= job.gpus
                found.append(job)
        return found


def began_s(job: JobView, now_s: float) -> float:
    if is_of_now(job, now_s):
        return now_s
    return job.decided_s if job.state is JobState.LAUNCHING else job.held_since_s
