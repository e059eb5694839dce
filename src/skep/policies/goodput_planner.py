"""The planner of policies that divide GPUs by goodput: a solver is asked in every round, its answer is carried out.

The goodput of a job (`policies/estimate/goodput.py`) follows from what it has shown while it ran. A job begins with as
few GPUs as it accepts and never gets more than twice as many as it has run on. Jobs that the answer leaves out, and
those with parts of GPUs or several roles, start where there is room and stay there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from skep.core.actions import Setting
from skep.core.cluster import WHOLE, Allocation
from skep.core.errors import InvariantBroken
from skep.core.job import JobState
from skep.core.knowledge import TrainingFigures
from skep.core.memory import Memory, Of, Slot
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.solving import ANSWERED, ASKED, SOLVE_FAILED
from skep.core.tasks import needs
from skep.core.view import JobView, View
from skep.policies.afs import can_change
from skep.policies.joint import JointPlanner
from skep.policies.place import Place
from skep.policies.place.base import capacity, role_slice
from skep.policies.pollux.problem import GivenPlace, GoodputAnswer, ShownTraining

GPUS_MAX = 64
"""The most GPUs of a job."""
STEPS_MAX = 32
"""The most step times that are kept of a job; the oldest is dropped first."""
BATCH_SIZE = "batch_size"


class CarriedOut(msgspec.Struct, frozen=True, array_like=True):
    """The number of the answer that was carried out last."""

    number: int


CARRIED = Slot("goodput carried out", CarriedOut, Of.ALL)


class PlannerOptions(NamedTuple):
    """What the engine can do, and what a change costs."""

    restart_s: float
    resizes: bool
    moves: bool
    tunes: bool


class Wish(NamedTuple):
    """A job and where it is to run."""

    job: JobView
    given: GivenPlace
    shape: Shape


class GoodputPlanner(JointPlanner):
    """A policy has `problem`, the question for the solver, whose answer is a `GoodputAnswer`, and `shown`."""

    def __init__(self, *, name: str, place: Place, options: PlannerOptions) -> None:
        super().__init__(name=name, place=place)
        self.options = options

    def attach(self, view: View, memory: Memory) -> None:
        super().attach(view, memory)
        self.answer: tuple[int, GoodputAnswer] = (-1, GoodputAnswer({}))

    def note_shown(self, view: View, plan: Plan, memory: Memory, job: JobView) -> None:
        """Keep what a running job shows."""
        raise NotImplementedError

    # Asking ----------------------------------------------------------------------------------------------------

    def asks(self, view: View, memory: Memory) -> bool:
        """True once at each moment; an answer that came late is carried out first."""
        answered, failed, carried = ANSWERED.get(memory), SOLVE_FAILED.get(memory), CARRIED.get(memory)
        if ASKED.get(memory) is not None or view.now_s in [each.at_s for each in (answered, failed) if each]:
            return False
        is_carried = answered is None or (carried is not None and carried.number == answered.number)
        return is_carried and any(True for _ in self.sought(view))

    def sought(self, view: View) -> Iterator[JobView]:
        """The jobs whose places are sought: pending ones, and running ones that may be changed."""
        for job in view.open_jobs.values():
            if not view.has(job) or not is_divisible(job.shapes[0]):
                continue
            if job.state is JobState.PENDING:
                if job.is_ready:
                    yield job
            elif self.options.moves and job.spec.preemptible and can_change(view.cluster, job):
                yield job

    def sizes(self, view: View, job: JobView, gpus_shown: int) -> tuple[int, int]:
        """The fewest and the most tasks that it may have now."""
        role = job.shapes[0].roles[0]
        sizes = job.spec.gpu_range if self.options.resizes else None
        if sizes is None:
            return role.count, role.count
        least = sizes[0] // role.gpus
        most = min(sizes[1], 2 * gpus_shown, GPUS_MAX, view.cluster.gpu_total) // role.gpus
        return least, max(most, least)

    def kept(self, view: View, job: JobView) -> float:
        """The part of its speed that counts if it is changed."""
        age_s, restart_s = view.now_s - job.submit_s, self.options.restart_s
        return max(age_s - max(job.launches - 1, 0) * restart_s, 0.0) / (age_s + restart_s) if restart_s else 1.0

    def batches(self, job: JobView) -> tuple[int, int] | None:
        """The smallest and the largest batch size that it may be given."""
        return job.spec.batch_range if self.options.tunes else own_batch(job)

    # Carrying out ----------------------------------------------------------------------------------------------

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float:
        for job in self.sought(view):
            if job.allocation is not None:
                self.note_shown(view, plan, memory, job)
        answered, carried = ANSWERED.get(memory), CARRIED.get(memory)
        if answered is not None and (carried is None or carried.number != answered.number):
            plan.remember(CARRIED, "", CarriedOut(answered.number))
            self._carry_out(view, plan, self._answer(answered.number, answered.answer), pending)
        for job in sorted(pending, key=lambda job: (job.rank, job.seq)):
            if job.allocation is None:
                self._start_anywhere(view, plan, job)
        return math.inf

    def _answer(self, number: int, answer: bytes) -> GoodputAnswer:
        if self.answer[0] != number:
            self.answer = number, msgspec.msgpack.decode(answer, type=GoodputAnswer)
        return self.answer[1]

    def _carry_out(self, view: View, plan: Plan, answer: GoodputAnswer, pending: Sequence[JobView]) -> None:
        running = [job for job in self.sought(view) if job.allocation is not None]
        there = {job.seq: job for job in (*running, *pending)}
        wishes = [self._wish(there[seq], given) for seq, given in answer.jobs.items() if seq in there]
        staying = [
            each for each in wishes if each.job.allocation is not None and seats_of(each.job) == each.given.tasks
        ]
        changing = [each for each in wishes if seats_of(each.job) != each.given.tasks]
        while changing:
            found = self._find(view, plan, changing)
            misfits = [each for each in changing if each.given.tasks and each.job.id not in found]
            if not misfits:
                if not self._change(plan, changing, found):
                    return
                break
            changing = [each for each in changing if each not in misfits]
        for each in changing:
            self._tune(plan, each, {})
        for each in staying:
            self._tune(plan, each, each.job.settings)

    def _wish(self, job: JobView, given: GivenPlace) -> Wish:
        shape = job.shapes[0]
        tasks = sum(given.tasks.values())
        if tasks and tasks != shape.roles[0].count:
            resized = job.spec.resized(tasks * shape.roles[0].gpus)
            shape = Shape(resized.roles, shape.gpu_types, shape.spans_types)
        return Wish(job, given, shape)

    def _find(self, view: View, plan: Plan, changing: Sequence[Wish]) -> dict[str, Allocation]:
        """Their new places; their present ones count as free."""
        mark = plan.mark()
        for each in changing:
            if each.job.allocation is not None:
                plan.vacate(each.job)
        found = {}
        for each in changing:
            seat = self._seat(view, plan, each) if each.given.tasks else None
            if seat is not None:
                plan.occupy(each.job, seat)
                found[each.job.id] = seat
        plan.rollback(mark)
        return found

    def _seat(self, view: View, plan: Plan, wish: Wish) -> Allocation | None:
        """On the nodes of the answer; if these lack something else that it needs, anywhere."""
        role, nodes = wish.shape.roles[0], view.cluster.nodes
        picks = [(nodes[index], tasks) for index, tasks in sorted(wish.given.tasks.items()) if index < len(nodes)]
        if len(picks) == len(wish.given.tasks) and all(node.is_up and capacity(node, role) >= n for node, n in picks):
            memory_mib = needs(role)[2]
            slices = [role_slice(node, role, 0, n, node.pick(n * role.gpus, memory_mib)) for node, n in picks]
            seat = Allocation(tuple(slices), wish.shape.gpus)
            if plan.allows(seat):
                return seat
        return self.place.find(view.cluster, plan, wish.job, wish.shape, view.now_s)

    def _change(self, plan: Plan, changing: Sequence[Wish], found: dict[str, Allocation]) -> bool:
        """False, with everything as it was, if cells of a virtual cluster cannot be bound to healthy ones in this
        order."""
        coming = [each.job for each in changing if each.given.tasks]
        mark = plan.mark()
        try:
            with plan.bundle():
                for each in changing if coming else ():
                    if not each.given.tasks:
                        plan.stop(each.job, coming[0].id)
                moves = [(job, found[job.id]) for job in coming if job.allocation is not None]
                if moves:
                    plan.move_all(moves)
                for job in coming:
                    if job.allocation is None:
                        plan.start(job, found[job.id])
        except InvariantBroken:
            plan.rollback(mark)
            return False
        return True

    def _tune(self, plan: Plan, wish: Wish, before: Mapping[str, Setting]) -> None:
        batch = wish.given.batch_size
        if batch and self.options.tunes and wish.job.allocation is not None and before.get(BATCH_SIZE) != batch:
            plan.tune(wish.job, {BATCH_SIZE: batch})

    def _start_anywhere(self, view: View, plan: Plan, job: JobView) -> None:
        shapes: Sequence[Shape] = job.shapes
        if is_divisible(job.shapes[0]):
            least = self.sizes(view, job, 0)[0]
            shapes = (self._wish(job, GivenPlace({0: least})).shape, *job.shapes)
        for shape in shapes:
            seat = self.place.find(view.cluster, plan, job, shape, view.now_s)
            if seat is not None:
                plan.start(job, seat)
                return


def is_divisible(shape: Shape) -> bool:
    """True if it is tasks of one role, with whole GPUs of one type."""
    role = shape.roles[0]
    return len(shape.roles) == 1 and role.gpus > 0 and role.gpu_milli == WHOLE and not shape.spans_types


def seats_of(job: JobView) -> dict[int, int]:
    """Its tasks on each node."""
    found: dict[int, int] = {}
    for piece in job.allocation.slices if job.allocation is not None else ():
        if piece.gpus:
            found[piece.node] = found.get(piece.node, 0) + piece.tasks
    return found


def own_batch(job: JobView) -> tuple[int, int] | None:
    batch = job.spec.batch_size
    return None if batch is None else (batch, batch)


# What jobs show -----------------------------------------------------------------------------------------------------


def is_showing(view: View, job: JobView) -> bool:
    """True if it has run for a while where it is."""
    return job.held is not None and can_change(view.cluster, job) and job.progress_since_s < view.now_s


def with_figures(before: ShownTraining, gpus: int, figures: TrainingFigures | None) -> ShownTraining:
    """The same after it has run on so many GPUs and measured this."""
    gpus = max(before.gpus, gpus)
    if figures is None:
        return before if gpus == before.gpus else msgspec.structs.replace(before, gpus=gpus)
    is_known = any(each[:3] == figures.step[:3] for each in before.steps)
    steps = before.steps if is_known else (*before.steps[1 - STEPS_MAX :], figures.step)
    return ShownTraining(gpus, steps, figures.sqr, figures.var, figures.samples)
