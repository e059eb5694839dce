"""Promised parts of every hour (Shukla et al., "Singularity", 2022): who is promised what, and when it must run.

A tier is a part of the GPU time that a job asks for. The hours of a job follow each other from the moment at which it
is first ready. What it gets in one of them is

    fraction = GPU-seconds that it holds in the hour ÷ (GPUs that it asked for × 3600)

as its service counts them: a gang spliced onto k of its n GPUs holds k. A start holds GPUs before it uses them, so
`restart_s` of every start in the hour count as not held; what a job gets without its restarts is at least its promise
if none takes longer.

Every promised job has a *home*, the GPUs that it asked for, and a *slot*: a time in each of its hours for which the
home is kept for it. No two jobs have the same GPU at the same time, so the promises of all hold while their nodes are
up. Out of its slot a job runs too, on GPUs that are free. In its slot it may wait as well: `due_s` is the latest moment
at which it must be started, and only from then on others have to leave for it. The slot is longer
than the promise by two restarts, one for a start at the last moment and one for an earlier start that was cut short,
and by a round.
"""

from __future__ import annotations

import math

import msgspec

from skep.core.cluster import Allocation
from skep.core.job import JobState, amount_of
from skep.core.memory import Slot
from skep.core.model import JobSpec
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.order.base import Order

HOUR_S = 3600.0
EPSILON = 1e-6


class Promise(msgspec.Struct, frozen=True, array_like=True):
    """What a job is promised, what it had when its present hour began, and what is kept for it."""

    milli: int
    hour_s: float
    """When the present hour began."""
    service_gpu_s: float
    """Up to then."""
    launches: int
    """Up to then."""
    home: Allocation | None = None
    """None: nothing can be kept for it; the promise may be broken."""
    offset_s: float = 0.0
    """When its slot begins in every hour."""
    hours: int = 0
    """That are over, without those in which it was held."""
    short: int = 0
    """Of them, those in which it got less than promised."""


PROMISE = Slot("promise", Promise)


