"""The planner of the Gavel policies: shares of time from a solver, kept by rounds.

A solver answers which part of the time each job should run on each GPU type. At each round the jobs are taken, type by
type, in the order in which they are behind their shares, and run where there is room, one type in a round; what no job
is owed goes to those without a share, so that no GPU stays idle. The answer is asked for again when jobs have come or
gone. In between, and if none comes, the last one stays in force.

How far a job is behind is counted in seconds since the answer in force. A job that runs is replaced only by one that
is behind by a turn more: restarts cost, and turns of a round would restart most jobs all the time. With `compat` the
order is that of Gavel's release: the share divided by the time received since the last answer, without a turn; of equal
ones first the job that was most behind in all answers before (`ShareBook`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from skep.core.cluster import WHOLE
from skep.core.job import JobState, amount_of
from skep.core.memory import At, Memory
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.refusal import Refusal
from skep.core.solving import ANSWERED, ASKED, SOLVE_FAILED, SolverProblem
from skep.core.view import JobView, View
from skep.core.weights import Weights
from skep.policies.estimate.completion import CompletedSpeeds, complete
from skep.policies.gavel.book import BOOK, EMPTY, AloneTime
from skep.policies.gavel.paired import PairedRound
from skep.policies.gavel.pairs import pair_key, pairs_of
from skep.policies.gavel.problem import ShareProblem, ShareRow, TimeShares
from skep.policies.gavel.rounds import ShareRound
from skep.policies.joint import JointPlanner
from skep.policies.place import Place
from skep.policies.probe import Probes, on_types

SOLVER = "skep.policies.gavel.solve:solve"
INTERVAL = 16 / 3
"""The least number of rounds between two answers: 1,920 s in Gavel's release."""
NARROW = 1e-3
"""The GPUs of a type that has none: a limit must leave room inside."""
LEAST, NOISE = 1e-5, 1e-3
"""Shares that are as small as this, or as this beside the job's largest one, do not count."""
NEVER_S = 1e9
"""The work of a job without an estimate."""


class GavelOptions(NamedTuple):
    objective: str
    merges: bool
    reads_left: bool
    """The objective depends on how much is left of jobs."""
    is_aware: bool
    is_compat: bool
    is_strategy_proof: bool
    completes: bool
    """Unknown speeds are completed from those of other models."""
    shares: bool
    """Pairs of jobs may run on the same GPUs."""
    seed: int
    costs: tuple[float, ...]
    inside: str
    weights: Weights


