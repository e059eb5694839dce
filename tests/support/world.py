"""A trace, a cluster and a policy: run as in the product, with every step checked."""

from __future__ import annotations

import copy
import math

import msgspec
from tests.support.invariants import Checker

from skep.core.cluster import Cluster
from skep.core.errors import InvariantBroken
from skep.core.events import Batch, Event, PolicyChanged, TimerDue, in_order
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.core.snapshot import dump, load
from skep.core.state import State
from skep.core.step import PlannerChange, Scheduler
from skep.engines.sim.engine import Simulator
from skep.engines.sim.outages import Outages
from skep.experiments.output import jobs_csv
from skep.experiments.simulate import Experiment, Options
from skep.metrics.ended import job_rows
from skep.metrics.run import JobRow
from skep.policies.registry import needs_of
from skep.service.loop import Observer
from skep.traces.trace import Trace


class World(msgspec.Struct, frozen=True):
    """Everything that determines a run. `outages`: (node, lost at, back at); `script`: other events."""

    trace: Trace
    cluster: Cluster
    policy: str
    restart_s: float = 0.0
    checkpoint_s: float = 600.0
    round_s: float = 0.0
    finish_at_boundary: bool = False
    seed: int = 0
    outages: tuple[tuple[int, float, float], ...] = ()
    script: tuple[tuple[float, Event], ...] = ()
    always_reports: bool = False
    """Jobs report progress even if the policy does not need it, as in a server."""

    def __repr__(self) -> str:
        """A readable form for failed properties."""
        jobs = "\n  ".join(brief(job) for job in self.trace.jobs)
        nodes = "\n  ".join(brief(spec) for spec in self.cluster.specs)
        rest = {name: getattr(self, name) for name in self.__struct_fields__[3:]}
        return f"World {self.policy} {rest}\n  {nodes}\n  {jobs}"

    def planner(self) -> Planner:
        options = Options(seed=self.seed, round_s=self.round_s)
        return Experiment(self.trace, self.cluster, options).planner(self.policy)

    @property
    def reports(self) -> bool:
        """True if jobs report progress, as in an `Experiment`."""
        return self.always_reports or Need.PROGRESS in needs_of(self.policy)

    def begin(self) -> WorldCourse:
        state = State(self.cluster.blank())
        return WorldCourse(Scheduler(state, self.planner()), self.engine(state.cluster))

    def engine(self, cluster: Cluster) -> Simulator:
        lost = [(down_s, node, True) for node, down_s, _ in self.outages]
        back = [(up_s, node, False) for node, _, up_s in self.outages]
        engine = Scripted(
            self.trace.jobs,
            cluster,
            restart_s=self.restart_s,
            checkpoint_s=self.checkpoint_s,
            outages=Outages(lost + back),
            finish_round_s=self.round_s if self.finish_at_boundary else 0.0,
            groups=self.trace.groups,
            reports=self.reports,
        )
        engine.idle_timers_max = 200
        engine.script = list(self.script)
        return engine

    def adopted(self, state: State, course: WorldCourse) -> Simulator:
        """A simulator that knows the state of the course, what is still to come, and the work of jobs."""
        arrivals = [job for job in self.trace.jobs if job.spec.id not in state.jobs]
        assert isinstance(course.engine, Scripted)
        engine = Scripted.adopt(
            state,
            {job.spec.id: job.work_s for job in self.trace.jobs},
            arrivals,
            Outages(course.engine.outages.calendar),
            restart_s=self.restart_s,
            checkpoint_s=self.checkpoint_s,
            finish_round_s=course.engine.rates.finish_round_s,
            groups=() if state.submitted_count else self.trace.groups,
            reports=self.reports,
        )
        engine.idle_timers_max = 200
        engine.script = list(course.engine.script)
        return engine

    def checker(self, state: State) -> Checker:
        work_s = {job.spec.id: job.work_s for job in self.trace.jobs}
        # With more of a GPU than it asked for, a job is faster if it is known what it was measured with.
        measured = [job.spec for job in self.trace.jobs if job.spec.share and job.spec.share.measured_milli]
        rate_max = max((1000 / spec.shapes[0].gpu_milli for spec in measured), default=1.0)
        return Checker(state, checkpoint_s=self.checkpoint_s, work_s=work_s, rate_max=rate_max)

    def run(self, *, batches_max: int = 20_000) -> WorldCourse:
        """Run to the end, every step checked."""
        course = self.begin()
        checker = self.checker(course.state)
        while course.advance(checker):
            if course.batches > batches_max:
                raise InvariantBroken(f"no end after {batches_max} batches")
        checker.check_done()
        return course


