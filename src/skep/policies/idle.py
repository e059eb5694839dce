"""The planner that decides nothing. It takes over when every policy has failed: running jobs continue, nothing
starts."""

from __future__ import annotations

from skep.core.memory import Memory
from skep.core.model import Declares
from skep.core.plan import Plan
from skep.core.refusal import Cause, ChoosePolicy, Refusal, remedy_of
from skep.core.view import JobView, Trigger, View

NO_POLICY = "none"


class Idle(Declares):
    name = NO_POLICY
    round_s = 0.0

    def attach(self, view: View, memory: Memory) -> None:
        """There is nothing to rebuild."""

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        return view.new_plan()

    def why_never(self, view: View, job: JobView) -> str:
        return ""

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        reason, changes = "every policy has failed, so no decision is made", (ChoosePolicy(),)
        return Refusal("no-policy", Cause.ORDER, reason, remedy_of(changes, view.now_s), changes)
