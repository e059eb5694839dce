"""A state without planner and engine: the test applies events, decides, and looks."""

from __future__ import annotations

from collections.abc import Callable

from tests.support import check, cluster, take_trigger, trace

from skep.core.actions import Action, Launch
from skep.core.cluster import Allocation, Slice
from skep.core.events import Event, JobSubmitted, TasksStarted
from skep.core.job import Job
from skep.core.plan import Plan
from skep.core.state import State
from skep.core.view import Trigger
from skep.traces.trace import TraceJob


def gpus(node: int, mask: int) -> Allocation:
    return Allocation((Slice(node, mask, tasks=mask.bit_count()),), mask.bit_count())


class ByHand:
    def __init__(self, *jobs: TraceJob, on: str = "2x2") -> None:
        self.state = State(cluster(on))
        self.apply(*(JobSubmitted(each.spec) for each in trace(*jobs).jobs))
        self.actions: list[Action] = []

    def __getitem__(self, job_id: str) -> Job:
        return self.state.jobs[job_id]

    def apply(self, *events: Event, at_s: float | None = None) -> Trigger:
        """What these events wake the planner with."""
        if at_s is not None:
            self.state.now_s = at_s
        self.state.advance(self.state.now_s, list(events))
        check(self.state)
        return take_trigger(self.state)

    def decide(self, *steps: Callable[[Plan], object]) -> list[Action]:
        """Commit one plan with these steps; the actions that follow."""
        plan = self.state.new_plan()
        for step in steps:
            step(plan)
        self.state.commit(plan)
        self.actions = self.state.send()
        check(self.state)
        return self.actions

    def start(self, job_id: str, where: Allocation) -> None:
        """Decide a start and let it run at once."""
        for action in self.decide(lambda plan: plan.start(self[job_id], where)):
            assert isinstance(action, Launch)
            self.apply(TasksStarted(action.job_id, 1.0, self.state.now_s, action.launch))

    def suspend(self, job_id: str) -> None:
        self.decide(lambda plan: plan.suspend(self[job_id], "resident"))
