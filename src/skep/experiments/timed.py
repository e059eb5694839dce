"""Measures the time of decisions: what a policy would cost a live server."""

from __future__ import annotations

from time import perf_counter

from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.refusal import Refusal
from skep.core.view import JobView, Trigger, View
from skep.metrics.quantile import high_quantile


class Timed:
    """Any planner, with the seconds of each of its decisions."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.name = planner.name
        self.round_s = planner.round_s
        self.declared, self.needs_in = planner.declared, planner.needs_in
        self.seconds: list[float] = []

    def attach(self, view: View, memory: Memory) -> None:
        self.planner.attach(view, memory)

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        began_s = perf_counter()
        plan = self.planner.plan(view, memory, trigger)
        self.seconds.append(perf_counter() - began_s)
        return plan

    def why_never(self, view: View, job: JobView) -> str:
        return self.planner.why_never(view, job)

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        return self.planner.explain(view, memory, job)

    def latency_ms(self) -> tuple[float, float]:
        """Average and 99th percentile of a decision."""
        if not self.seconds:
            return 0.0, 0.0
        return 1e3 * sum(self.seconds) / len(self.seconds), 1e3 * high_quantile(self.seconds, 0.99)
