"""What one change would do: it is made on a copy of a live state, and the policy in charge decides.

The copy is used up: callers work in a fork of their process (`experiments/samples.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from skep.core.actions import Action
from skep.core.events import ATTACHES, Batch, ClusterChanged, Event, JobAltered, TasksStarted
from skep.core.job import Job
from skep.core.memory import At
from skep.core.ports import Planner
from skep.core.solving import OpenQuestion, outstanding
from skep.core.state import State
from skep.core.step import Answers, PlannerChange, Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.seen import Seen
from skep.service.copy import KeptCopy
from skep.service.loop import run

RESTART_S = 30.0
"""What a preempted job loses on each of its GPUs."""
LONG_S = 1e9


class Making(msgspec.Struct, frozen=True):
    """A change as the kernel sees it."""

    events: tuple[Event, ...] = ()
    ends: tuple[str, ...] = ()
    """Jobs of the core that end by themselves at that moment."""
    stretch: float = 1.0
    """By how much longer the job takes afterwards."""


NOTHING = Making()


class TrialOutcome(msgspec.Struct, frozen=True):
    """After one decision."""

    starts: bool
    nodes: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    """Jobs of the core that lose their GPUs."""
    in_s: float = 0.0
    """When the decision is made: later than now with a policy of rounds."""


def answer_later(planner: Planner, state: State, at: At, asked: OpenQuestion) -> None:
    """As in a server: at the moment of a decision there is only the last answer."""


class TrialCourse(msgspec.Struct):
    """One sample."""

    starts: dict[str, float]
    """Of jobs of the core: when they started, or that they did before."""
    ends: dict[str, float]


Draw = Callable[[State], Mapping[str, float]]
"""The lengths of all open jobs."""


class StateTrial:
    """The policy in charge on the copy, when it has decided about everything so far. One change uses it up."""

    def __init__(self, kept: KeptCopy, now_s: float, answers: Answers = answer_later) -> None:
        self.ground = kept.ground
        self.state = kept.state
        self.at_s = max(now_s, kept.state.now_s)
        self.scheduler = Scheduler(kept.state, kept.ground.planner(kept.state.cluster), answers)
        self.make(NOTHING)

    def make(self, making: Making) -> None:
        """What is decided is in flight when a simulator adopts the state."""
        is_attached = any(isinstance(event, (*ATTACHES, ClusterChanged)) for event in making.events)
        change = PlannerChange(self.ground.planner) if is_attached else None
        self.scheduler.step(self.at_s, list(making.events), change)
        while self.scheduler.solved:
            self.scheduler.step(self.at_s, self.scheduler.take_solved())

    def decide(self, job_id: str, making: Making) -> TrialOutcome:
        """Make the change and let everything happen that follows at once, or with the next round."""
        state, at_s = self.state, self.at_s
        held = {job.id for job in state.held_jobs.values() if job.allocation is not None}
        self.make(making)
        until_s = state.wake_s if self.scheduler.planner.round_s and state.wake_s < math.inf else at_s
        ends = {name: state.jobs[name].work_at(at_s) for name in making.ends}
        engine = Simulator.adopt(state, {job_id: LONG_S, **ends}, restart_s=RESTART_S)
        run(self.scheduler, BoundedWorld(engine, until_s))
        job = state.jobs.get(job_id)
        gone = (name for name in held if state.jobs[name].allocation is None and name not in making.ends)
        stopped = tuple(sorted(gone))
        if job is None or job.allocation is None or any(True for _ in outstanding(state.memory)):
            return TrialOutcome(False, stopped=stopped)  # what a solver will answer is not known
        return TrialOutcome(True, nodes_of(state, job), stopped, until_s - at_s)

    def simulate(self, making: Making, draw: Draw, until_s: float, job_id: str = "") -> TrialCourse:
        """Make the change and simulate onwards. With a job the course ends when that starts; `making.stretch` is about
        the job that is altered."""
        state = self.state
        lengths = draw(state)
        self.make(making)
        lengths = {**draw(state), **lengths} if has_more(state, lengths) else dict(lengths)
        lengths |= {name: state.jobs[name].work_at(self.at_s) for name in making.ends}
        for event in making.events:
            if isinstance(event, JobAltered) and event.job.id in lengths:
                lengths[event.job.id] *= making.stretch
        waiting = {job.id for job in state.open_jobs.values() if job.start_s is None or job.allocation is None}
        bounded = BoundedWorld(Simulator.adopt(state, lengths, restart_s=RESTART_S, speed=Seen(state)), until_s)
        starts = {job.id: self.at_s for job in state.open_jobs.values() if job.allocation is not None}

        def observe(at_s: float, events: list[Event]) -> None:
            for event in events:
                if isinstance(event, TasksStarted) and event.job_id in waiting:
                    starts.setdefault(event.job_id, at_s)
                    if event.job_id == job_id:
                        bounded.until_s = at_s

        open_jobs = list(state.open_jobs.values())
        run(self.scheduler, bounded, observe)
        ends = {job.id: job.finish_s for job in open_jobs if job.finish_s is not None}
        return TrialCourse(starts, ends)


def has_more(state: State, lengths: Mapping[str, float]) -> bool:
    return any(job.id not in lengths for job in state.open_jobs.values())


def nodes_of(state: State, job: Job) -> tuple[str, ...]:
    placed = job.bound or job.allocation
    return () if placed is None else tuple(state.cluster.nodes[number].name for number in placed.nodes())


class BoundedWorld:
    """A simulated world that ends after a given time, which may be moved."""

    def __init__(self, engine: Simulator, until_s: float) -> None:
        self.engine = engine
        self.until_s = until_s

    def observe(self, until_s: float) -> Batch | None:
        batch = self.engine.observe(until_s)
        return None if batch is None or batch.at_s > self.until_s else batch

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        return self.engine.execute(at_s, actions)
