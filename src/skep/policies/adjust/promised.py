"""What others may take from promised jobs (Singularity): nothing by priority, but their GPUs while promises permit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from skep.core.job import JobState
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import Effects, is_settled
from skep.policies.adjust.give_way import can_leave
from skep.policies.adjust.grow import LOOK_AGAIN_S
from skep.policies.adjust.preempt import ByPriority
from skep.policies.adjust.sizes import start_pending
from skep.policies.adjust.splice import Splice
from skep.policies.lines import Entry
from skep.policies.order.base import Order
from skep.policies.order.promises import EPSILON, HOUR_S, Promises
from skep.policies.place.homes import Homes
from skep.policies.room import fits_without
from skep.policies.running import Running
from skep.policies.walker import missing_gpus


class SparePromised(ByPriority):
    """Jobs of a lower priority are stopped, except those with a promise."""

    name = "spare-promised"

    def __init__(self, promises: Promises) -> None:
        self.promises = promises

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        found = super().candidates(view, order, running, entry)
        return (job for job in found if job.id not in self.promises.book)


class AffordableSplice(Splice):
    """Promised jobs are scaled only if they can afford the start that this costs, and the one after it. Those that have
    less than they are promised get GPUs back first, then the most under-served."""

    def __init__(self, promises: Promises, *, depth: int, cool_down_s: float) -> None:
        super().__init__(depth=depth, cool_down_s=cool_down_s)
        self.promises = promises

    def may_scale(self, view: View, job: JobView) -> bool:
        is_free = job.id not in self.promises.book or self.promises.can_afford_a_start(job, view.now_s)
        return is_free and super().may_scale(view, job)

    def urgency(self, view: View, job: JobView) -> tuple[float, ...]:
        promises, now_s = self.promises, view.now_s
        is_short = job.id in promises.book and promises.need_s(job, now_s) > EPSILON
        return (not is_short, -round(promises.deficits.of(job, now_s), 3), job.seq)


class LendHomes:
    """Waiting jobs get GPUs of promised jobs which can spare them (`Promises.spare`): an owner is scaled down, or
    stopped if that is not enough, and gets its home again when it must run. Each lends at one moment in an hour, then
    to one or several jobs. A job that would fit on the GPUs of running jobs without a promise borrows none: it waits
    for its turn with these (`Rotate`)."""

    name = "lend homes"
    needs: frozenset[Need] = frozenset()

    def __init__(self, promises: Promises, splice: Splice, place: Homes, *, moves: bool) -> None:
        self.promises = promises
        self.splice = splice
        self.place = place
        self.moves = moves
        self.effects = Effects(self.name, cool_down_s=HOUR_S, settle_s=300.0)

    def attach(self, view: View) -> None:
        self.effects.attach(view)

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        wake_s = math.inf
        spare = [job for jobs in self.promises.spare.values() for job in jobs.values()]
        if any(self._may_lend(view, walked, owner) for owner in spare):
            walked.offer_pending(lambda job: self._lend_to(view, plan, walked, job))
        if any(job.state is JobState.LAUNCHING for job in spare):
            wake_s = view.now_s + LOOK_AGAIN_S
        return min(wake_s, self.effects.measure(view, plan))

    def _lend_to(self, view: View, plan: Plan, walked: Walked, job: JobView) -> bool:
        """Start a job without a promise on GPUs of one owner, which is scaled down if that leaves enough, else stopped:
        the smallest that is large enough, the best served one first."""
        if job.id in self.promises.book or not job.spec.preemptible:
            return False
        large = [jobs for gpus, jobs in self.promises.spare.items() if jobs and gpus >= job.gpu_count]
        if not large or self._has_turns(view, plan, walked, job):
            return False
        found = [owner for jobs in large for owner in jobs.values() if owner.rank >= job.rank]
        owners = [owner for owner in found if self._may_lend(view, walked, owner)]
        now_s, behind_s = view.now_s, self.promises.deficits.of
        owners.sort(key=lambda each: (self._size(each), round(behind_s(each, now_s), 3), each.seq))
        if self.moves:
            enough = (owner for owner in owners if self._size(owner) >= 2 * job.gpu_count)
            if any(self._give(view, plan, walked, job, owner, stops=False) for owner in enough):
                return True
        return any(self._give(view, plan, walked, job, owner, stops=True) for owner in owners)

    def _size(self, owner: JobView) -> float:
        return self.promises.asked[owner.id]

    def _has_turns(self, view: View, plan: Plan, walked: Walked, job: JobView) -> bool:
        """True if it would fit if other jobs without a promise gave way to it."""
        shape, others = job.shapes[0], self._others(walked, job)
        beneath = self.place.beneath  # which of the free GPUs it would get does not matter here
        return fits_without(view, plan, beneath, job, shape, others, missing_gpus(view, job, shape))

    def _others(self, walked: Walked, job: JobView) -> Iterator[JobView]:
        """Node by node, since those of one node are mostly enough to see that it fits."""
        listed, seen = self.promises.deficits.listed, set[int]()
        for jobs in walked.seats.on_node.values():
            for seq, other in jobs.items():
                if seq in listed and seq not in seen and other.rank >= job.rank and can_leave(other):
                    seen.add(seq)
                    yield other

    def _may_lend(self, view: View, walked: Walked, owner: JobView) -> bool:
        return owner.seq in walked.seats.jobs and is_settled(owner) and self.effects.is_cool(view, owner)

    def _give(self, view: View, plan: Plan, walked: Walked, job: JobView, owner: JobView, *, stops: bool) -> bool:
        """Stop the owner, or scale it down, and start the job on the released GPUs; all or nothing."""
        before = owner.allocation
        assert before is not None
        after = None
        if not stops:
            after = self.splice.smaller(view, plan, owner) if self.splice.may_scale(view, owner) else None
            if after is None:
                return False
        mark = plan.mark()
        with plan.bundle():
            if after is None:
                plan.stop(owner, job.id)
            else:
                plan.resize(owner, after)
            if start_pending(view, plan, walked, job):
                kept = 0.0 if after is None else after.gpus / before.gpus
                self.effects.note(view, plan, owner, "lend", kept, gpus=before.gpus)
                walked.seats.add(owner)
                return True
        plan.rollback(mark)
        return False
