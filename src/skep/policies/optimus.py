"""The planner of Optimus: GPUs are given one by one, each to the job whose remaining time it shortens most.

1. In the order of priority and submission every job gets its smallest size, as long as there are GPUs.
2. The next GPU goes to the job that gains most by it, until no job gains or no GPU is left.
3. Jobs whose size is unchanged keep their GPUs. The others are placed again, the smallest first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from skep.core.cluster import WHOLE, Allocation
from skep.core.knowledge import Training
from skep.core.memory import Memory
from skep.core.model import JobSpec, Shape
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.afs import at_home, can_change, home_type, homes_of, room_in
from skep.policies.allocate.elastic import ElasticSizes, kind_of, milli_of
from skep.policies.allocate.tournament import Home
from skep.policies.estimate.by_loss import OPTIMUS, LossFits
from skep.policies.estimate.duration import Duration
from skep.policies.joint import JointPlanner
from skep.policies.place import Place

UNKNOWN_S = 3600.0
"""The work that is left of a job that has reported too few losses."""

TimeAt = Callable[[int], float]
"""The remaining time of a job in its size with this number."""


class Sized:
    """A job and its size: the number of a shape, the smallest first; -1: it gets no GPUs."""

    def __init__(self, job: JobView, shapes: Sequence[Shape], time_s: TimeAt, homes: tuple[Home, ...]) -> None:
        self.job = job
        self.shapes = shapes
        self.held = -1 if job.allocation is None else round(job.allocation.gpus * WHOLE)
        is_rigid = job.allocation is not None and len(shapes) == 1  # it may run in another of its shapes
        self.milli = [self.held] if is_rigid else [milli_of(shape) for shape in shapes]
        self.time_s = time_s
        self.homes = homes
        self.size = -1
        self.home = homes[0]

    @property
    def is_unchanged(self) -> bool:
        return self.size >= 0 and self.milli[self.size] == self.held

    def gain(self) -> float:
        """Seconds that its next GPU saves, on average over the GPUs of the next size."""
        if self.size + 1 == len(self.shapes):
            return -math.inf
        added = (self.milli[self.size + 1] - self.milli[self.size]) / WHOLE
        return (self.time_s(self.size) - self.time_s(self.size + 1)) / added


class Optimus(JointPlanner):
    """`restart_s`: a job does not grow for a gain of less than that. `by_steps`: times are those of measured training
    steps, and no restart is charged, as in the simulator of Pollux. `by_loss`: lengths are those at which loss curves
    say that jobs have converged."""

    def __init__(
        self,
        *,
        name: str,
        place: Place,
        sizes: ElasticSizes,
        restart_s: float,
        by_steps: bool,
        by_loss: bool = False,
    ) -> None:
        super().__init__(name=name, place=place)
        self.sizes = sizes
        self.estimate = Duration()
        self.restart_s = restart_s
        self.by_steps = by_steps
        self.losses = LossFits(OPTIMUS) if by_loss else None

    def attach(self, view: View, memory: Memory) -> None:
        super().attach(view, memory)
        self.sizes.use(view)
        self.steps: dict[object, tuple[list[Shape], list[float]]] = {}
        self.speed_version = view.knowledge.speed_version

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float:
        if self.speed_version != view.knowledge.speed_version:
            self.sizes.use(view)
            self.speed_version = view.knowledge.speed_version
        left_out: set[str] = set()
        while not self._is_carried_out(view, plan, pending, left_out):
            pass
        return min((self.place.changes_at(job, view.now_s) for job in pending), default=math.inf)

    def _is_carried_out(self, view: View, plan: Plan, pending: Sequence[JobView], left_out: set[str]) -> bool:
        """False if jobs found no place. They are added to those that are left out: pending ones wait and running ones
        stay as they are, so that no job is stopped for one that cannot run."""
        jobs = self._sized(view, pending, left_out)
        share_out(view, jobs)
        if not self.by_steps:
            self.spare_restarts(jobs)
        changed = [each for each in jobs if each.size >= 0 and not each.is_unchanged]
        leaving = [each for each in jobs if each.size < 0 and each.job.allocation is not None]
        found = self._find(view, plan, sorted(changed, key=lambda each: each.milli[each.size]), leaving)
        misfits = {each.job.id for each in changed} - found.keys()
        if misfits:
            left_out |= misfits
        elif changed:
            self._carry_out(plan, changed, leaving, found)
        return not misfits

    # Sizes -----------------------------------------------------------------------------------------------------

    def _sized(self, view: View, pending: Sequence[JobView], left_out: set[str]) -> list[Sized]:
        """The jobs whose size is decided: pending ones, and running ones that may be changed."""
        running = [job for job in view.held_jobs.values() if job.spec.preemptible and can_change(view.cluster, job)]
        jobs = [job for job in (*running, *pending) if job.id not in left_out]
        jobs.sort(key=lambda job: (job.rank, job.seq))
        homes = homes_of(view.cluster, [job.shapes[0] for job in jobs])
        return [Sized(job, *self.times(view, job), homes_for(view, job, homes)) for job in jobs]

    def times(self, view: View, job: JobView) -> tuple[Sequence[Shape], TimeAt]:
        """Its sizes, and its remaining time in each."""
        training = view.knowledge.training(job.spec) if self.by_steps else None
        if training is not None and job.spec.gpu_range is not None and self.sizes.can_resize:
            shapes, step_s = self._steps(view, job.spec, training)
            steps = training.steps_left(job.work_at(view.now_s))
            return shapes, lambda size: step_s[size] * steps
        ladder = self.sizes.ladder(job.spec)
        left_s = self.left_s(view, job)
        return ladder.shapes, lambda size: left_s / float(ladder.speeds[size])

    def left_s(self, view: View, job: JobView) -> float:
        """Work left: as its owner expects, or as its losses say."""
        if self.losses is None:
            return max(self.estimate.total_s(job) - job.work_at(view.now_s), 0.0)
        found = self.losses.left_s(view.knowledge, job, view.now_s)
        return UNKNOWN_S if found is None else found

    def _steps(self, view: View, spec: JobSpec, training: Training) -> tuple[list[Shape], list[float]]:
        """The sizes in which training steps were measured, on the first GPU type that the job accepts, and the seconds
        of a step in each."""
        kind = kind_of(spec)
        if kind not in self.steps:
            assert spec.gpu_range is not None
            low, high = spec.gpu_range
            gpu_type = view.cluster.pools_for(spec.shapes[0].gpu_types)[0].gpu_type
            sizes = range(low, max(min(high, view.cluster.gpu_total), low) + 1)
            found = [(gpus, training.step_s(gpus, gpu_type)) for gpus in sizes]
            known = [(spec.resized(gpus), step_s) for gpus, step_s in found if step_s is not None]
            known = known or [(spec.resized(low), math.inf)]
            self.steps[kind] = [shape for shape, _ in known], [step_s for _, step_s in known]
        return self.steps[kind]

    def spare_restarts(self, jobs: list[Sized]) -> None:
        """A job that would gain less by growing than a restart costs stays as it is."""
        for each in jobs:
            now = each.milli.index(each.held) if each.held in each.milli else each.size
            if each.size > now and each.time_s(now) - each.time_s(each.size) < self.restart_s:
                each.size = now

    # Places ----------------------------------------------------------------------------------------------------

    def _carry_out(self, plan: Plan, changed: list[Sized], leaving: list[Sized], found: dict[str, Allocation]) -> None:
        with plan.bundle():
            for each in leaving:
                plan.stop(each.job, changed[0].job.id)
            moves = [(each.job, found[each.job.id]) for each in changed if each.job.allocation is not None]
            if moves:
                plan.move_all(moves)
            for each in changed:
                if each.job.allocation is None:
                    plan.start(each.job, found[each.job.id])

    def _find(self, view: View, plan: Plan, changed: list[Sized], leaving: list[Sized]) -> dict[str, Allocation]:
        """New allocations by job; their present ones count as free."""
        mark = plan.mark()
        for each in (*changed, *leaving):
            if each.job.allocation is not None:
                plan.vacate(each.job)
        found = {}
        for each in changed:
            place = self._place(view, plan, each)
            if place is not None:
                # A pending job counts as a neighbour of those that are placed after it.
                plan.occupy(each.job, place) if each.job.allocation is not None else plan.start(each.job, place)
                found[each.job.id] = place
        plan.rollback(mark)
        return found

    def _place(self, view: View, plan: Plan, each: Sized) -> Allocation | None:
        """There may be enough GPUs, but not close enough to each other, or without CPUs: then in another home, or in a
        smaller size. A job of one size may name several shapes."""
        is_rigid = len(each.shapes) == 1
        shapes = each.job.shapes if is_rigid else each.shapes[each.size :: -1]
        for shape in shapes:
            for home in dict.fromkeys((each.home, *each.homes)):
                found = self.place.find(view.cluster, plan, each.job, at_home(shape, home), view.now_s)
                if found is not None:
                    return found
        return None


def share_out(view: View, jobs: list[Sized]) -> None:
    """Set the sizes of these jobs, which are in the order of priority and submission."""
    left = {home: room_in(view.cluster, home) for each in jobs for home in each.homes}
    for each in jobs:
        left[each.home] += max(each.held, 0)
    for each in jobs:
        for home in each.homes:
            if left[home] >= each.milli[0]:
                each.size, each.home = 0, home
                left[home] -= each.milli[0]
                break
    gains = [(-each.gain(), number) for number, each in enumerate(jobs) if each.size == 0]
    heapq.heapify(gains)
    while gains and gains[0][0] < 0:
        _, number = heapq.heappop(gains)
        each = jobs[number]
        added = each.milli[each.size + 1] - each.milli[each.size]
        if added <= left[each.home]:
            left[each.home] -= added
            each.size += 1
            heapq.heappush(gains, (-each.gain(), number))


def homes_for(view: View, job: JobView, homes: dict[str, Home]) -> tuple[Home, ...]:
    """A running job stays on its GPU type."""
    if job.allocation is not None:
        return (homes[home_type(view.cluster, job.allocation)],)
    shape = job.shapes[0]
    pools = view.cluster.pools_for(shape.gpu_types if shape.gpus else ())
    return tuple(dict.fromkeys(homes[pool.gpu_type] for pool in pools))
