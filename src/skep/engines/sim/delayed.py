"""A simulated world in which the answers of solvers take a given time, to study slow ones."""

from __future__ import annotations

import math
from collections import deque

from skep.core.actions import Action
from skep.core.events import Batch, Event, Solved, TimerDue, in_order
from skep.core.memory import At
from skep.core.ports import Planner, SimulatedWorld
from skep.core.solving import OpenQuestion
from skep.core.state import State
from skep.core.step import AtOnce, answer_at_once


class Delayed:
    """Another world, with answers `delay_s` after their questions. Problems are those of the time of the question."""

    def __init__(self, world: SimulatedWorld, delay_s: float, solve: AtOnce = answer_at_once) -> None:
        self.world = world
        self.delay_s = delay_s
        self.solve = solve
        self.answers: deque[tuple[float, Solved]] = deque()
        """In the order of their times."""

    def ask(self, planner: Planner, state: State, at: At, asked: OpenQuestion) -> None:
        """For the scheduler: takes a question."""
        self.answers.append((state.now_s + self.delay_s, self.solve(planner, state, at, asked)))

    def observe(self, until_s: float) -> Batch | None:
        at_s = self.answers[0][0] if self.answers else math.inf
        batch = self.world.observe(min(at_s, until_s))
        if batch is None or batch.at_s < at_s:
            return batch
        events = [event for event in batch.events if until_s <= at_s or not isinstance(event, TimerDue)]
        while self.answers and self.answers[0][0] <= batch.at_s:
            events.append(self.answers.popleft()[1])
        return Batch(batch.at_s, in_order(events))

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        return self.world.execute(at_s, actions)
