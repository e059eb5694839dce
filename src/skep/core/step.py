"""One step of the scheduler: apply events, decide, and compute the actions for the difference."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skep.core.actions import Action
from skep.core.cluster import Cluster
from skep.core.commit import commit
from skep.core.errors import InvariantBroken
from skep.core.events import Event
from skep.core.nodes import settle_nodes
from skep.core.orders import reconcile
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
        state.now_s = at_s
        state.apply_all(events)
        health, orders = state.health, state.orders
        if change is not None or health.is_told or health.crowded:
            self._adapt(change)
        if state.trigger is not None:
            self.decide()
        elif self.plans:
            self.plans = []
        return reconcile(state) if orders.dirty or orders.settings else []

    def _adapt(self, change: PlannerChange | None) -> None:
        """Nodes may have changed, or the planner is to be replaced."""
        is_reshaped = settle_nodes(self.state)
        if change is not None:
            self.planner = change.make(self.state.cluster)
        if change is not None or is_reshaped:
            self._attach()

    def decide(self) -> None:
        """Call the planner until there are no new events for it."""
        state, planner = self.state, self.planner
        plans: list[Plan] = []
        self.plans = plans
        while state.trigger is not None:
            if len(plans) == PLANS_MAX:
                raise InvariantBroken(f"the planner does not settle: {PLANS_MAX} decisions in one step")
            trigger = state.take_trigger()
            plan = self._plan_round(trigger) if planner.round_s else planner.plan(state, state.memory, trigger)
            commit(state, plan)
            plans.append(plan)

    def _plan_round(self, trigger: Trigger) -> Plan:
        state, round_s = self.state, self.planner.round_s
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
