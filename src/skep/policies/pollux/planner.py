"""The planner of Pollux: GPUs and batch sizes of all jobs together, so that they learn fastest for what they hold.

In every round a solver is asked for a division of the GPUs (`pollux/search.py`) by the goodput that each job would have
in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skep.core.memory import At, Memory, Slot
from skep.core.plan import Plan
from skep.core.solving import SolverProblem
from skep.core.view import JobView, View
from skep.policies.goodput_planner import GoodputPlanner, PlannerOptions, is_showing, seats_of, with_figures
from skep.policies.place import Place
from skep.policies.pollux.problem import GoodputProblem, ShownTraining, SoughtJob, SoughtNode

SOLVER = "skep.policies.pollux.solve:solve"

SHOWN = Slot("pollux shown", ShownTraining)
NOTHING_SHOWN = ShownTraining(0)


class SearchOptions(NamedTuple):
    power: float
    seed: int
    population: int
    generations: int


class Pollux(GoodputPlanner):
    def __init__(self, *, name: str, place: Place, options: PlannerOptions, search: SearchOptions) -> None:
        super().__init__(name=name, place=place, options=options)
        self.search = search

    def problem(self, view: View, memory: Memory, at: At) -> SolverProblem:
        jobs = sorted(self.sought(view), key=lambda job: (job.rank, job.seq))
        moving = [job for job in jobs if job.allocation is not None]
        nodes = self._nodes(view, moving)
        places = {node.index: number for number, node in enumerate(nodes)}
        sought = [self._row(view, memory, job, places) for job in jobs]
        return SolverProblem(
            SOLVER,
            GoodputProblem(sought, nodes, *self.search),
        )

    def _nodes(self, view: View, moving: Sequence[JobView]) -> list[SoughtNode]:
        """Nodes with GPUs that are free or can be."""
        kinds = {pool.gpu_type: number for number, pool in enumerate(view.cluster.pools)}
        held: dict[int, int] = {}
        for job in moving:
            for node, tasks in seats_of(job).items():
                held[node] = held.get(node, 0) + tasks * job.shapes[0].roles[0].gpus
        mine = {job.seq for job in moving}
        spread = {
            node
            for job in view.placed_jobs()
            if job.seq not in mine and len(seats_of(job)) > 1
            for node in seats_of(job)
        }
        return [
            SoughtNode(node.index, gpus, kinds[node.pool.gpu_type], node.index in spread)
            for node in view.cluster.nodes
            if node.is_up and (gpus := node.free + held.get(node.index, 0))
        ]

    def _row(self, view: View, memory: Memory, job: JobView, places: dict[int, int]) -> SoughtJob:
        shape, shown = job.shapes[0], self._shown(view, memory, job)
        task_gpus = shape.roles[0].gpus
        now = {places[node]: tasks for node, tasks in seats_of(job).items()}
        least, most = self.sizes(view, job, shown.gpus)
        kinds = {pool.gpu_type: number for number, pool in enumerate(view.cluster.pools)}
        return SoughtJob(
            job.seq,
            task_gpus,
            least,
            max(most, sum(now.values())),
            tuple(kinds[pool.gpu_type] for pool in view.cluster.pools_for(shape.gpu_types)),
            now,
            self.kept(view, job),
            shown,
            self.batches(job),
        )

    def note_shown(self, view: View, plan: Plan, memory: Memory, job: JobView) -> None:
        if (now := self._shown(view, memory, job)) != SHOWN.get(memory, job.id):
            plan.remember(SHOWN, job.id, now)

    def _shown(self, view: View, memory: Memory, job: JobView) -> ShownTraining:
        """With what it shows at present."""
        before = SHOWN.get(memory, job.id) or NOTHING_SHOWN
        if job.held is None or not is_showing(view, job):
            return before
        return with_figures(before, job.held.gpu_count(), view.knowledge.shown(job, view.now_s))
