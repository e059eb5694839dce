"""One step of the scheduler: apply events, decide, and compute the actions for the difference."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skep.core.actions import Action
from skep.core.cluster import Cluster
from skep.core.errors import InvariantBroken
from skep.core.events import Event
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.rounds import everything, gather, is_boundary, next_boundary
from skep.core.state import State
from skep.core.view import Trigger

PLANS_MAX = 1000
"""The most plans of one step. A decision triggers another one only if it withdraws a start that was not sent yet."""


class PlannerChange(msgspec.Struct):
    """Resolves a `PolicyChanged` or `ClusterChanged`; supplied by callers that can read files."""

    make: Callable[[Cluster], Planner]


class Scheduler:
    """The state and the planner that decides on it. All decisions, live and simulated, are made here."""

    def __init__(self, state: State, planner: Planner) -> None:
        self.state = state
        self.planner = planner
        self.plans: list[Plan] = []
        """The plans of the last step, in order."""
        self._attach()

    def _attach(self) -> None:
        self.planner.attach(self.state, self.state.memory)
        self.gathered = everything()
        """Events that a planner with rounds has not seen yet."""

    def step(self, at_s: float, events: list[Event], change: PlannerChange | None = None) -> list[Action]:
        state = self.state
        is_reshaped = state.advance(at_s, events)
        if change is not None:
            self.planner = change.make(state.cluster)
        if is_reshaped or change is not None:
            self._attach()
        if state.is_woken:
            self.decide()
        elif self.plans:
            self.plans = []
        return state.send()

    def decide(self) -> None:
        """Call the planner until there are no new events for it."""
        state, planner = self.state, self.planner
        plans: list[Plan] = []
        self.plans = plans
        while state.is_woken:
            if len(plans) == PLANS_MAX:
                raise InvariantBroken(f"the planner does not settle: {PLANS_MAX} decisions in one step")
            plan = self._plan_round() if planner.round_s else planner.plan(state, state.memory, state.trigger)
            state.commit(plan)
            plans.append(plan)

    def _plan_round(self) -> Plan:
        state, trigger, round_s = self.state, self.state.trigger, self.planner.round_s
        gather(self.gathered, trigger)
        if trigger.is_timer or is_boundary(state.now_s, round_s):
            gathered, self.gathered = self.gathered, Trigger()
            gathered.is_timer = True
            plan = self.planner.plan(state, state.memory, gathered)
        else:
            plan = state.new_plan()
        is_busy = state.pending_count or state.held_jobs or plan.decisions
        plan.wake_s = next_boundary(state.now_s, round_s) if is_busy else None
        return plan
