"""The planner of AlloX: jobs are matched to machines so that completion times add up to the least.

A machine for a job is a slice of one node that holds it: so many of its GPUs, or so many of its CPUs for a shape
without GPUs. Jobs of one size share the slices of that size; slices of different sizes of a node overlap, and the
matching does not see that. Running jobs are not preempted, except by jobs of a higher priority: a machine is free when
what runs there is expected to end. A job that goes first on a free machine starts. One that is matched to a machine in
use waits for it, even if a slower one is free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from skep.core.cluster import WHOLE, Allocation
from skep.core.job import amount_of
from skep.core.memory import Memory
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.tasks import needs
from skep.core.view import JobView, NodeView, View
from skep.policies.allocate.matching import NEVER_S, first_jobs, match
from skep.policies.estimate.duration import Duration
from skep.policies.joint import JointPlanner
from skep.policies.place import Place
from skep.policies.probe import Probes, on_types
from skep.policies.room import make_room
from skep.policies.why_by_trial import STOPPABLE

CPU = "cpu"
"""The GPU type of a shape without GPUs, as in profiles."""


class MachineKind(NamedTuple):
    """Equal slices: so much of each of `gpus` GPUs of these types, or without GPUs so much of CPUs, in thousandths."""

    gpu_types: tuple[str, ...]
    gpus: int
    gpu_milli: int = WHOLE
    cpu_milli: int = 0


class Option(NamedTuple):
    """A way to run a job: how long it would take, in which shape, on which machines."""

    time_s: float
    shape: Shape
    kind: MachineKind


class AlloX(JointPlanner):
    """`fraction`: the part of the users, those with the smallest share of the cluster, whose jobs are matched first;
    `window`: the most jobs in a matching."""

    def __init__(self, *, name: str, place: Place, fraction: float, window: int, probe_s: float = 0.0) -> None:
        super().__init__(name=name, place=place)
        self.fraction = fraction
        self.window = window
        self.estimate = Duration()
        self.probes = Probes(probe_s, place)

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float:
        pending = self.probes.start(view, plan, memory, pending)
        wake_s = min((self.place.changes_at(job, view.now_s) for job in pending), default=math.inf)
        for rank in sorted({job.rank for job in pending}):
            equals = [job for job in pending if job.rank == rank]
            favoured = favoured_users(view, equals, self.fraction)
            for some in (
                [job for job in equals if user_of(job) in favoured],
                [job for job in equals if user_of(job) not in favoured],
            ):
                self._start_matched(view, plan, some)
        return wake_s

    def _start_matched(self, view: View, plan: Plan, jobs: list[JobView]) -> None:
        """Start the jobs that go first on free machines. A job for which there is no room there after all is left out,
        and the others are matched again."""
        ways = {job.seq: self._options(view, job) for job in jobs}
        there = sorted((job for job in jobs if ways[job.seq]), key=lambda job: (service(ways[job.seq][0]), job.seq))
        while there:
            firsts = self._firsts(view, there[: self.window], ways)
            started = [self._start(view, plan, job, option, ways[job.seq]) for job, option in firsts]
            if not firsts or (all(started) and len(there) <= self.window):
                return
            tried = {job.seq for job, _ in firsts}
            there = [job for job in there if job.seq not in tried]

    def _firsts(self, view: View, jobs: list[JobView], ways: dict[int, list[Option]]) -> list[tuple[JobView, Option]]:
        """The jobs that go first on machines that are free, the least service first."""
        kinds = dict.fromkeys(option.kind for job in jobs for option in ways[job.seq])
        machines = [
            (kind, free_in_s) for kind in kinds for free_in_s in self._machines(view, kind, jobs[0].rank, len(jobs))
        ]
        times = []
        for job in jobs:
            by_kind = {option.kind: option.time_s for option in reversed(ways[job.seq])}
            times.append([by_kind.get(kind, math.inf) for kind, _ in machines])
        spots = match(times, [free_in_s for _, free_in_s in machines])
        found = []
        for machine, row in first_jobs(spots).items():
            kind, free_in_s = machines[machine]
            if free_in_s <= 0:
                option = next(option for option in ways[jobs[row].seq] if option.kind == kind)
                found.append((jobs[row], option))
        return sorted(found, key=lambda each: (service(each[1]), each[0].seq))

    def _start(self, view: View, plan: Plan, job: JobView, matched: Option, options: list[Option]) -> bool:
        """Start it as matched or, if that is not possible, in the fastest way that is."""
        for option in (matched, *(each for each in options if each is not matched)):
            found = self.place.find(view.cluster, plan, job, option.shape, view.now_s)
            if found is None:
                found = push_out(view, plan, self.place, job, option.shape)
            if found is not None:
                plan.start(job, found)
                return True
        return False

    # Times and machines ----------------------------------------------------------------------------------------

    def _options(self, view: View, job: JobView) -> list[Option]:
        """The fastest first."""
        left_s = self._left_s(job, view.now_s)
        found = []
        for shape in job.shapes:
            for kind, there in kinds_of(view, shape):
                rate = view.knowledge.rate(job.spec, there, kind.gpu_types[0] if shape.gpus else CPU)
                if rate is None or rate > 0:
                    found.append(Option(min(left_s / (rate or 1.0), NEVER_S), there, kind))
        return sorted(found, key=lambda option: option.time_s)

    def _left_s(self, job: JobView, now_s: float) -> float:
        return max(self.estimate.total_s(job) - job.work_at(now_s), 0.0)

    def _machines(self, view: View, kind: MachineKind, rank: int, most: int) -> list[float]:
        """In how many seconds each of these machines is free for a job of this rank, the first ones. A kind that no
        node can hold is one machine that consists of the GPUs of several nodes."""
        if not kind.gpus:
            found = [
                free for node in view.cluster.nodes if node.is_up for free in self._cpus(view, node, kind, rank, most)
            ]
            return sorted(found)[:most]
        nodes = [node for pool in view.cluster.pools_for(kind.gpu_types) for node in pool.nodes if node.is_up]
        lanes = [sorted(self._lanes(view, node, kind.gpu_milli, rank)) for node in nodes]
        found = [lane[at] for lane in lanes for at in range(kind.gpus - 1, len(lane), kind.gpus)]
        every = sorted(free for lane in lanes for free in lane)
        if not found and len(every) >= kind.gpus:
            return [every[kind.gpus - 1]]
        return sorted(found)[:most]

    def _lanes(self, view: View, node: NodeView, milli: int, rank: int) -> Iterator[float]:
        """In how many seconds each GPU of the node has so much left."""
        for gpu in range(node.gpu_count):
            tenants = [] if node.milli_left(gpu) >= milli else node.tenants(gpu)
            jobs = [view.open_jobs.get(tenant.owner) for tenant in tenants]
            yield max((self._ends_in_s(view, job, rank) for job in jobs if job is not None), default=0.0)

    def _cpus(self, view: View, node: NodeView, kind: MachineKind, rank: int, most: int) -> list[float]:
        if not kind.cpu_milli:
            return [0.0] * most
        free = min(node.cpu_free // kind.cpu_milli, most)
        busy = min(node.spec.cpu_milli // kind.cpu_milli, most) - free
        ends = [self._ends_in_s(view, job, rank) for job in view.placed_jobs() if node.index in nodes_of(job)]
        return [0.0] * free + [max(ends, default=0.0)] * max(busy, 0)

    def _ends_in_s(self, view: View, job: JobView, rank: int) -> float:
        """0 if a job of this rank preempts it."""
        if job.rank > rank and can_stop(job):
            return 0.0
        left_s = self._left_s(job, view.now_s)
        rate = job.rate or 1.0
        return max(min(left_s / rate, NEVER_S), 1e-6)  # it is in use until it has ended


def kinds_of(view: View, shape: Shape) -> Iterator[tuple[MachineKind, Shape]]:
    """The kinds of machines for a shape, each with the shape restricted to it."""
    if not shape.gpus:
        yield MachineKind((), 0, cpu_milli=sum(role.count * needs(role)[0] for role in shape.roles)), shape
        return
    pools, gpus = view.cluster.pools_for(shape.gpu_types), math.ceil(amount_of(shape))
    for pool in pools:
        yield MachineKind((pool.gpu_type,), gpus, shape.gpu_milli), on_types(shape, (pool.gpu_type,))
    if shape.spans_types and len(pools) > 1:
        types = tuple(pool.gpu_type for pool in pools)
        yield MachineKind(types, gpus, shape.gpu_milli), on_types(shape, types)


def service(option: Option) -> float:
    """GPU-seconds; CPUs count as one."""
    return option.time_s * max(option.kind.gpus, 1)


def user_of(job: JobView) -> str:
    return job.spec.user or job.spec.vc


def favoured_users(view: View, jobs: Iterable[JobView], fraction: float) -> set[str]:
    """The users of these jobs that hold the least: so much of all, at least one."""
    held = dict.fromkeys((user_of(job) for job in jobs), 0.0)
    for job in view.placed_jobs():
        if user_of(job) in held:
            held[user_of(job)] += job.gpus
    count = max(math.ceil(fraction * len(held)), 1)
    return set(sorted(held, key=lambda user: (held[user], user))[:count])


def push_out(view: View, plan: Plan, place: Place, job: JobView, shape: Shape) -> Allocation | None:
    """Preempt jobs of a lower priority, the last to start first."""
    lower = [each for each in view.placed_jobs() if each.rank > job.rank and can_stop(each)]
    if not lower:
        return None
    lower.sort(key=lambda each: (-each.rank, -each.decided_s, -each.seq))
    missing = shape.gpus - view.cluster.free_gpus(shape.gpu_types)
    room = make_room(view, plan, place, job, shape, lower, missing)
    return None if room is None else room.allocation


def can_stop(job: JobView) -> bool:
    return job.allocation is not None and job.spec.preemptible and not job.is_ending and job.state in STOPPABLE


def nodes_of(job: JobView) -> set[int]:
    return set() if job.allocation is None else {piece.node for piece in job.allocation.slices}