class Gavel(JointPlanner):
    def __init__(self, *, name: str, place: Place, options: GavelOptions, probe_s: float = 0.0) -> None:
        super().__init__(name=name, place=place)
        self.options = options
        self.probes = Probes(probe_s, place)
        self.drifts = options.is_compat

    def attach(self, view: View, memory: Memory) -> None:
        super().attach(view, memory)
        self.types = [pool.gpu_type for pool in view.cluster.pools]
        self.numbers = {gpu_type: number for number, gpu_type in enumerate(self.types)}
        self.seen: tuple[object, ...] = ()
        self.kinds: dict[tuple[str, Shape], SpeedKind] = {}
        self.by_job: dict[int, tuple[tuple[Shape, ...], SpeedKind]] = {}
        self.none = (0.0,) * len(self.types)
        self.shares: tuple[int, TimeShares] = (-1, TimeShares([], {}))

    # Asking ----------------------------------------------------------------------------------------------------

    def asks(self, view: View, memory: Memory) -> bool:
        """True if jobs have come or gone since the last answer, which is not too new. It follows from the state alone,
        so that a planner that takes it up in the middle of a round asks at the same times."""
        answered, failed = ANSWERED.get(memory), SOLVE_FAILED.get(memory)
        if ASKED.get(memory) is not None or view.now_s in [each.at_s for each in (answered, failed) if each]:
            return False
        if answered is not None and view.now_s - answered.at_s < INTERVAL * self.round_s:
            is_first = self.options.is_compat and not answered.at_s  # as if that of time 0 had not been
            is_idle = not self.options.is_compat and not view.held_jobs and not is_decided(view)
            if not is_first and not is_idle:
                return False
        self._refresh(view)
        there = self._sharing(view)
        return bool(there) and self.answer(memory).jobs.keys() != there.keys()

    def _sharing(self, view: View) -> dict[int, JobView]:
        """The jobs that share GPUs: they run, or could."""
        return {
            seq: job
            for seq, job in sorted(view.open_jobs.items())  # the solver may depend on their order
            if (job.is_ready or job.allocation is not None) and not job.is_ending and view.has(job)
            if self.kind(view, job).is_shared
        }

    def answer(self, memory: Memory) -> TimeShares:
        answered = ANSWERED.get(memory)
        if answered is None:
            return TimeShares([], {})
        if answered.number != self.shares[0]:
            found = msgspec.msgpack.decode(answered.answer, type=TimeShares)
            if not self.options.is_compat:
                found = msgspec.structs.replace(found, rows=[without_noise(row) for row in found.rows])
            self.shares = answered.number, found
        return self.shares[1]

    def problem(self, view: View, memory: Memory, at: At) -> SolverProblem:
        self._refresh(view)
        jobs = list(self._sharing(view).values())
        rows: list[ShareRow] = []
        firsts: list[JobView] = []
        found: dict[int, int] = {}
        merged: dict[tuple[object, ...], int] = {}
        alone = self.alone(view, memory, jobs)
        for place, job in enumerate(jobs):
            row = self._row(view, job, place, alone.get(job.seq))
            key = (row.gpus, row.weight, row.speeds, row.entity, pair_key(job) if self.options.shares else None)
            if self.options.merges and not self.options.is_compat and key in merged:
                number = merged[key]
                rows[number] = msgspec.structs.replace(rows[number], count=rows[number].count + 1)
            else:
                number = merged[key] = len(rows)
                rows.append(row)
                firsts.append(job)
            found[job.seq] = number
        options = self.options
        widths = tuple(max(float(pool.total), NARROW) for pool in view.cluster.pools)
        entities = {row.entity: options.weights.of_vc(row.entity) for row in rows}
        return SolverProblem(
            SOLVER,
            ShareProblem(
                options.objective,
                widths,
                rows,
                found,
                is_compat=options.is_compat,
                is_aware=options.is_aware,
                is_strategy_proof=options.is_strategy_proof,
                costs=costs_of(options.costs, len(widths)),
                inside=options.inside,
                entities=entities,
                pairs=pairs_of(view, list(zip(firsts, [row.count for row in rows], strict=True)))
                if options.shares
                else [],
            ),
        )

    def _row(self, view: View, job: JobView, place: int, alone: AloneTime | None) -> ShareRow:
        options, kind = self.options, self.kind(view, job)
        speeds = kind.speeds if options.is_aware else kind.agnostic
        entity = job.spec.vc if options.objective == "hierarchical" else ""
        if not options.reads_left:
            return ShareRow(kind.gpus, job.spec.weight, 1, speeds, kind.scale, place=place, entity=entity)
        left_s = self._left_s(view, job)
        due_s = 0.0
        if options.objective == "cost-slo" and job.spec.deadline_s is not None:
            due_s = max(job.submit_s + job.spec.deadline_s - view.now_s, 0.0)
        return ShareRow(
            kind.gpus,
            job.spec.weight,
            1,
            speeds,
            kind.scale,
            left_s=left_s,
            age_s=view.now_s - job.submit_s,
            alone_s=0.0 if alone is None else alone.alone_s,
            due_s=due_s,
            place=place,
            entity=entity,
        )

    def _left_s(self, view: View, job: JobView) -> float:
        expected = job.spec.expect_s
        return max((NEVER_S if expected is None else expected) - job.work_at(view.now_s), 0.0)

    def alone(self, view: View, memory: Memory, jobs: Sequence[JobView]) -> dict[int, AloneTime]:
        """For finish-time fairness: work since the last answer counts at the speed on an equal part then."""
        if self.options.objective != "ftf" or not jobs:
            return {}
        before = (BOOK.get(memory) or EMPTY).alone
        found = {}
        for job in jobs:
            kind, work_s = self.kind(view, job), job.work_at(view.now_s)
            speed = kind.isolated([pool.total / len(jobs) for pool in view.cluster.pools], self.options.is_aware)
            last = before.get(job.seq)
            done_s = 0.0 if last is None else last.alone_s + (work_s - last.work_s) / last.speed
            found[job.seq] = AloneTime(done_s, work_s, speed)
        return found

    def kind(self, view: View, job: JobView) -> SpeedKind:
        """The speeds of jobs of one model and request."""
        known = self.by_job.get(job.seq)
        if known is not None and known[0] is job.shapes:
            return known[1]
        key = (job.spec.model, job.shapes[0])
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = self._make_kind(view, job, job.shapes[0])
        self.by_job[job.seq] = job.shapes, found
        return found

    def _refresh(self, view: View) -> None:
        """Forget speeds that are no longer true: nodes are lost and come back, and speeds become known."""
        seen = [pool.total for pool in view.cluster.pools], view.knowledge.speed_version if self._knows else 0
        if seen != self.seen:
            self.seen, self.kinds, self.by_job = seen, {}, {}
        elif len(self.by_job) > 2 * len(view.open_jobs) + 100:
            self.by_job = {seq: known for seq, known in self.by_job.items() if seq in view.open_jobs}

    @property
    def _knows(self) -> bool:
        options = self.options
        return options.is_aware or options.reads_left or options.shares or options.is_compat

    def _make_kind(self, view: View, job: JobView, shape: Shape) -> SpeedKind:
        """An unknown speed counts as 1, unless it is completed; a type with too few GPUs as 0."""
        pools = view.cluster.pools
        rates = [view.knowledge.rate(job.spec, shape, pool.gpu_type) if self._knows else None for pool in pools]
        done = self._completed(view, job, shape, rates) if self.options.completes and None in rates else None
        speeds = []
        for number, pool in enumerate(pools):
            rate = rates[number] if done is None else done.speeds[number]
            fits = shape.gpus <= pool.total and (not shape.gpu_types or pool.gpu_type in shape.gpu_types)
            speeds.append((1.0 if rate is None else rate) if fits else 0.0)
        scale, is_shared = self._scale(view, job, speeds), shape.gpus > 0 and shape.gpu_milli == WHOLE and any(speeds)
        used = tuple([self._used(view, job, gpu_type) for gpu_type in self.types])
        words = "" if done is None else completed_words(self.types, rates, done)
        return SpeedKind(amount_of(shape), tuple(speeds), on_each(shape, self.types), scale, is_shared, words, used)

    def _completed(
        self, view: View, job: JobView, shape: Shape, rates: Sequence[float | None]
    ) -> CompletedSpeeds | None:
        known = view.knowledge
        others = [msgspec.structs.replace(job.spec, model=each) for each in sorted(known.models() - {job.spec.model})]
        rows = [[known.rate(other, shape, gpu_type) or 0.0 for gpu_type in self.types] for other in others]
        return complete(rows, rates)

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        """With what is only estimated about the job."""
        self._refresh(view)
        found, words = super().explain(view, memory, job), self.kind(view, job).completed
        return msgspec.structs.replace(found, reason=f"{found.reason}; {words}") if words else found

    def _used(self, view: View, job: JobView, gpu_type: str) -> float:
        """The part of a round that the job's whole steps take: with `compat` no step is begun that would not end."""
        steps = None
        if self.options.is_compat:
            steps = view.knowledge.steps_per_s(job.spec.model, gpu_type, job.shapes[0].gpus)
        per_round = (steps or 0.0) * self.round_s
        return int(per_round) / per_round if per_round >= 1 else 1.0

    def _scale(self, view: View, job: JobView, speeds: Sequence[float]) -> float:
        """Steps in a second of work, for solvers that see raw units."""
        if not self.options.is_compat or not self._knows:
            return 1.0
        for gpu_type, speed in zip(self.types, speeds, strict=True):
            steps = view.knowledge.steps_per_s(job.spec.model, gpu_type, job.shapes[0].gpus)
            if steps and speed:
                return steps / speed
        return 1.0

    # Rounds ----------------------------------------------------------------------------------------------------

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float:
        self._refresh(view)
        if is_decided(view):
            return math.inf
        pending = self.probes.start(view, plan, memory, pending)
        make = PairedRound if self.options.shares else ShareRound
        now = make(self, view, plan, memory, [job for job in pending if self.kind(view, job).is_shared])
        now.choose()
        now.carry_out()
        now.start_others(job for job in pending if job.state is JobState.PENDING)
        return math.inf


