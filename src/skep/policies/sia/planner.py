"""The planner of Sia: in every round a configuration (nodes, GPUs and type) for each job, for the best goodput of all.

What a job has shown is kept by GPU type. Before it has run on a type, what a short trial on one GPU measures there
stands in (`knowledge.trial`); see `policies/estimate/by_type.py` for several GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.core.memory import At, Memory, Slot
from skep.core.plan import Plan
from skep.core.solving import SolverProblem
from skep.core.view import JobView, View
from skep.policies.afs import home_type
from skep.policies.allocate.elastic import kind_of
from skep.policies.goodput_planner import GoodputPlanner, PlannerOptions, is_showing, seats_of, with_figures
from skep.policies.place import Place
from skep.policies.pollux.problem import ShownTraining
from skep.policies.sia.problem import ShownByType, SiaJob, SiaNode, SiaProblem

SOLVER = "skep.policies.sia.solve:solve"

SHOWN = Slot("sia shown", ShownByType)


class Sia(GoodputPlanner):
    def __init__(self, *, name: str, place: Place, options: PlannerOptions, power: float, waiting: float) -> None:
        super().__init__(name=name, place=place, options=options)
        self.power, self.waiting = power, waiting

    def attach(self, view: View, memory: Memory) -> None:
        super().attach(view, memory)
        self.rates: dict[tuple[object, str], float] = {}
        self.speed_version = view.knowledge.speed_version

    def problem(self, view: View, memory: Memory, at: At) -> SolverProblem:
        jobs = sorted(self.sought(view), key=lambda job: (job.rank, job.seq))
        nodes = self._nodes(view, [job for job in jobs if job.allocation is not None])
        places = {node.index: number for number, node in enumerate(nodes)}
        rows = [self._row(view, memory, job, places) for job in jobs]
        return SolverProblem(SOLVER, SiaProblem(rows, nodes, self.power, self.waiting))

    def _nodes(self, view: View, moving: Sequence[JobView]) -> list[SiaNode]:
        """Nodes with GPUs that are free or can be."""
        held: dict[int, int] = {}
        for job in moving:
            for node, tasks in seats_of(job).items():
                held[node] = held.get(node, 0) + tasks * job.shapes[0].roles[0].gpus
        return [
            SiaNode(node.index, node.pool.gpu_type, node.gpu_count, gpus)
            for node in view.cluster.nodes
            if node.is_up and (gpus := node.free + held.get(node.index, 0))
        ]

    def _row(self, view: View, memory: Memory, job: JobView, places: dict[int, int]) -> SiaJob:
        shape, shown = job.shapes[0], self._shown(view, memory, job)
        now = {places[node]: tasks for node, tasks in seats_of(job).items()}
        least, most = self.sizes(view, job, shown.gpus)
        types = dict.fromkeys(pool.gpu_type for pool in view.cluster.pools_for(shape.gpu_types))
        shown = self._with_trials(view, job, shown, types)
        return SiaJob(
            job.seq,
            shape.roles[0].gpus,
            least,
            max(most, sum(now.values())),
            self._rates(view, job, shown, types),
            now,
            self.kept(view, job) if view.now_s - job.submit_s >= self.options.restart_s else 1.0,
            shown,
            self.batches(job),
        )

    def _rates(self, view: View, job: JobView, shown: ShownByType, types: dict[str, None]) -> dict[str, float]:
        """Its speed as it was requested on each type; 1 where that is not known, and where what was shown decides."""
        if any(each.steps for each in shown.types.values()):
            return dict.fromkeys(types, 1.0)
        if self.speed_version != view.knowledge.speed_version:
            self.rates, self.speed_version = {}, view.knowledge.speed_version
        found = {}
        for name in types:
            key = kind_of(job.spec), name
            if key not in self.rates:
                rate = view.knowledge.rate(job.spec, job.shapes[0], name)
                self.rates[key] = 1.0 if rate is None else rate
            found[name] = self.rates[key]
        return found

    # What jobs show --------------------------------------------------------------------------------------------

    def _with_trials(self, view: View, job: JobView, shown: ShownByType, types: dict[str, None]) -> ShownByType:
        """With trials on the types on which it has not run."""
        found = dict(shown.types)
        for name in types:
            tried = None if name in found and found[name].steps else view.knowledge.trial(job.spec, name)
            if tried is not None:
                found[name] = ShownTraining(0, tried.steps, samples=tried.samples)
        return ShownByType(found)

    def note_shown(self, view: View, plan: Plan, memory: Memory, job: JobView) -> None:
        if (now := self._shown(view, memory, job)) != SHOWN.get(memory, job.id):
            plan.remember(SHOWN, job.id, now)

    def _shown(self, view: View, memory: Memory, job: JobView) -> ShownByType:
        """With what it shows at present."""
        before = SHOWN.get(memory, job.id) or ShownByType({})
        if job.held is None or job.allocation is None or not is_showing(view, job):
            return before
        name = home_type(view.cluster, job.allocation)
        there = before.types.get(name) or ShownTraining(0)
        after = with_figures(there, job.held.gpu_count(), view.knowledge.shown(job, view.now_s))
        return before if after == there else msgspec.structs.replace(before, types={**before.types, name: after})
