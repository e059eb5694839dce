"""One policy on one trace: the scheduler that runs real jobs, driven by the engine whose clock jumps."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import msgspec

from skep.core.cells.layout import Layout
from skep.core.cluster import Cluster
from skep.core.errors import InputError, InvariantBroken
from skep.core.events import Event, Solved
from skep.core.fragments import Typical, typical_tasks
from skep.core.knowledge import UNKNOWN, ProfileFigures
from skep.core.memory import At
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.core.solving import OpenQuestion
from skep.core.state import State
from skep.core.step import Scheduler, answer_at_once
from skep.core.weights import EQUAL, Weights
from skep.engines.sim.delayed import Delayed
from skep.engines.sim.engine import Simulator
from skep.engines.sim.outages import Outages
from skep.experiments.known import Known
from skep.experiments.owners import knows_durations, shown_jobs, with_estimates
from skep.experiments.timed import OnDecisions, Timed
from skep.files.text import Texts
from skep.metrics.ended import JobTally
from skep.metrics.history import HistoryFold
from skep.metrics.run import Run
from skep.metrics.summary import Named, summarize
from skep.metrics.tally import GpuTally
from skep.policies.idle import NO_POLICY
from skep.policies.registry import Setting, needs_of
from skep.policies.shared.build import build_whole
from skep.policies.shared.vc import CELLS
from skep.profiles.speed import Speed
from skep.service.loop import Observer, run
from skep.traces.trace import Trace, TraceJob

Report = Callable[[int], None]
"""Called regularly with the number of jobs that have ended."""

UNANSWERED_MAX = 1000


class Options(msgspec.Struct, frozen=True):
    """Options that apply to all policies of a comparison."""

    restart_s: float = 30.0
    checkpoint_s: float = 600.0
    seed: int = 0
    round_s: float = 0.0
    finish_at_boundary: bool = False
    failures: str = ""
    solve_s: float = 0.0
    """How long solvers need for an answer."""
    keep_history: bool = False
    weights: Weights = EQUAL
    """Of users and virtual clusters."""
    estimate_error: float = 0.0
    """The error of the owner's estimate that policies get; 0: the true duration (`experiments/owners.py`)."""


