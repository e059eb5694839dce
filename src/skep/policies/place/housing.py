"""Finds the GPUs that are kept for a promised job, and the time in every hour.

A home is found beside those of others: GPUs that no other job is promised at the same time. Free GPUs are taken first,
else those of jobs that may be stopped. If there are none because homes are scattered, the homes of one node are moved
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skep.core.cluster import Allocation
from skep.core.job import amount_of
from skep.core.plan import Plan
from skep.core.view import ClusterView, JobView, View
from skep.policies.order.promises import EPSILON, HOUR_S, Promise, Promises
from skep.policies.place.base import Place
from skep.policies.place.homes import copy_of, fits, overlap, reserve_free

Found = tuple[dict[str, Allocation], float]
"""The home of a job and the new homes of others, by id; and when the slot of the job begins in an hour."""

Running = Mapping[int, JobView]
"""Running jobs, by seq."""

NODES_MAX = 4
"""The number of nodes that are examined for moving homes away from them."""


class Housing:
    """Finds homes. `place` determines which GPUs are preferred."""

    def __init__(self, place: Place, order: Promises) -> None:
        self.place = place
        self.order = order

    def find(self, view: View, plan: Plan, job: JobView, hour_s: float, running: Running) -> Found | None:
        """For a job whose hours begin at `hour_s`; the plan is left unchanged."""
        if not self._may_fit(view.cluster, job):
            return None
        mark = plan.mark()
        here = None
        if job.seq in running and job.allocation is not None:  # otherwise it may run on borrowed cells
            here = job.allocation if self.order.is_served(job) else None
            plan.vacate(job)
        offsets_s = self._offsets(job, hour_s)
        # As long as others run where they are, only homes of those who are not there can be free.
        found = self._beside(view, plan, job, hour_s, offsets_s, here, self.order.away.values())
        if found is None:
            stay, leave = self._who_stays(job, running)
            vacate_all(plan, leave)
            owners = [each for each in self.order.jobs.values() if each.id not in stay]
            found = self._beside(view, plan, job, hour_s, offsets_s, here, owners)
            if found is None:
                vacate_all(plan, stay.values())
                found = self._rearranged(view, plan, job)
        plan.rollback(mark)
        return found

    def _who_stays(self, job: JobView, running: Running) -> tuple[dict[str, JobView], list[JobView]]:
        """Of the others that may be stopped: those at home, by id, with slots that overlap any slot of this job; and
        the rest. The homes of the former are as good as kept if they stay there."""
        stay: dict[str, JobView] = {}
        leave = []
        rest_s = HOUR_S - self.order.length_s(job.spec)
        for other in running.values():
            if other is job or not other.spec.preemptible or other.allocation is None:
                continue
            if other.seq not in self.order.away and self.order.lengths_s.get(other.id, 0.0) > rest_s + EPSILON:
                stay[other.id] = other
            else:
                leave.append(other)
        return stay, leave

    def _may_fit(self, cluster: ClusterView, job: JobView) -> bool:
        """True if an hour has enough GPU time for all slots; slots of more than half an hour cannot share a GPU."""
        length_s, gpus = self.order.length_s(job.spec), amount_of(job.shapes[0])
        if length_s > HOUR_S:
            return False
        slots = [(length_s, gpus)]
        slots += [(self.order.lengths_s[id], self.order.asked[id]) for id in self.order.jobs if id != job.id]
        there = sum(pool.total for pool in cluster.pools) + EPSILON
        asked = sum(length_s * gpus for length_s, gpus in slots)
        return asked <= HOUR_S * there and sum(gpus for length_s, gpus in slots if length_s > HOUR_S / 2) <= there

    def _offsets(self, job: JobView, hour_s: float) -> list[float]:
        """Candidate times for the beginning of a slot: as late as possible and, if other slots leave time for it, at
        once or where another slot ends or begins."""
        length_s = self.order.length_s(job.spec)
        latest_s = HOUR_S - length_s
        found = {latest_s: None}
        for other in self.order.jobs.values():
            other_s = self.order.lengths_s[other.id]
            if other is not job and length_s + other_s <= HOUR_S + EPSILON:
                begin_s, end_s = self.order.slot(other)
                for at_s in (hour_s, end_s, begin_s - length_s):
                    offset_s = (at_s - hour_s) % HOUR_S
                    if offset_s <= latest_s + EPSILON:
                        found[min(offset_s, latest_s)] = None
        return list(found)

    def _beside(
        self,
        view: View,
        plan: Plan,
        job: JobView,
        hour_s: float,
        offsets_s: Iterable[float],
        here: Allocation | None,
        owners: Iterable[JobView],
    ) -> Found | None:
        """Where it could be beside the homes of these owners, `here` first."""
        length_s = self.order.length_s(job.spec)
        homes = [
            (promise.home, (promise.hour_s + promise.offset_s, self.order.lengths_s[other.id]))
            for other in owners
            if other is not job and (promise := self.order.book[other.id]).home is not None
        ]
        for offset_s in offsets_s:
            mark = plan.mark()
            own = (hour_s + offset_s, length_s)
            reserve_free(view.cluster, plan, [home for home, slot in homes if home and meet(slot, own)])
            found = copy_of(here) if here is not None and fits(view.cluster, plan, here) else None
            if found is None:
                found = self.place.find(view.cluster, plan, job, job.shapes[0], view.now_s)
            plan.rollback(mark)
            if found is not None:
                return {job.id: found}, offset_s
        return None

    # Others move -------------------------------------------------------------------------------------------------

    def _rearranged(self, view: View, plan: Plan, job: JobView) -> Found | None:
        """On a node from which other homes move away: the one with the fewest GPUs to move. Slots stay, and so do the
        homes of jobs that cannot afford another start in this hour."""
        homes = {
            id: promise.home for id, promise in self.order.book.items() if promise.home is not None and id != job.id
        }
        for node in self._nodes_to_clear(view, job, homes):
            mark = plan.mark()
            found = self._cleared(view, plan, job, node, homes)
            plan.rollback(mark)
            if found is not None:
                return found, HOUR_S - self.order.length_s(job.spec)
        return None

    def _nodes_to_clear(self, view: View, job: JobView, homes: Mapping[str, Allocation]) -> list[int]:
        """Nodes that are large enough, those with the fewest GPUs in homes that would have to move first."""
        on_node: dict[int, int] = {}
        fixed: dict[int, int] = {}
        for id, home in homes.items():
            book = on_node if len(home.nodes()) == 1 and self._may_move(view, id) else fixed
            for piece in home.slices:
                book[piece.node] = book.get(piece.node, 0) + piece.gpus.bit_count()
        nodes = [view.cluster.nodes[index] for index in on_node]
        roomy = [node for node in nodes if node.is_up and node.gpu_count - fixed.get(node.index, 0) >= job.gpu_count]
        roomy.sort(key=lambda node: (on_node[node.index] + fixed.get(node.index, 0), node.index))
        return [node.index for node in roomy[:NODES_MAX]]

    def _cleared(
        self, view: View, plan: Plan, job: JobView, node: int, homes: Mapping[str, Allocation]
    ) -> dict[str, Allocation] | None:
        """Homes for the job and for the jobs with a home on this node; the latter get another one if necessary."""
        leave = [id for id, home in homes.items() if home.nodes() == [node] and self._may_move(view, id)]
        reserve_free(view.cluster, plan, [home for id, home in homes.items() if id not in leave])
        found = self.place.find(view.cluster, plan, job, job.shapes[0], view.now_s)
        if found is None:
            return None
        plan.reserve(found)
        moved = {job.id: found}
        for id in sorted(leave, key=lambda id: (overlap(homes[id], found), -self.order.asked[id], id)):
            owner, home = self.order.jobs[id], homes[id]
            if not fits(view.cluster, plan, home):
                other = self.place.find(view.cluster, plan, owner, owner.shapes[0], view.now_s)
                if other is None:
                    return None
                home = moved[id] = other
            plan.reserve(home)
        return moved

    def _may_move(self, view: View, job_id: str) -> bool:
        owner = self.order.jobs[job_id]
        return owner.spec.preemptible and self.order.can_afford_a_start(owner, view.now_s)


def vacate_all(plan: Plan, jobs: Iterable[JobView]) -> None:
    for job in jobs:
        plan.vacate(job)


Slot = tuple[float, float]
"""When it begins, and how long it is."""


def meet(one: Slot, other: Slot) -> bool:
    """True if two slots overlap in any hour."""
    (begin_s, length_s), (other_s, other_length_s) = one, other
    after_s, before_s = (other_s - begin_s) % HOUR_S, (begin_s - other_s) % HOUR_S
    return after_s < length_s - EPSILON or before_s < other_length_s - EPSILON


def is_sound(cluster: ClusterView, promise: Promise) -> bool:
    """True if all nodes of a home exist and are up."""
    pieces = () if promise.home is None else promise.home.slices
    nodes = cluster.nodes
    return all(
        piece.node < len(nodes) and nodes[piece.node].is_up and not piece.gpus >> nodes[piece.node].gpu_count
        for piece in pieces
    )