class Promises(Order):
    """Promised jobs first, the one that must run soonest before the others; then first come, first served."""

    def __init__(
        self, tiers: dict[str, int], *, restart_s: float, lend_s: float = math.inf, round_s: float = 0.0
    ) -> None:
        self.tiers = tiers
        self.restart_s = restart_s
        self.lend_s = lend_s
        self.round_s = round_s

    def attach(self, view: View) -> None:
        self.jobs: dict[str, JobView] = {}
        """Promised jobs that have not ended."""
        self.book: dict[str, Promise] = {}
        self.asked: dict[str, float] = {}
        """The GPUs that each asked for."""
        self.lengths_s: dict[str, float] = {}
        """Of their slots."""
        self.away: dict[int, JobView] = {}
        """By seq, those that are not at home with all their GPUs."""
        self.due: dict[int, JobView] = {}
        """Those of them whose last moment had come when they were last looked at."""
        self.spare: dict[float, dict[int, JobView]] = {}
        """Those that are, by their GPUs, and can do without these for a while."""
        self.where: dict[int, Allocation | None] = {}
        """What each was last seen to be given, by seq."""
        self.changed_s: dict[int, float] = {}
        """When that was, if it was something else before."""
        for job_id, promise in PROMISE.all(view.memory).items():
            job = view.jobs.get(job_id)
            if job is not None and not job.state.is_final:
                self._enter(job, promise)
                self.watch(job, view.now_s)

    # What was promised -------------------------------------------------------------------------------------------

    def milli_of(self, spec: JobSpec) -> int:
        """Thousandths of every hour that the job asks for."""
        if spec.share is None or not spec.shapes[0].gpus:
            return 0
        return spec.share.promise_milli or self.tiers.get(spec.share.tier, 0)

    def length_s(self, spec: JobSpec) -> float:
        """Of the slot. One that may not be stopped is served all the time, once it is."""
        if not spec.preemptible:
            return HOUR_S
        return self.milli_of(spec) / 1000 * HOUR_S + 2 * self.restart_s + self.round_s

    def keep(self, job: JobView, promise: Promise, plan: Plan, now_s: float) -> None:
        self._enter(job, promise)
        plan.remember(PROMISE, job.id, promise)
        self.watch(job, now_s)

    def _enter(self, job: JobView, promise: Promise) -> None:
        self.jobs[job.id], self.book[job.id] = job, promise
        self.asked[job.id] = amount_of(job.spec.shapes[0])
        self.lengths_s[job.id] = self.length_s(job.spec)

    def watch(self, job: JobView, now_s: float) -> None:
        """The job has got or lost GPUs, its hour has begun, or its last moment may have come."""
        self._forget(job)
        if job.id not in self.book:
            return
        if job.seq in self.where and self.where[job.seq] is not job.allocation:
            self.changed_s[job.seq] = now_s
        self.where[job.seq] = job.allocation
        home = self.book[job.id].home
        if home is None or job.allocation is None or job.allocation.slices != home.slices:
            self.away[job.seq] = job
            if self.is_due(job, now_s):
                self.due[job.seq] = job
        elif job.spec.preemptible and self.can_spare(job):
            self.spare.setdefault(self.asked[job.id], {})[job.seq] = job

    def _forget(self, job: JobView) -> None:
        self.away.pop(job.seq, None)
        self.due.pop(job.seq, None)
        for jobs in self.spare.values():
            jobs.pop(job.seq, None)

    def ended(self, job: JobView, plan: Plan, now_s: float) -> None:
        if self.jobs.pop(job.id, None) is not None:
            del self.book[job.id], self.asked[job.id], self.lengths_s[job.id]
            self._forget(job)
            self.where.pop(job.seq, None)
            self.changed_s.pop(job.seq, None)

    def roll(self, job: JobView, plan: Plan, now_s: float) -> None:
        """Begin the hour that it is now."""
        promise = self.book.get(job.id)
        if promise is None or now_s < promise.hour_s + HOUR_S:
            return
        passed = math.floor((now_s - promise.hour_s + EPSILON) / HOUR_S)
        end_s = promise.hour_s + HOUR_S
        is_starting = job.allocation is not None and job.held_since_s > now_s - self.restart_s
        is_watched = now_s <= end_s + self.round_s + EPSILON  # else it was held, or ran on lent cells
        self.keep(
            job,
            msgspec.structs.replace(
                promise,
                hour_s=promise.hour_s + passed * HOUR_S,
                service_gpu_s=job.service_at(now_s),
                launches=job.launches - is_starting,  # a start that is under way takes time of this hour too
                hours=promise.hours + is_watched,
                short=promise.short + (is_watched and self.need_s(job, end_s) > EPSILON),
            ),
            plan,
            now_s,
        )

    # What it has, and what it must have ----------------------------------------------------------------------------

    def is_served(self, job: JobView) -> bool:
        """Whether it holds all that it asked for."""
        return job.allocation is not None and self.speed_of(job) >= 1.0

    def speed_of(self, job: JobView) -> float:
        """The part of the GPU time that it asked for which it gets now, or will as soon as it is started."""
        if job.allocation is None or job.state is JobState.SUSPENDED:
            return 0.0
        asked = self.asked.get(job.id) or amount_of(job.spec.shapes[0])
        if job.share is not None and job.held == job.bound:
            return job.share * job.gpu_count / asked
        return job.allocation.gpus / asked

    def need_s(self, job: JobView, at_s: float) -> float:
        """Seconds with all its GPUs that it must still get in this hour; negative where it has had more."""
        promise = self.book[job.id]
        held_s = (job.service_at(at_s) - promise.service_gpu_s) / self.asked[job.id]
        starts = job.launches - promise.launches
        return promise.milli / 1000 * HOUR_S - held_s + starts * self.restart_s

    def slot(self, job: JobView) -> tuple[float, float]:
        """Of the present hour: from when to when its home is kept for it."""
        promise = self.book[job.id]
        begin_s = promise.hour_s + promise.offset_s
        return begin_s, begin_s + self.lengths_s[job.id]

    def due_s(self, job: JobView) -> float:
        """When it must be at home at the latest, so that it gets its part of this hour: at the end of its slot it has
        needed a start, and has run since."""
        promise = self.book[job.id]
        if promise.home is None:
            return math.inf
        begin_s, end_s = self.slot(job)
        base_s, need_s = self._standing(job)
        speed = self.speed_of(job)
        if need_s <= EPSILON or speed >= 1.0:
            return math.inf
        due_s = end_s - need_s - self.restart_s
        if speed:
            due_s = base_s + (due_s - base_s) / (1 - speed)
            if need_s - (due_s - base_s) * speed <= EPSILON:
                return math.inf
        return max(due_s, begin_s)

    def _standing(self, job: JobView) -> tuple[float, float]:
        """A moment of this hour, and what the job needed then. The moment stays while the job goes on as it does, so
        that what follows from it is the same whenever it is asked. Of a job that was just given other GPUs it is now,
        and the start that this takes is counted."""
        base_s, changed_s = max(job.held_since_s, self.book[job.id].hour_s), self.changed_s.get(job.seq, -math.inf)
        if job.allocation is None or changed_s <= job.held_since_s:
            return base_s, self.need_s(job, base_s)
        base_s = max(base_s, changed_s)
        return base_s, self.need_s(job, base_s) + self.restart_s

    def is_due(self, job: JobView, now_s: float) -> bool:
        """Whether others have to leave for it now; after its slot they do not."""
        return self.due_s(job) - self.round_s <= now_s + EPSILON and now_s < self.slot(job)[1]

    def may_begin(self, job: JobView, now_s: float, *, at_home: bool) -> bool:
        """Whether it may start on GPUs that are free, which costs it a start. In its slot it stays at home; otherwise
        it may be cut short, and must be able to afford another start."""
        begin_s, end_s = self.slot(job)
        is_in_slot = begin_s - EPSILON <= now_s < end_s
        return (at_home and is_in_slot) or self.can_afford_a_start(job, now_s)

    def can_afford_a_start(self, job: JobView, now_s: float) -> bool:
        """Whether it gets its part of this hour even if it must be started twice from now on."""
        end_s, need_s = self.slot(job)[1], self.need_s(job, now_s)
        left_s = min(end_s - now_s, self.lengths_s[job.id])
        return need_s <= EPSILON or left_s < 0 or left_s - need_s >= 2 * self.restart_s - EPSILON

    def spare_s(self, job: JobView) -> float:
        """How long a job at home could do without its GPUs in this hour. It stays the same while the job is there."""
        base_s, need_s = self._standing(job)
        return self.slot(job)[1] - base_s - need_s - self.restart_s

    def can_spare(self, job: JobView) -> bool:
        """Whether that is long enough."""
        return self.spare_s(job) >= self.lend_s

    # The order -----------------------------------------------------------------------------------------------------

    def key(self, job: JobView, now_s: float) -> tuple[int, float]:
        if job.id not in self.book:
            return (1, 0.0)
        return (0, self.due_s(job) if job.allocation is None else 0.0)

    def changes_at(self, job: JobView, now_s: float) -> float:
        promise = self.book.get(job.id)
        if promise is None:
            return math.inf
        moments = [promise.hour_s + HOUR_S]
        if job.seq in self.away:
            moments += [self.slot(job)[0], self.due_s(job) - self.round_s]
        return min((each_s for each_s in moments if each_s > now_s), default=math.inf)

    def rekeyed(self, job: JobView, plan: Plan, now_s: float) -> None:
        self.roll(job, plan, now_s)
