"""One step of the scheduler: apply events, decide, and compute the actions for the difference."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from skep.core.actions import Action
from skep.core.cluster import Cluster
from skep.core.errors import InvariantBroken
from skep.core.events import Event, Solved
from skep.core.memory import At
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.rounds import everything, gather, is_boundary, is_same, next_boundary
from skep.core.solving import OpenQuestion, Unsolved, solve_here
from skep.core.state import State
from skep.core.view import Trigger

PLANS_MAX = 1000
"""The most plans of one step. A decision triggers another one only if it withdraws a start that was not sent yet."""

WAKE_STEP_S = 0.001
WAKES_MAX = 1000
"""How often in a row a planner may be woken, decide nothing, and ask to be woken again within that time."""

AT_ONCE_MAX = 10_000
"""The most plans at one instant: with more, time does not advance."""


class PlannerChange(msgspec.Struct):
    """Resolves a `PolicyChanged` or `ClusterChanged`; supplied by callers that can read files."""

    make: Callable[[Cluster], Planner]


Answers = Callable[[Planner, State, At, OpenQuestion], Solved | None]
"""Takes a question of a planner. Returns the answer if it comes at once; otherwise the event comes later."""
AtOnce = Callable[[Planner, State, At, OpenQuestion], Solved]


def answer_at_once(planner: Planner, state: State, at: At, asked: OpenQuestion) -> Solved:
    """As simulations do it. As in a server, a solver that fails gives no answer, and nothing else stops."""
    problem = planner.problem(state, state.memory, at)
    try:
        return Solved(asked.number, at, solve_here(problem))
    except Unsolved as error:
        return Solved(asked.number, at, error=str(error))
    except Exception as error:
        return Solved(asked.number, at, error=f"the solver failed: {type(error).__name__}: {error}")


class Scheduler:
    """The state and the planner that decides on it. All decisions, live and simulated, are made here. `answers` takes
    the questions of planners that ask."""

    def __init__(self, state: State, planner: Planner, answers: Answers = answer_at_once) -> None:
        self.state = state
        self.planner = planner
        self.answers = answers
        self.solved: list[Event] = []
        """Answers that came at once: events for the next step, at the same time."""
        self.plans: list[Plan] = []
        """The plans of the last step, in order."""
        self.wakes_in_vain = 0
        """How often in a row the planner was woken, decided nothing and asked to be woken again at once."""
        self.at_once = 0
        """Plans at this instant that asked to be woken at once."""
        self.at_s = 0.0
        self._attach()

    def _attach(self) -> None:
        self.state.show(self.planner)
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
        return state.send() if state.orders.dirty or state.orders.settings else []

    def decide(self) -> None:
        """Call the planner until there are no new events for it."""
        state, planner = self.state, self.planner
        plans: list[Plan] = []
        self.plans = plans
        is_asking = False
        while state.is_woken or is_asking:
            if len(plans) == PLANS_MAX:
                raise InvariantBroken(f"the planner does not settle: {PLANS_MAX} decisions in one step")
            plan = self._plan_round(is_asking) if planner.round_s else planner.plan(state, state.memory, state.trigger)
            wake_s = plan.wake_s
            if wake_s is not None and not wake_s > state.now_s + WAKE_STEP_S:
                self._refuse_restlessness(plan, wake_s)
            elif self.wakes_in_vain:
                self.wakes_in_vain = 0
            state.commit(plan)
            plans.append(plan)
            is_asking = not self._ask(plan) if plan.asks else False

    def _ask(self, plan: Plan) -> bool:
        """True if an answer came at once: it is the next event. Otherwise the planner goes on with the last answer."""
        found = [self.answers(self.planner, self.state, at, asked) for at, asked in plan.asks]
        self.solved += [each for each in found if each is not None]
        return any(each is not None for each in found)

    def take_solved(self) -> list[Event]:
        """What came at once since the last call, for the next step."""
        solved, self.solved = self.solved, []
        return solved

    def _refuse_restlessness(self, plan: Plan, wake_s: float) -> None:
        """A planner that asks to be woken at once, again and again, would hang a simulation and keep the disk of a
        server busy for ever."""
        state = self.state
        if math.isnan(wake_s):
            raise InvariantBroken("its wake-up time is not a number")
        is_in_vain = state.trigger.is_timer and not plan.decisions
        self.wakes_in_vain = self.wakes_in_vain + 1 if is_in_vain else 0
        self.at_once = self.at_once + 1 if self.at_s == state.now_s else 0
        self.at_s = state.now_s
        if self.wakes_in_vain > WAKES_MAX or self.at_once > AT_ONCE_MAX:
            raise InvariantBroken(f"it asks to be woken at once, again and again, at {state.now_s:g} s")

    def _plan_round(self, is_asking: bool) -> Plan:
        """`is_asking`: the planner of this boundary has asked, and goes on without the answer."""
        state, trigger, round_s = self.state, self.state.trigger, self.planner.round_s
        gather(self.gathered, trigger)
        if self._drifts():
            is_due = trigger.is_timer or not state.held_jobs or is_same(state.wake_s, state.now_s + round_s)
        else:
            is_due = trigger.is_timer or is_boundary(state.now_s, round_s)
        if is_due or is_asking:
            gathered, self.gathered = self.gathered, Trigger()
            gathered.is_timer = True
            plan = self.planner.plan(state, state.memory, gathered)
        else:
            plan = state.new_plan()
        is_busy = state.pending_count or state.held_jobs or plan.decisions
        following_s = next_boundary(state.now_s, round_s)
        if self._drifts():
            following_s = state.now_s + round_s if is_due or is_asking else state.wake_s
        plan.wake_s = following_s if is_busy else None
        return plan

    def _drifts(self) -> bool:
        """True if a round begins when the one before ends, which is as soon as all of its jobs have ended; otherwise
        at multiples of the round."""
        return self.planner.drifts
