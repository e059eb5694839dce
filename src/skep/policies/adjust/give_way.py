"""How running jobs give way to one that must run (Singularity): scale down, migrate, preempt, in that order.

Each is tried for one job at a time: it is spliced onto those of its GPUs that are not needed; else it moves to free
GPUs elsewhere; else it is stopped. A job in its cool-down is stopped, because it has just had a restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.core.cluster import Allocation
from skep.core.job import JobState
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.adjust.effects import Effects, is_settled
from skep.policies.adjust.splice import Splice, masks_of
from skep.policies.place import Place
from skep.policies.place.homes import fits, reserve_free


class GiveWay:
    """`splice` scales down; `place` finds GPUs to move to. Without `moves` jobs are stopped at once."""

    def __init__(self, splice: Splice, place: Place, *, cool_down_s: float, moves: bool = True) -> None:
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
            if can_have(view, plan, job, home):
                return True
            self._leave(view, plan, job, guest, home)
        if can_have(view, plan, job, home):
            return True
        plan.rollback(mark)
        return False

    def _leave(self, view: View, plan: Plan, job: JobView, guest: JobView, home: Allocation) -> None:
        before, wanted = guest.allocation, masks_of(home)
        assert before is not None
        if self.moves and guest.spec.preemptible and is_settled(guest) and not before.terms.mode:
            kept = {node: mask & ~wanted.get(node, 0) for node, mask in masks_of(before).items()}
            if any(kept.values()) and self.splice.may_scale(view, guest):
                smaller = self.splice.smaller(view, plan, guest, kept)
                if smaller is not None:
                    plan.resize(guest, smaller)
                    self.splice.note(view, plan, guest, before)
                    return
            found = self._elsewhere(view, plan, guest, home) if self.effects.is_cool(view, guest) else None
            if found is not None:
                plan.move(guest, found)
                self.effects.note(view, plan, guest, "move", 1.0, nodes=len(before.nodes()))
                return
        plan.stop(guest, job.id)

    def _elsewhere(self, view: View, plan: Plan, guest: JobView, home: Allocation) -> Allocation | None:
        """An allocation for all of it, without the needed GPUs."""
        mark = plan.mark()
        plan.vacate(guest)
        reserve_free(view.cluster, plan, [home])
        found = self.place.find(view.cluster, plan, guest, guest.spec.shapes[0], view.now_s)
        plan.rollback(mark)
        return found


def can_have(view: View, plan: Plan, job: JobView, allocation: Allocation) -> bool:
    """True if all of it is free, apart from what the job has itself."""
    mark = plan.mark()
    if job.allocation is not None:
        plan.vacate(job)
    found = fits(view.cluster, plan, allocation)
    plan.rollback(mark)
    return found


def can_leave(job: JobView) -> bool:
    """True if it may be stopped now."""
    return job.spec.preemptible and job.state in (JobState.RUNNING, JobState.LAUNCHING)
