"""The pipeline of jobs with tiers (Singularity): it refuses promises that it could not keep, and keeps the others.

Before anything is started, jobs whose latest start has come (`Promises.due_s`) are started at their homes; the jobs
that run there give way (`GiveWay`). Everything else is as in any pipeline.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skep.core.cluster import Allocation
from skep.core.job import JobState, amount_of
from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.refusal import Refusal, Wait, remedy_of
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Adjuster, Preemption
from skep.policies.adjust.give_way import GiveWay, can_leave
from skep.policies.adjust.splice import masks_of
from skep.policies.lines import Entry, Line
from skep.policies.order.promises import EPSILON, HOUR_S, Promise, Promises
from skep.policies.pipeline import SKIP, Pipeline
from skep.policies.place.homes import Homes, copy_of
from skep.policies.place.housing import Found, Housing, is_sound
from skep.policies.roster import Roster
from skep.policies.walker import Walker


class TierRoster(Roster):
    """A roster that tells the promises where jobs are."""

    order: Promises

    def enqueue(self, view: View, plan: Plan | None, job: JobView) -> Line:
        self.order.watch(job, view.now_s)
        return super().enqueue(view, plan, job)

    def keep_running(self, job: JobView, plan: Plan | None, now_s: float, entry: Entry | None = None) -> None:
        self.order.watch(job, now_s)
        super().keep_running(job, plan, now_s, entry)


class TierWalker(Walker):
    """A walk that begins with the jobs whose promises are due."""

    bring_home: Callable[[View, Plan], None]

    def walk(self, view: View, plan: Plan) -> None:
        self.bring_home(view, plan)
        super().walk(view, plan)


class TierPipeline(Pipeline):
    """A pipeline with promises."""

    def __init__(
        self,
        *,
        name: str,
        order: Promises,
        place: Homes,
        give_way: GiveWay,
        preempt: Preemption,
        adjust: tuple[Adjuster, ...],
        walk: str,
        borrows: bool,
    ) -> None:
        super().__init__(
            name=name, order=order, place=place, preempt=preempt, adjust=adjust, walk=walk, borrows=borrows
        )
        self.promises = order
        self.housing = Housing(place.beneath, order)
        self.give_way = give_way

    def attach(self, view: View, memory: Memory) -> None:
        super().attach(view, memory)
        self.give_way.attach(view)
        self.is_settled = False
        """True if all jobs are known to have their promises, and these their homes."""

    def _make_roster(self, memory: Memory) -> Roster:
        is_strict, has_seats = self.walk != SKIP, bool(self.adjust)
        return TierRoster(
            self.name, self.promises, self.place, memory, self.preempt, is_strict=is_strict, has_seats=has_seats
        )

    def _make_walker(self, roster: Roster) -> TierWalker:
        walker = TierWalker(roster, self.allocate, self.place, self.preempt)
        walker.bring_home = self._bring_home
        return walker

    # Admission -----------------------------------------------------------------------------------------------------

    def why_never(self, view: View, job: JobView) -> str:
        never = super().why_never(view, job)
        if never or job.id in self.promises.book or not self.promises.milli_of(job.spec):
            return never
        if self._is_older(view, job) or self._find_home(view, view.new_plan(), job, view.now_s) is not None:
            return ""
        return self._why_refused(view, job)

    def _why_refused(self, view: View, job: JobView) -> str:
        promises = self.promises
        asked = amount_of(job.shapes[0])
        part = promises.milli_of(job.spec) / 1000
        what = f"promise of {part:g} of {asked:g} GPUs in every hour"
        if promises.length_s(job.spec) > HOUR_S:
            most = 1 - (2 * promises.restart_s + promises.round_s) / HOUR_S
            return f"{what}: at most {most:.3g} can be promised, since every start of a job takes time"
        given = sum(each.milli / 1000 * promises.asked[id] for id, each in promises.book.items())
        return (
            f"{what} does not fit: {given:g} of {view.cluster.gpu_total} GPUs are promised to other jobs "
            f"({len(promises.book):,}), and there are no {asked:g} together that could be kept for this one; ask for a "
            "lower tier or fewer GPUs, or try again when one of those jobs has ended"
        )

    def _admit(self, view: View, plan: Plan, job: JobView) -> bool:
        is_new = job.seq not in self.pending.entries and job.state is JobState.PENDING and job.is_ready
        if is_new and not job.launches and self._is_older(view, job):
            self.promises.deficits.note_ready(job, plan, view.now_s)
        if is_new and not super().why_never(view, job) and not self._promise(view, plan, job):
            plan.reject(job, self._why_refused(view, job))
            return False
        return super()._admit(view, plan, job)

    def _promise(self, view: View, plan: Plan, job: JobView) -> bool:
        """True if the job's promise is given now, or it needs none. An older job is not refused: it keeps its promise
        without a home."""
        promises = self.promises
        milli = promises.milli_of(job.spec)
        if job.id in promises.book:
            promises.roll(job, plan, view.now_s)
        elif milli and not job.state.is_final:
            promise = Promise(milli, view.now_s, job.service_at(view.now_s), job.launches)
            found = self._find_home(view, plan, job, view.now_s)
            if found is not None:
                self._house(view, plan, job, promise, found)
            elif self._is_older(view, job):
                promises.keep(job, promise, plan, view.now_s)
            else:
                return False
        return True

    def _is_older(self, view: View, job: JobView) -> bool:
        """True if it was accepted before: by another policy, or while it waited for other jobs."""
        return job.submit_s < view.now_s - self.promises.round_s - EPSILON

    def _find_home(self, view: View, plan: Plan, job: JobView, hour_s: float) -> Found | None:
        return self.housing.find(view, plan, job, hour_s, self.seats.jobs)

    def _house(self, view: View, plan: Plan, job: JobView, promise: Promise, found: Found) -> None:
        """Keep these homes from now on. A job that runs at its former home stays there until that is needed."""
        homes, offset_s = found
        for job_id, home in homes.items():
            if job_id == job.id:
                promise = msgspec.structs.replace(promise, home=home, offset_s=offset_s)
                self.promises.keep(job, promise, plan, view.now_s)
            elif home is not self.promises.book[job_id].home:
                moved = msgspec.structs.replace(self.promises.book[job_id], home=home)
                self.promises.keep(self.promises.jobs[job_id], moved, plan, view.now_s)

    # Before anything is started --------------------------------------------------------------------------------------

    def _take_in(self, view: View, plan: Plan, trigger: Trigger) -> None:
        had = len(self.promises.book)
        super()._take_in(view, plan, trigger)
        for job in trigger.started:
            if job.seq in self.running.by_seq:
                self.promises.watch(job, view.now_s)
        if not self.is_settled:
            self._take_over(view, plan)
        if trigger.nodes_changed or not self.is_settled:
            self._drop_homes(view, plan)
            self._settle_homes(view, plan)
        elif len(self.promises.book) < had:
            self._settle_homes(view, plan)
        self._bring_home(view, plan)

    def _take_over(self, view: View, plan: Plan) -> None:
        """Jobs that another policy has started, or has let wait, get their promises too."""
        waiting = [entry[3] for _, entry in self.pending.entries.values()]
        for job in (*self.seats.jobs.values(), *waiting):
            if job.id not in self.promises.book and self.promises.milli_of(job.spec):
                self._promise(view, plan, job)
                self._rekey(view, plan, job)

    def _drop_homes(self, view: View, plan: Plan) -> None:
        """Homes on nodes that are lost or drained are no longer kept."""
        promises = self.promises
        self.is_settled = True
        lost = [job for job in promises.jobs.values() if not is_sound(view.cluster, promises.book[job.id])]
        for job in lost:
            promises.keep(job, msgspec.structs.replace(promises.book[job.id], home=None), plan, view.now_s)

    def _settle_homes(self, view: View, plan: Plan) -> None:
        """Find homes for jobs without one, highest promises first."""
        promises = self.promises
        homeless = [job for job in promises.jobs.values() if promises.book[job.id].home is None]
        for job in sorted(homeless, key=lambda job: (-promises.book[job.id].milli, job.seq)):
            promise = promises.book[job.id]
            found = self._find_home(view, plan, job, promise.hour_s)
            if found is not None:
                self._house(view, plan, job, promise, found)
                self._rekey_here(view, plan, job)

    def _rekey_here(self, view: View, plan: Plan, job: JobView) -> None:
        """The promise of the job has changed; a job on borrowed cells belongs to another planner."""
        if self.is_ours(job):
            self._rekey(view, plan, job)

    def is_ours(self, job: JobView) -> bool:
        return job.seq in self.pending.entries or job.seq in self.running.by_seq

    def _bring_home(self, view: View, plan: Plan) -> None:
        """Jobs whose latest start has come, in the order in which they are due."""
        for job in sorted(self.promises.due.values(), key=lambda job: (self.promises.due_s(job), job.seq)):
            home = self.promises.book[job.id].home
            # a job that was started at its home before may have preempted it
            is_here = self.is_ours(job) and can_come(job)
            if home is not None and is_here and self.promises.is_due(job, view.now_s):
                self._bring(view, plan, job, copy_of(home))

    def _bring(self, view: View, plan: Plan, job: JobView, home: Allocation) -> None:
        number = len(plan.decisions)
        with plan.bundle():
            if not self.give_way.clear(view, plan, job, home, self._guests(view, home, job)):
                return
            if job.allocation is None:
                plan.start(job, home)
            else:
                plan.move(job, home)
        self._follow(view, plan, plan.decisions[number:])
        self.walk_again()  # something may be left for others

    def _guests(self, view: View, home: Allocation, job: JobView) -> list[JobView]:
        """The jobs that may be in the way there and may leave: those on its GPUs first, jobs without a promise before
        others, newest first."""
        wanted = masks_of(home)
        found = {seq: each for node in home.nodes() for seq, each in self.seats.on_node.get(node, {}).items()}
        found.pop(job.seq, None)

        def place(guest: JobView) -> tuple[bool, bool, int]:
            assert guest.allocation is not None
            is_on = any(piece.gpus & wanted.get(piece.node, 0) for piece in guest.allocation.slices)
            return not is_on, guest.id in self.promises.book, -guest.seq

        stays, now_s = self.promises.must_stay, view.now_s
        return sorted((guest for guest in found.values() if can_leave(guest) and not stays(guest, now_s)), key=place)

    # Explanations ----------------------------------------------------------------------------------------------

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        refusal = super().explain(view, memory, job)
        promise = self.promises.book.get(job.id)
        if promise is None or job.seq not in self.pending.entries:
            return refusal
        what = f"it is promised {promise.milli / 1000:g} of every hour"
        if promise.home is None:
            more = f"{what}, which cannot be kept now: too few nodes are up for all promises"
            return msgspec.structs.replace(refusal, reason=f"{refusal.reason}; {more}")
        due_s = self.promises.due_s(job)
        is_due = due_s < float("inf")
        when = f"in {max(due_s - view.now_s, 0):,.0f} s at the latest" if is_due else "in its next hour"
        changes = (Wait(due_s if is_due else promise.hour_s + HOUR_S),)
        reason = f"{refusal.reason}; {what} and starts {when}"
        return Refusal("promised", refusal.cause, reason, remedy_of(changes, view.now_s), changes)


def can_come(job: JobView) -> bool:
    """True if it can be started or moved now."""
    if job.state is JobState.PENDING:
        return job.is_ready
    return job.state is JobState.RUNNING and job.held == job.bound and not job.is_ending
