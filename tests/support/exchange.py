"""A policy for tests: running jobs with equal requests exchange what they have, again and again, and leases are
extended. What happens depends only on the state."""

from __future__ import annotations

from skep.core.chance import draw
from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.model import Declares
from skep.core.plan import Plan
from skep.core.refusal import Cause, Refusal
from skep.core.view import JobView, Trigger, View
from skep.policies.place.simple import Consolidate

EXCHANGE = f"{__file__}:Exchange"
"""The name of the policy."""


class Exchange(Declares):
    needs = frozenset({"migrate", "checkpoint"})

    def __init__(self, every_s: float = 50.0, lease_s: float = 0.0) -> None:
        self.every_s = every_s
        self.lease_s = lease_s
        self.place = Consolidate()

    def attach(self, view: View, memory: Memory) -> None:
        self.blank = view.blank()
        self.trial = self.blank.new_plan()

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        if trigger.is_timer:
            self.exchange(view, plan)
        for job in view.jobs.values():
            if job.state is JobState.PENDING and job.is_ready and self.could_run(plan, job):
                self.start(view, plan, job)
        if any(job.state is not JobState.STOPPING for job in view.held_jobs.values()) or plan.decisions:
            plan.wake(view.now_s + self.every_s)
        return plan

    def exchange(self, view: View, plan: Plan) -> None:
        circles: dict[object, list[JobView]] = {}
        for job in view.held_jobs.values():
            if job.state is JobState.RUNNING and job.held == job.bound and not (job.is_ending or job.is_expired):
                circles.setdefault(job.shapes, []).append(job)
                if self.lease_s and draw(job.seq, int(view.now_s)) % 2:
                    plan.extend(job, view.now_s + self.lease_s)
        for jobs in circles.values():
            following = jobs[1:] + jobs[:1]
            if len(jobs) > 1 and draw(jobs[0].seq, int(view.now_s)) % 3:
                plan.move_all([(one, other.allocation) for one, other in zip(jobs, following, strict=True)])

    def could_run(self, plan: Plan, job: JobView) -> bool:
        if self.place.find(self.blank.cluster, self.trial, job, job.spec.shapes[0], 0.0) is not None:
            return True
        plan.reject(job, "the cluster is too small for it")
        return False

    def start(self, view: View, plan: Plan, job: JobView) -> None:
        found = self.place.find(view.cluster, plan, job, job.spec.shapes[0], view.now_s)
        if found is not None:
            plan.start(job, found, view.now_s + self.lease_s if self.lease_s and job.seq % 2 else None)

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        return Refusal("exchange", Cause.CAPACITY, "others have the GPUs", "their ends")
