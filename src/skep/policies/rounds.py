"""Decide only at the boundaries of rounds; what happens between them is gathered for the next."""

from __future__ import annotations

import math

from skep.core.job import Job
from skep.core.plan import Plan
from skep.core.ports import Memory, Planner
from skep.core.refusal import Refusal
from skep.core.state import State, Trigger


class Rounds:
    """Any planner, asked every `round_s` seconds (from time 0)."""

    def __init__(self, planner: Planner, round_s: float) -> None:
        self.planner = planner
        self.name = planner.name
        self.round_s = round_s

    def attach(self, view: State, memory: Memory) -> None:
        self.planner.attach(view, memory)
        self.gathered = Trigger()
        # What was gathered before is in the state, but not what of it is news: let the planner look at everything.
        self.gathered.nodes_changed = True

    def plan(self, view: State, memory: Memory, trigger: Trigger) -> Plan:
        gathered = self.gathered
        gathered.withdrawn += trigger.withdrawn
        gathered.started += trigger.started
        gathered.submitted += trigger.submitted
        gathered.returned += trigger.returned
        gathered.ended += trigger.ended
        gathered.nodes_changed |= trigger.nodes_changed
        if self._is_boundary(view.now_s):
            self.gathered = Trigger()
            gathered.is_timer = True
            plan = self.planner.plan(view, memory, gathered)
        else:
            plan = Plan(view)
        is_busy = view.pending_count or view.held_jobs or plan.decisions
        plan.wake_s = self._next_boundary(view.now_s) if is_busy else None
        return plan

    def _is_boundary(self, now_s: float) -> bool:
        rounds = now_s / self.round_s
        return abs(rounds - round(rounds)) < slack(rounds)

    def _next_boundary(self, now_s: float) -> float:
        rounds = now_s / self.round_s
        return (math.floor(rounds + slack(rounds)) + 1) * self.round_s

    def why_never(self, view: State, job: Job) -> str:
        return self.planner.why_never(view, job)

    def explain(self, view: State, memory: Memory, job: Job) -> Refusal:
        return self.planner.explain(view, memory, job)


def slack(rounds: float) -> float:
    """What rounding may make of a whole number of rounds."""
    return max(1e-9, 4 * math.ulp(rounds))
