"""A policy for tests: jobs take turns by suspension and resumption.

A job that has run for a slice is suspended while others wait, with its memory on its GPUs or in its nodes, or is
stopped. The job with the fewest turns goes first. Some starts are leases. What happens depends only on the job and its
turn.
"""

from __future__ import annotations

import msgspec

from skep.core.chance import draw
from skep.core.errors import InvariantBroken
from skep.core.job import JobState
from skep.core.memory import Memory, Slot
from skep.core.model import Declares
from skep.core.plan import Plan
from skep.core.refusal import Cause, Refusal
from skep.core.view import JobView, Trigger, View
from skep.policies.place.simple import Consolidate

TURNS = f"{__file__}:RandomTurns"
"""The name of the policy."""

PENDING, RUNNING, SUSPENDED = JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED


class TriedTurn(msgspec.Struct, frozen=True):
    """The number of turns that a job has had."""

    count: int


TURN = Slot("turn", TriedTurn)


class RandomTurns(Declares):
    needs = frozenset({"suspend", "checkpoint"})

    def __init__(self, slice_s: float = 50.0, lease_s: float = 0.0) -> None:
        self.slice_s = slice_s
        self.lease_s = lease_s
        self.place = Consolidate()

    def attach(self, view: View, memory: Memory) -> None:
        self.blank = view.blank()
        self.trial = self.blank.new_plan()

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        placed = [job for job in view.placed_jobs() if not job.is_ending]
        pending = [job for job in view.jobs.values() if job.state is PENDING and job.is_ready]
        waiting = [job for job in pending if self.could_run(plan, job)]
        mark = plan.mark()
        waiting += [job for job in placed if job.state is SUSPENDED]
        running = [job for job in placed if job.state is RUNNING and job.held_gpus]
        waiting.sort(key=lambda job: (job.rank, turns(view, job), job.seq))
        for job in running:
            if view.now_s >= job.progress_since_s + self.slice_s:
                self.halt(view, plan, job)
        left = [job for job in waiting if not self.let_go_on(view, plan, job)]
        if len(left) == len(waiting):
            plan.rollback(mark)  # no job can use what the others leave
        if plan.decisions or (left and any(job.state is not SUSPENDED for job in placed)):
            plan.wake(self.next_end_s(view, running))
        return plan

    def could_run(self, plan: Plan, job: JobView) -> bool:
        if self.place.find(self.blank.cluster, self.trial, job, job.spec.shapes[0], 0.0) is not None:
            return True
        plan.reject(job, "the cluster is too small for it")
        return False

    def halt(self, view: View, plan: Plan, job: JobView) -> None:
        way = draw(job.seq, turns(view, job)) % 5
        if way == 0:
            plan.stop(job, "its turn is over")
            return
        try:
            plan.suspend(job, "swapped" if way <= 2 else "resident")
        except InvariantBroken:  # its node has no memory left
            plan.suspend(job, "resident")

    def let_go_on(self, view: View, plan: Plan, job: JobView) -> bool:
        if job.state is SUSPENDED:
            try:
                plan.resume(job)
            except InvariantBroken:  # others have its GPUs
                return False
        else:
            found = self.place.find(view.cluster, plan, job, job.spec.shapes[0], view.now_s)
            if found is None:
                return False
            plan.start(job, found, view.now_s + self.lease_s if self.lease_s and job.seq % 2 else None)
        plan.remember(TURN, job.id, TriedTurn(turns(view, job) + 1))
        return True

    def next_end_s(self, view: View, running: list[JobView]) -> float:
        """The end of a slice; that of a job which starts now is not known yet, but it will not be sooner."""
        ends = [job.progress_since_s + self.slice_s for job in running if job.state is RUNNING]
        return min([view.now_s + self.slice_s, *(end_s for end_s in ends if end_s > view.now_s)])

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        return Refusal("turns", Cause.ORDER, "others have their turn", "their slices ending")


def turns(view: View, job: JobView) -> int:
    found = TURN.get(view.memory, job.id)
    return 0 if found is None else found.count