class Scripted(Simulator):
    """The simulator, with actions of admins and owners at given times."""

    script: list[tuple[float, Event]]

    def observe(self, until_s: float) -> Batch | None:
        at_s = self.script[0][0] if self.script else math.inf
        batch = super().observe(min(at_s, until_s))
        if batch is None or batch.at_s < at_s:
            return batch
        events = [event for event in batch.events if until_s <= at_s or not isinstance(event, TimerDue)]
        while self.script and self.script[0][0] <= batch.at_s:
            events.append(self.script.pop(0)[1])
        return Batch(batch.at_s, in_order(events))


class WorldCourse:
    """A run in progress, one batch at a time: the loop of `skep.service.loop.run`, step by step."""

    def __init__(self, scheduler: Scheduler, engine: Simulator) -> None:
        self.scheduler = scheduler
        self.engine = engine
        self.batches = 0

    @property
    def state(self) -> State:
        return self.scheduler.state

    def advance(self, observer: Observer | None = None) -> bool:
        """One batch and everything that follows from it at the same instant; `False` at the end."""
        batch = self.engine.observe(self.state.next_timer_s)
        if batch is None:
            return False
        self.batches += 1
        events = batch.events
        while True:
            actions = self.scheduler.step(batch.at_s, events)
            if observer is not None:
                observer(batch.at_s, events)
            solved = self.scheduler.take_solved()
            if not (actions or solved):
                return True
            events = [*self.engine.execute(batch.at_s, actions), *solved]

    def fork(self, planner: Planner) -> WorldCourse:
        """A copy from here on: the state restored from its snapshot, and a newly attached planner."""
        state = load(dump(self.state), self.state.cluster.blank(), self.state.known.measured)
        engine = copy.deepcopy(self.engine)
        engine.rates.cluster = state.cluster
        return WorldCourse(Scheduler(state, planner), engine)

    def adopt(self, world: World) -> WorldCourse:
        """The same, with an engine that knows only the state and what is to come."""
        state = load(dump(self.state), self.state.cluster.blank(), self.state.known.measured)
        return WorldCourse(Scheduler(state, world.planner()), world.adopted(state, self))

    def finish(self, observer: Observer | None = None, *, batches_max: int = 20_000) -> None:
        while self.advance(observer):
            if self.batches > batches_max:
                raise InvariantBroken(f"no end after {batches_max} batches")

    def rows(self) -> list[JobRow]:
        return job_rows(self.state)

    def csv(self) -> str:
        return jobs_csv(self.rows())

    def running(self) -> set[str]:
        return {job.id for job in self.state.jobs.values() if job.allocation is not None}


def use(course: WorldCourse, world: World, observer: Observer | None = None) -> None:
    """From now on the policy of that world decides."""
    now_s, change = course.state.now_s, PlannerChange(make=lambda cluster: world.planner())
    events: list[Event] = [PolicyChanged(world.policy)]
    actions = course.scheduler.step(now_s, events, change)
    while actions or course.scheduler.solved:
        if observer is not None:
            observer(now_s, events)
        events = [*course.engine.execute(now_s, actions), *course.scheduler.take_solved()]
        actions = course.scheduler.step(now_s, events)
    if observer is not None:
        observer(now_s, events)


def brief(value: object) -> str:
    """A value without fields that have their default."""
    if isinstance(value, tuple):
        return f"({', '.join(brief(item) for item in value)})"
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    shown = [
        f"{field.name}={brief(found)}"
        for field, found in zip(msgspec.structs.fields(value), msgspec.structs.astuple(value), strict=True)
        if found != field.default
    ]
    return f"{type(value).__name__}({', '.join(shown)})"


def held_after(world: World) -> dict[float, dict[str, float]]:
    """The GPUs that every job held after each moment of a run."""
    course = world.begin()
    found: dict[float, dict[str, float]] = {}

    def look(at_s: float, events: list[Event]) -> None:
        found[at_s] = {each.id: each.held_gpus for each in course.state.jobs.values() if each.held_gpus}

    course.finish(look)
    return found
