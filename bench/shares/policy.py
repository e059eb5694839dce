"""A policy for these trials: every job starts at once on the first GPUs, on the terms that its user's name says."""

from __future__ import annotations

from skep.core.cluster import WHOLE, Allocation, Slice
from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.refusal import Cause, Refusal
from skep.core.view import JobView, Trigger, View


class Shared:
    """`slice`, `token-300-600` (request and limit), `lend-1000` (guaranteed), `lend-0` (opportunistic)."""

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
    mode, *numbers = job.spec.user.split("-")
    role = job.spec.shapes[0].roles[0]
    milli = int(numbers[0]) if numbers else 0
    limit = int(numbers[1]) if len(numbers) > 1 else WHOLE
    group = "turns" if mode == "slice" else ""
    piece = Slice(0, (1 << role.count) - 1, milli, tasks=role.count, limit=limit, mode=mode, group=group)
    return Allocation((piece,), role.count * role.gpu_milli / WHOLE)
