"""How running jobs give way to one that must run (Singularity): scale down, migrate, preempt, in that order.

Each is tried for one job at a time. A job without a promise is spliced onto those of its GPUs that are not needed; else
it moves to free GPUs elsewhere; else it is stopped. If it is in its cool-down it is stopped, because it has just had a
restart. Jobs without a promise are hit first: a promised job moves to free GPUs, else to GPUs of such jobs, which are
stopped for it, the best served first; only else it is scaled down or stopped.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.core.cluster import Allocation, bits
from skep.core.job import JobState
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.adjust.effects import Effects, is_settled
from skep.policies.adjust.splice import Splice, masks_of
from skep.policies.order.promises import Promises
from skep.policies.place import Place
from skep.policies.place.homes import fits, reserve_free
from skep.policies.room import make_room


class GiveWay:
    """`splice` scales down; `place` finds GPUs to move to. Without `moves` jobs are stopped at once."""

    def __init__(
        self, promises: Promises, splice: Splice, place: Place, *, cool_down_s: float, moves: bool = True
    ) -> None:
        self.promises = promises
        self.splice = splice
        self.place = place
        self.moves = moves
        self.effects = Effects("migrate", cool_down_s=cool_down_s, settle_s=300.0)

    def attach(self, view: View) -> None:
        self.effects.attach(view)

    def clear(self, view: View, plan: Plan, job: JobView, home: Allocation, guests: Iterable[JobView]) -> bool:
        """Remove guests, in the given order, until the job can have this allocation. False, with nothing changed, if it
        cannot even then."""
        mark = plan.mark()
        for guest in guests:
            if self._can_have(view, plan, job, home):
                return True
            self._leave(view, plan, job, guest, home)
        if self._can_have(view, plan, job, home):
            return True
        plan.rollback(mark)
        return False

    def _can_have(self, view: View, plan: Plan, job: JobView, home: Allocation) -> bool:
        """True if all of it is free, apart from what the job has itself, and the job makes progress there."""
        if self.place.standstills.are_known:
            pieces = [(view.cluster.nodes[piece.node], piece.gpus) for piece in home.slices]
            if any(self.place.stands_still(job, node, gpu) for node, mask in pieces for gpu in bits(mask)):
                return False
        mark = plan.mark()
        if job.allocation is not None:
            plan.vacate(job)
        found = fits(view.cluster, plan, home)
        plan.rollback(mark)
        return found

    def _leave(self, view: View, plan: Plan, job: JobView, guest: JobView, home: Allocation) -> None:
        before = guest.allocation
        assert before is not None
        if self.moves and guest.spec.preemptible and is_settled(guest) and not before.terms.mode:
            is_promised = guest.id in self.promises.book
            if is_promised and self._move(view, plan, guest, home, self._others()):
                return
            if self._scale(view, plan, guest, home):
                return
            if not is_promised and self.effects.is_cool(view, guest) and self._move(view, plan, guest, home, []):
                return
        plan.stop(guest, job.id)

    def _scale(self, view: View, plan: Plan, guest: JobView, home: Allocation) -> bool:
        """Splice it onto those of its GPUs that are not needed."""
        before, wanted = guest.allocation, masks_of(home)
        assert before is not None
        kept = {node: mask & ~wanted.get(node, 0) for node, mask in masks_of(before).items()}
        if not any(kept.values()) or not self.splice.may_scale(view, guest):
            return False
        smaller = self.splice.smaller(view, plan, guest, kept)
        if smaller is not None:
            plan.resize(guest, smaller)
            self.splice.note(view, plan, guest, before)
        return smaller is not None

    def _others(self) -> list[JobView]:
        """Jobs without a promise that may be stopped, the best served first."""
        return [each for _, _, each in self.promises.deficits.running if can_leave(each)]

    def _move(self, view: View, plan: Plan, guest: JobView, home: Allocation, others: list[JobView]) -> bool:
        """Move all of it to GPUs that the job at home does not need; as few as possible of the others are stopped."""
        assert guest.allocation is not None
        nodes, mark = len(guest.allocation.nodes()), plan.mark()
        plan.vacate(guest)
        reserve_free(view.cluster, plan, [home])
        found = self.place.find(view.cluster, plan, guest, guest.shapes[0], view.now_s)
        room = None
        if found is None and others:
            missing = guest.shapes[0].gpus - view.cluster.free_gpus(guest.shapes[0].gpu_types)
            room = make_room(view, plan, self.place, guest, guest.shapes[0], others, missing)
        plan.rollback(mark)
        for victim in room.victims if room is not None else ():
            plan.stop(victim, guest.id)
        found = found if room is None else room.allocation
        if found is not None:
            plan.move(guest, found)
            self.effects.note(view, plan, guest, "move", 1.0, nodes=nodes)
        return found is not None


def can_leave(job: JobView) -> bool:
    """True if it may be stopped now."""
    return job.spec.preemptible and job.state in (JobState.RUNNING, JobState.LAUNCHING)
