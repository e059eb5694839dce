"""Measures the time of decisions: what a policy would cost a live server."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from time import perf_counter

from skep.core.memory import At, Memory
from skep.core.plan import Decision, Plan
from skep.core.ports import Planner
from skep.core.refusal import Refusal
from skep.core.solving import SolverProblem
from skep.core.view import JobView, Trigger, View
from skep.metrics.quantile import high_quantile

OnDecisions = Callable[[float, Sequence[Decision]], None]


class Timed:
    """Any planner, with the seconds of each of its decisions. `on_decisions` is called with those of every plan."""

    def __init__(self, planner: Planner, on_decisions: OnDecisions | None = None) -> None:
        self.on_decisions = on_decisions
        self.planner = planner
        self.name = planner.name
        self.round_s = planner.round_s
        self.declared, self.needs_in = planner.declared, planner.needs_in
        self.drifts = planner.drifts
        self.seconds = array("d")

    def attach(self, view: View, memory: Memory) -> None:
        self.planner.attach(view, memory)

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        began_s = perf_counter()
        plan = self.planner.plan(view, memory, trigger)
        self.seconds.append(perf_counter() - began_s)
        if self.on_decisions is not None and plan.decisions:
            self.on_decisions(view.now_s, plan.decisions)
        return plan

    def problem(self, view: View, memory: Memory, at: At) -> SolverProblem:
        return self.planner.problem(view, memory, at)

    def why_never(self, view: View, job: JobView) -> str:
        return self.planner.why_never(view, job)

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        return self.planner.explain(view, memory, job)

    def latency_ms(self) -> tuple[float, float]:
        """Average and 99th percentile of a decision."""
        if not self.seconds:
            return 0.0, 0.0
        return 1e3 * sum(self.seconds) / len(self.seconds), 1e3 * high_quantile(self.seconds, 0.99)