class Experiment(msgspec.Struct, dict=True):
    """A trace on a cluster. The cluster is a template: every run gets its own copy."""

    trace: Trace
    cluster: Cluster
    options: Options = Options()
    speed: Callable[[Cluster], Speed] | None = None
    layout: Layout | None = None
    """The virtual clusters, if there are any."""
    sharing: str = CELLS
    texts: Texts = msgspec.field(default_factory=Texts)
    """Files that policies are made of."""

    def planner(self, policy: str) -> Planner:
        setting = Setting(
            self.cluster,
            seed=self.options.seed,
            round_s=self.options.round_s,
            vcs=self.vcs,
            typical=self.typical,
            weights=self.options.weights,
            texts=self.texts,
        )
        return build_whole(policy, setting, self.layout, self.sharing)

    @functools.cached_property
    def vcs(self) -> tuple[str, ...]:
        """The virtual clusters that jobs name, in the order of the trace."""
        return tuple(dict.fromkeys([job.spec.vc for job in self.trace.jobs]))

    @functools.cached_property
    def stands_alone(self) -> bool:
        """True if no job needs another one, or belongs to a group."""
        bound = [spec for job in self.trace.jobs if (spec := job.spec).needs or spec.needs_groups or spec.group]
        return not (self.trace.groups or bound)

    @functools.cached_property
    def typical(self) -> Typical:
        """The tasks by which fragments are measured: those of the trace."""
        size_max = max((pool.size_max for pool in self.cluster.pools), default=0)
        return typical_tasks((job.spec.shapes[0] for job in self.trace.jobs), size_max)

    def jobs(self, policy: str) -> list[TraceJob]:
        """The jobs of the trace with their owners' estimates. From a policy in a user's file, what it does not declare
        is kept away altogether; those of Skep read it by no other way than the guarded fields."""
        jobs = with_estimates(self.trace.jobs, self.options.estimate_error, self.options.seed)
        is_own = any(".py:" in each for each in self._policies(policy))
        return shown_jobs(jobs, self._needs(policy)) if is_own else jobs

    def measured(self) -> ProfileFigures:
        """The speeds that policies know."""
        return UNKNOWN if self.speed is None else Known(self.speed, self.cluster)

    def run(self, policy: str, report: Report | None = None, on_decisions: OnDecisions | None = None) -> Run:
        started_s = time.perf_counter()
        state = State(self.cluster.blank(), self.measured())
        planner = Timed(self.planner(policy), on_decisions)
        engine = self.engine(state.cluster, policy, planner.round_s)
        ended = JobTally(state, may_forget=self.stands_alone and self.layout is None and not planner.round_s)
        tally = GpuTally(state, ended, jobs=len(self.trace.jobs), typical=self.typical)
        fold = HistoryFold(state) if self.options.keep_history else None
        observers = [fold, OnProgress(engine, report) if report is not None else None]
        solver = Unanswered()
        try:
            if self.options.solve_s:
                slow = Delayed(engine, self.options.solve_s, solver.ask)
                run(Scheduler(state, planner, slow.ask), slow, all_of(observers), tally.note)
            else:
                run(Scheduler(state, planner, solver.ask), engine, all_of(observers), tally.note)
        except (Exception, SystemExit) as error:
            raise own_fault(policy, error) from error
        facts = ended.finish()
        summary = summarize(
            state,
            facts,
            tally,
            self._named(policy),
            events=state.event_count - ended.own_events,
            wall_s=time.perf_counter() - started_s,
            latency_ms=planner.latency_ms(),
        )
        return Run(
            summary=summary,
            rows=facts.rows,
            gpu_total=state.cluster.gpu_total,
            node_names=[node.name for node in state.cluster.nodes],
            node_gpus=[node.gpu_count for node in state.cluster.nodes],
            history=fold.finish() if fold is not None else None,
            unrunnable=facts.reasons,
            unanswered=solver.count,
            solver_error=solver.error,
        )

    def _needs(self, policy: str) -> frozenset[Need]:
        return frozenset().union(*(needs_of(each, self.texts) for each in self._policies(policy)))

    def _policies(self, policy: str) -> list[str]:
        """The policy, and those that VCs have instead."""
        own = self.layout.vcs.values() if self.layout is not None else ()
        return [each for each in dict.fromkeys((policy, *(vc.policy for vc in own))) if each not in ("", NO_POLICY)]

    def _named(self, policy: str) -> Named:
        options = self.options
        is_oracle = knows_durations(self._needs(policy), self.trace, options.estimate_error)
        measured = sum([job.spec.share is not None and job.spec.share.measured_milli > 0 for job in self.trace.jobs])
        return Named(
            policy, self.cluster.name, self.trace.name, options.seed, is_oracle, options.estimate_error, measured
        )

    def engine(self, cluster: Cluster, policy: str, round_s: float) -> Simulator:
        options = self.options
        outages = None
        if options.failures:
            from skep.engines.sim.outages import parse_failures

            # A trace may count from 1970: failures of fifty years without jobs are left out.
            since_s = self.trace.jobs[0].submit_s
            outages = parse_failures(options.failures, cluster, seed=options.seed, since_s=since_s)
        return Simulator(
            self.jobs(policy),
            cluster,
            speed=self.speed(cluster) if self.speed is not None else None,
            restart_s=options.restart_s,
            checkpoint_s=options.checkpoint_s,
            outages=outages or Outages.none(),
            finish_round_s=round_s if options.finish_at_boundary else 0.0,
            groups=self.trace.groups,
            reports=Need.PROGRESS in self._needs(policy),
        )


def all_of(observers: Sequence[Observer | None]) -> Observer | None:
    """One observer that calls all given ones."""
    present = [observer for observer in observers if observer is not None]
    if len(present) < 2:
        return present[0] if present else None

    def observe(at_s: float, events: list[Event]) -> None:
        for observer in present:
            observer(at_s, events)

    return observe


class OnProgress:
    """Reports regularly how many jobs have ended."""

    EVERY = 2000

    def __init__(self, engine: Simulator, report: Report) -> None:
        self.engine = engine
        self.report = report
        self.count = 0

    def __call__(self, at_s: float, events: list[Event]) -> None:
        self.count += 1
        if self.count % self.EVERY == 0:
            self.report(self.engine.ended_count)


class Unanswered:
    """Counts the questions of a policy to which its solver gave no answer. One that never answers could keep a
    simulation going for ever."""

    def __init__(self) -> None:
        self.count, self.in_a_row, self.error = 0, 0, ""

    def ask(self, planner: Planner, state: State, at: At, asked: OpenQuestion) -> Solved:
        solved = answer_at_once(planner, state, at, asked)
        self.in_a_row = self.in_a_row + 1 if solved.error else 0
        if solved.error:
            self.count, self.error = self.count + 1, solved.error
        if self.in_a_row == UNANSWERED_MAX:
            raise InputError(f"{planner.name}: no answer to {UNANSWERED_MAX:,} questions in a row: {self.error}")
        return solved


def own_fault(policy: str, error: BaseException) -> BaseException:
    """An error of a user's own policy becomes one line; any other is a bug and is raised unchanged."""
    from skep.policies.own import own_line

    hint = "the policy raised this while it ran; --traceback shows all of it"
    at = own_line(error)
    if at is not None:
        return InputError(f"{at[0]}:{at[1]}: {type(error).__name__}: {error}", hint=hint)
    if ".py:" not in policy:
        return error
    kind = "" if isinstance(error, InvariantBroken | ValueError) else f"{type(error).__name__}: "
    return InputError(f"policy {policy}: {kind}{error}", hint=hint)
