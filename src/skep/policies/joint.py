"""The planner of policies that decide about all jobs together, not job by job: a matching, an auction, shares of time.

It keeps the pending jobs, admits new ones, says why jobs wait and explains by trials. `decide` is the policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.model import Declares, Shape
from skep.core.plan import Plan
from skep.core.refusal import Refusal
from skep.core.view import JobView, Trigger, View
from skep.policies.place import Place
from skep.policies.reasons import Possible, admits
from skep.policies.why_by_trial import WhyByTrial


class JointPlanner(Declares):
    """`decide` follows from the state, the memory and the given pending jobs alone, so that a trial can call it."""

    round_s = 0.0

    def __init__(self, *, name: str, place: Place) -> None:
        self.name = name
        self.place = place

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float:
        """Add the decisions to the plan. Returns when to decide again if nothing happens before."""
        raise NotImplementedError

    def attach(self, view: View, memory: Memory) -> None:
        self.place.attach(view)
        self.possible = Possible(view, self.place)
        self.pending: dict[int, JobView] = {}
        self.unseen = [job for job in view.jobs.values() if job.state is JobState.PENDING and job.is_ready]

    def asks(self, view: View, memory: Memory) -> bool:
        """True if the planner asks a solver (`core/solving.py`) before it decides."""
        return False

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        if self.asks(view, memory):
            return self._ask(view, trigger)
        plan = view.new_plan()
        for job in trigger.withdrawn:
            self.pending.pop(job.seq, None)
        arrived = {job.seq: job for job in (*self.unseen, *trigger.returned, *trigger.submitted)}
        self.unseen = []
        for job in arrived.values():
            if admits(self, self.possible, view, plan, job):
                self.pending[job.seq] = job
        wake_s = self.decide(view, plan, memory, sorted(self.pending.values(), key=lambda job: job.seq))
        self.pending = {job.seq: job for job in self.pending.values() if job.state is JobState.PENDING}
        self._say_why(view, plan)
        if wake_s < math.inf:
            plan.wake(wake_s)
        return plan

    def _ask(self, view: View, trigger: Trigger) -> Plan:
        """What has come and gone is seen in the next plan."""
        self.unseen += [*trigger.returned, *trigger.submitted]
        for job in trigger.withdrawn:
            self.pending.pop(job.seq, None)
            self.unseen = [each for each in self.unseen if each is not job or job.is_ready]
        plan = view.new_plan()
        plan.ask(view)
        return plan

    def _say_why(self, view: View, plan: Plan) -> None:
        """Jobs with equal requests wait in one scope."""
        scopes: dict[str, Shape] = {}
        for job in self.pending.values():
            shape = job.shapes[0]
            scope = f"{self.name} {shape.gpus} {shape.gpu_milli} {'|'.join(shape.gpu_types)}"
            scopes[scope] = shape
            waiting = view.waiting.get(scope)
            if waiting is None or job.waiting is not waiting:
                plan.wait(job, scope)
        for scope, shape in scopes.items():
            cause = view.cluster.why_not(shape.gpus, view.cluster.free_gpus(shape.gpu_types, shape.gpu_milli))
            waiting = view.waiting.get(scope)
            if waiting is None or waiting.cause is not cause:
                plan.refuse(scope, cause)

    def why_never(self, view: View, job: JobView) -> str:
        return self.possible.why_never(view, job, job.shapes, job.shapes)

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        return WhyByTrial(self, view, memory, job).refusal()
