"""Migration against fragmentation (Gandiva, OSDI'18), when a job has left.

1. A gang that sits on several nodes although one could hold it moves to one node: the one on which it has most of its
   GPUs, else the fullest that fits.
2. If a pending job or such a gang needs a free node (it fits on no node at present), the node in use with the most free
   GPUs, at least `threshold` of them, is emptied: its jobs move to fuller nodes, all or none.

Both repeat until nothing changes. This terminates, since every step leaves fewer gangs spread or a node idle.
"""

from __future__ import annotations

from skep.core.cluster import bits
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, NodeView, PoolView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import Effects, is_settled, solo_speed, speed_of
from skep.policies.adjust.sizes import on_node, shape_of


class Migrate:
    """Moves exclusive jobs. A gang whose gain is known moves only if it becomes at least `gain_min` times as fast."""

    name = "migrate"
    needs = frozenset({Need.MIGRATE})

    def __init__(self, *, threshold: float = 0.75, gain_min: float = 1.05, cool_down_s: float = 600.0) -> None:
        self.threshold = threshold
        self.gain_min = gain_min
        self.effects = Effects(self.name, cool_down_s=cool_down_s, settle_s=300.0)

    def attach(self, view: View) -> None:
        self.effects.attach(view)

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        if trigger.ended or trigger.nodes_changed:
            self._gather_all(view, plan, walked)
            for pool in view.cluster.pools:
                if self._wanted_gpus(pool, walked) and self._empty_one(view, plan, pool, walked):
                    self._gather_all(view, plan, walked)
        return self.effects.measure(view, plan)

    # Gangs become co-located -------------------------------------------------------------------------------------

    def _gather_all(self, view: View, plan: Plan, walked: Walked) -> None:
        """The largest gangs first; the GPUs that one leaves may be enough for another."""
        has_moved = True
        while has_moved:
            gangs = sorted(walked.seats.spread.values(), key=lambda job: (-job.gpu_count, job.seq))
            has_moved = any([self._gather(view, plan, walked, job) for job in gangs if self._may_move(view, job)])

    def _gather(self, view: View, plan: Plan, walked: Walked, job: JobView) -> bool:
        before = job.allocation
        assert before is not None
        pool = view.cluster.nodes[before.nodes()[0]].pool
        if any(view.cluster.nodes[node].pool is not pool for node in before.nodes()):
            return False
        gpus = before.gpu_count()
        held = {piece.node: piece.gpus.bit_count() for piece in before.slices}
        has_room = any(view.cluster.nodes[node].free + count >= gpus for node, count in held.items())
        if not has_room and not pool.having(gpus):
            return False
        gain = self._gain(view, job, pool)
        if gain < self.gain_min:
            return False
        mark = plan.mark()
        plan.vacate(job)
        nodes = [view.cluster.nodes[index] for index in bits(pool.having(gpus))]
        nodes.sort(key=lambda node: (-held.get(node.index, 0), node.free, node.index))
        found = next((seats for node in nodes if (seats := on_node(node, shape_of(job))) is not None), None)
        plan.rollback(mark)
        if found is None or not plan.allows(found):
            return False
        plan.move(job, found)
        self._note(view, plan, walked, job, gain, nodes=len(before.nodes()))
        return True

    def _gain(self, view: View, job: JobView, pool: PoolView) -> float:
        """How many times as fast it would be on one node; an unknown gain counts as sufficient."""
        speed = speed_of(view, job)
        known = view.knowledge.rate(job.spec, shape_of(job), pool.gpu_type)
        return solo_speed(view, job, pool.gpu_type) / speed if speed and known is not None else self.gain_min

    # Nodes become idle -------------------------------------------------------------------------------------------

    def _wanted_gpus(self, pool: PoolView, walked: Walked) -> bool:
        """True if a job could use a whole node of this pool, and fits on none at present."""
        most_free = next((free for free in range(pool.size_max, 0, -1) if pool.by_free[free]), 0)
        jobs = list(walked.seats.spread.values())

        def note(job: JobView) -> bool:
            jobs.append(job)
            return False

        walked.offer_pending(note)
        return any(
            most_free < job.shapes[0].gpus <= pool.size_max
            and (not job.shapes[0].gpu_types or pool.gpu_type in job.shapes[0].gpu_types)
            for job in jobs
        )

    def _empty_one(self, view: View, plan: Plan, pool: PoolView, walked: Walked) -> bool:
        nodes = [node for free in range(pool.size_max, 0, -1) for node in in_use(view, pool, free)]
        if not nodes or nodes[0].free < self.threshold * nodes[0].gpu_count:
            return False
        node = nodes[0]
        jobs = sorted(walked.seats.on_node.get(node.index, {}).values(), key=lambda job: (-job.gpu_count, job.seq))
        fuller = [other for other in reversed(nodes) if other is not node]
        mark = plan.mark()
        with plan.bundle():
            for job in jobs:
                found = next((seats for other in fuller if (seats := on_node(other, shape_of(job))) is not None), None)
                is_here = job.allocation is not None and len(job.allocation.slices) == 1
                if found is None or not is_here or not self._may_move(view, job) or not plan.allows(found):
                    plan.rollback(mark)
                    return False
                plan.move(job, found)
        for job in jobs:
            self._note(view, plan, walked, job, 1.0, nodes=1)
        return bool(jobs)

    def _may_move(self, view: View, job: JobView) -> bool:
        is_alone = job.allocation is not None and not job.allocation.terms.mode
        return is_alone and job.spec.preemptible and is_settled(job) and self.effects.is_cool(view, job)

    def _note(self, view: View, plan: Plan, walked: Walked, job: JobView, gain: float, nodes: int) -> None:
        self.effects.note(view, plan, job, "move", gain, nodes=nodes)
        walked.seats.add(job)


def in_use(view: View, pool: PoolView, free: int) -> list[NodeView]:
    """Nodes of the pool with this many free GPUs, on which something runs."""
    nodes = [view.cluster.nodes[index] for index in bits(pool.by_free[free])]
    return [node for node in nodes if node.free < node.gpu_count]
