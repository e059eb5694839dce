"""Nobody decides: what takes over when every policy that could has failed. What runs goes on, nothing new starts."""

from __future__ import annotations

from skep.core.job import Job
from skep.core.plan import Plan
from skep.core.ports import Memory
from skep.core.refusal import Cause, Refusal
from skep.core.state import State, Trigger

NOBODY = "none"


class Idle:
    name = NOBODY
    round_s = 0.0

    def attach(self, view: State, memory: Memory) -> None:
        """There is nothing to keep."""

    def plan(self, view: State, memory: Memory, trigger: Trigger) -> Plan:
        return Plan(view)

    def why_never(self, view: State, job: Job) -> str:
        return ""

    def explain(self, view: State, memory: Memory, job: Job) -> Refusal:
        return Refusal(
            "no-policy", Cause.ORDER, "every policy has failed, and nobody decides", "`skep policy use NAME`"
        )