class SpeedKind(msgspec.Struct, frozen=True):
    """What is the same for jobs of one model and request."""

    gpus: float
    speeds: tuple[float, ...]
    shapes: tuple[Shape, ...]
    """Restricted to each type."""
    scale: float = 1.0
    is_shared: bool = True
    """False for jobs without GPUs or with parts of GPUs, and for gangs that need GPUs of several types: these run where
    they find room."""
    completed: str = ""
    """Which speeds are estimates, from what, and how far off they may be."""
    used: tuple[float, ...] = ()
    """The part of a round that counts as time received, by type."""

    @property
    def agnostic(self) -> tuple[float, ...]:
        return tuple(float(speed > 0) for speed in self.speeds)

    def isolated(self, parts: Sequence[float], is_aware: bool) -> float:
        """The speed on an equal part of every type: so many GPUs of each."""
        shares = [part / self.gpus for part in parts]
        over = max(sum(shares), 1.0)
        speeds = self.speeds if is_aware else self.agnostic
        return max(sum(speed * share for speed, share in zip(speeds, shares, strict=True)) / over, 1e-9)


def completed_words(types: Sequence[str], rates: Sequence[float | None], done: CompletedSpeeds) -> str:
    parts = [
        f"{speed:.2f} on {gpu_type}"
        for gpu_type, rate, speed in zip(types, rates, done.speeds, strict=True)
        if rate is None
    ]
    return (
        f"its speed is estimated from {done.references} other models, {', '.join(parts)} "
        f"(typically off by {done.error:.0%})"
    )


def without_noise(shares: tuple[float, ...]) -> tuple[float, ...]:
    """Solvers end near the optimum, so what should be 0 is often a little more: a job would be owed time everywhere."""
    least = max(NOISE * max(shares), LEAST)
    return tuple([share if share > least else 0.0 for share in shares])


def is_decided(view: View) -> bool:
    """True if the round that begins now is decided, and what it stopped has come back."""
    return any(job.decided_s == view.now_s for job in view.open_jobs.values() if job.launches or job.allocation)


def on_each(shape: Shape, gpu_types: Sequence[str]) -> tuple[Shape, ...]:
    return tuple(on_types(shape, (gpu_type,)) for gpu_type in gpu_types)


def costs_of(costs: tuple[float, ...], types: int) -> tuple[float, ...]:
    """The last one counts for all further types."""
    return tuple(costs[min(number, len(costs) - 1)] if costs else 1.0 for number in range(types))
