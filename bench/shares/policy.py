"""A policy for these trials: every job starts at once on the first GPUs, in the share mode that it asks for."""

from __future__ import annotations

from skep.core.cluster import WHOLE, Allocation, Slice
from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.refusal import Cause, Refusal
from skep.core.share import Share
from skep.core.view import JobView, Trigger, View


class Shared:
    name = "shared"
    needs = frozenset({"share"})

    def attach(self, view: View, memory: Memory) -> None:
        """There is nothing to keep."""

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        for job in view.jobs.values():
            if job.state is JobState.PENDING and job.is_ready:
                plan.start(job, allocation(job))
        return plan

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        return Refusal("not-yet", Cause.ORDER, "it starts with the next event", "an event")


def allocation(job: JobView) -> Allocation:
    """Only a guaranteed job in mode `lend` has anything guaranteed: all of its GPUs."""
    share, role = job.spec.share or Share(), job.spec.shapes[0].roles[0]
    is_guaranteed = share.mode == "lend" and share.claim == "guaranteed"
    group = "turns" if share.mode == "slice" else ""
    piece = Slice(
        0,
        (1 << role.count) - 1,
        WHOLE if is_guaranteed else 0,
        tasks=role.count,
        limit=WHOLE,
        mode=share.mode,
        group=group,
    )
    return Allocation((piece,), role.count)
