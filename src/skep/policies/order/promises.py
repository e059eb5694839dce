"""Promised parts of every hour (Shukla et al., "Singularity", 2022): what each job is promised, and when it must run.

A tier is a part of the GPU time that a job requests. The hours of a job follow each other from the time at which it is
first ready. What it gets in one of them is

    fraction = GPU-seconds that it holds in the hour ÷ (requested GPUs × 3600)

as its service counts them: a gang spliced onto k of its n GPUs holds k. A start holds GPUs before it uses them, so
`restart_s` of every start in the hour count as not held; what a job gets without its restarts is at least its promise
if none takes longer.

Every promised job has a *home*, the requested GPUs, and a *slot*: a time in each of its hours for which the home is
kept for it. No two jobs have the same GPU at the same time, so the promises of all hold while their nodes are up.
Outside of its slot a job runs too, on free GPUs. In its slot it may wait as well: `due_s` is the latest time at which
it must be started, and only from then on others have to leave for it. The slot is longer than the promise by two
restarts, one for a start at the last moment and one for an earlier start that was cut short, and by a round.
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
from skep.policies.order.deficits import Deficits

HOUR_S = 3600.0
EPSILON = 1e-6


class Promise(msgspec.Struct, frozen=True, array_like=True):
    """The promise of a job, its counters when its present hour began, and what is kept for it."""

    milli: int
    hour_s: float
    """When the present hour began."""
    service_gpu_s: float
    """At the beginning of the present hour."""
    launches: int
    """At the beginning of the present hour."""
    home: Allocation | None = None
    """None: nothing can be kept for it; the promise may be broken."""
    offset_s: float = 0.0
    """When its slot begins in every hour."""
    hours: int = 0
    """The number of past hours, without those in which it was held."""
    short: int = 0
    """The number of these in which it got less than promised."""


PROMISE = Slot("promise", Promise)


class Promises(Order):
    """Jobs that have less than they are promised in their present hour first, the one that must run soonest before the
    others; then the most under-served."""

    hears_stops = hears_ends = jumps = True

    def __init__(
        self, tiers: dict[str, int], *, restart_s: float, lend_s: float = math.inf, round_s: float = 0.0
    ) -> None:
        self.tiers = tiers
        self.restart_s = restart_s
        self.lend_s = lend_s
        self.round_s = round_s
        self.deficits = Deficits()
        """Which jobs are under-served; running ones without a promise are listed there."""

    def attach(self, view: View) -> None:
        self.deficits.attach(view)
        self.jobs: dict[str, JobView] = {}
        """Promised jobs that have not ended."""
        self.book: dict[str, Promise] = {}
        self.asked: dict[str, float] = {}
        """The requested GPUs of each."""
        self.lengths_s: dict[str, float] = {}
        """The lengths of their slots."""
        self.away: dict[int, JobView] = {}
        """By seq, the jobs that are not at home with all their GPUs."""
        self.due: dict[int, JobView] = {}
        """Those of them whose latest start had come when they were last examined."""
        self.spare: dict[float, dict[int, JobView]] = {}
        """Jobs at home, by their GPUs, that can do without these for a while."""
        self.where: dict[int, Allocation | None] = {}
        """The last seen allocation of each, by seq."""
        self.changed_s: dict[int, float] = {}
        """When that changed."""
        for job_id, promise in PROMISE.all(view.memory).items():
            job = view.jobs.get(job_id)
            if job is not None and not job.state.is_final:
                self._enter(job, promise)
                self.watch(job, view.now_s)

    # What was promised -------------------------------------------------------------------------------------------

    def milli_of(self, spec: JobSpec) -> int:
        """Thousandths of every hour that the job requests."""
        if spec.share is None or not spec.shapes[0].gpus:
            return 0
        return spec.share.promise_milli or self.tiers.get(spec.share.tier, 0)

    def length_s(self, spec: JobSpec) -> float:
        """The length of the slot. A job that may not be stopped runs all the time once it has started."""
        if not spec.preemptible:
            return HOUR_S
        return self.milli_of(spec) / 1000 * HOUR_S + 2 * self.restart_s + self.round_s

    def keep(self, job: JobView, promise: Promise, plan: Plan, now_s: float) -> None:
        self._enter(job, promise)
        plan.remember(PROMISE, job.id, promise)
        self.watch(job, now_s)

    def _enter(self, job: JobView, promise: Promise) -> None:
        self.jobs[job.id], self.book[job.id] = job, promise
        self.asked[job.id] = amount_of(job.shapes[0])
        self.lengths_s[job.id] = self.length_s(job.spec)

    def watch(self, job: JobView, now_s: float) -> None:
        """The job has got or lost GPUs, its hour has begun, or its latest start may have come."""
        self._forget(job)
        if job.id not in self.book:
            self.deficits.watch(job, now_s)
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

    def left(self, job: JobView, plan: Plan, now_s: float) -> None:
        """From now on its home is kept for it, also while it is being stopped."""
        if job.id in self.book:
            self.watch(job, now_s)
        else:
            self.deficits.forget(job)

    def _forget(self, job: JobView) -> None:
        self.deficits.forget(job)
        self.away.pop(job.seq, None)
        self.due.pop(job.seq, None)
        for jobs in self.spare.values():
            jobs.pop(job.seq, None)

    def ended(self, job: JobView, plan: Plan, now_s: float) -> None:
        self.deficits.ready_s.pop(job.id, None)
        if self.jobs.pop(job.id, None) is not None:
            del self.book[job.id], self.asked[job.id], self.lengths_s[job.id]
            self._forget(job)
            self.where.pop(job.seq, None)
            self.changed_s.pop(job.seq, None)

    def roll(self, job: JobView, plan: Plan, now_s: float) -> None:
        """Begin the present hour."""
        promise = self.book.get(job.id)
        if promise is None or now_s < promise.hour_s + HOUR_S:
            return
        passed = math.floor((now_s - promise.hour_s + EPSILON) / HOUR_S)
        end_s = promise.hour_s + HOUR_S
        is_starting = job.allocation is not None and job.held_since_s > now_s - self.restart_s
        is_watched = now_s <= end_s + self.round_s + EPSILON  # otherwise it was held, or ran on borrowed cells
        self.keep(
            job,
            msgspec.structs.replace(
                promise,
                hour_s=promise.hour_s + passed * HOUR_S,
                service_gpu_s=job.service_at(now_s),
                launches=job.launches - is_starting,  # a start in progress takes time of this hour too
                hours=promise.hours + is_watched,
                short=promise.short + (is_watched and self.need_s(job, end_s) > EPSILON),
            ),
            plan,
            now_s,
        )

    # What it has, and what it must have ----------------------------------------------------------------------------

    def is_served(self, job: JobView) -> bool:
        """True if it holds everything it requested."""
        return job.allocation is not None and self.speed_of(job) >= 1.0

    def speed_of(self, job: JobView) -> float:
        """The part of the requested GPU time that it gets now, or will get as soon as it is started."""
        if job.allocation is None or job.state is JobState.SUSPENDED:
            return 0.0
        asked = self.asked.get(job.id) or amount_of(job.shapes[0])
        if job.share is not None and job.held == job.bound:
            return job.share * job.gpu_count / asked
        return job.allocation.gpus / asked

    def need_s(self, job: JobView, at_s: float) -> float:
        """Seconds with all its GPUs that it must still get in this hour; negative if it has had more."""
        promise = self.book[job.id]
        held_s = (job.service_at(at_s) - promise.service_gpu_s) / self.asked[job.id]
        starts = job.launches - promise.launches
        return promise.milli / 1000 * HOUR_S - held_s + starts * self.restart_s

    def slot(self, job: JobView) -> tuple[float, float]:
        """The interval of the present hour in which its home is kept for it."""
        promise = self.book[job.id]
        begin_s = promise.hour_s + promise.offset_s
        return begin_s, begin_s + self.lengths_s[job.id]

    def due_s(self, job: JobView) -> float:
        """The latest time at which it must be at home to get its part of this hour: by the end of its slot it has
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
        """A time in this hour, and what the job needed then. The time stays the same while the job's allocation does,
        so that what follows from it does not depend on when it is computed. For a job that has just got other GPUs it
        is now, and the start that this takes is counted."""
        base_s, changed_s = max(job.held_since_s, self.book[job.id].hour_s), self.changed_s.get(job.seq, -math.inf)
        if job.allocation is None or changed_s <= job.held_since_s:
            return base_s, self.need_s(job, base_s)
        base_s = max(base_s, changed_s)
        return base_s, self.need_s(job, base_s) + self.restart_s

    def is_due(self, job: JobView, now_s: float) -> bool:
        """True if others have to leave for it now; after its slot they do not."""
        return self.due_s(job) - self.round_s <= now_s + EPSILON and now_s < self.slot(job)[1]

    def must_stay(self, job: JobView, now_s: float) -> bool:
        """True if it is at home and would be due at once if it left. Such a job does not leave for another one, so each
        job is brought home at most once at an instant."""
        if job.id not in self.book or job.seq in self.away:
            return False
        begin_s, end_s = self.slot(job)
        need_s = self.need_s(job, now_s)
        due_s = max(end_s - need_s - self.restart_s, begin_s) - self.round_s
        return need_s > EPSILON and due_s <= now_s + 2 * EPSILON and now_s < end_s

    def may_begin(self, job: JobView, now_s: float, *, at_home: bool) -> bool:
        """True if it may start on free GPUs, which costs it a start. In its slot it stays at home; otherwise it may be
        cut short, and must be able to afford another start."""
        begin_s, end_s = self.slot(job)
        is_in_slot = begin_s - EPSILON <= now_s < end_s
        return (at_home and is_in_slot) or self.can_afford_a_start(job, now_s)

    def can_afford_a_start(self, job: JobView, now_s: float) -> bool:
        """True if it gets its part of this hour even if it must be started twice from now on."""
        end_s, need_s = self.slot(job)[1], self.need_s(job, now_s)
        left_s = min(end_s - now_s, self.lengths_s[job.id])
        return need_s <= EPSILON or left_s < 0 or left_s - need_s >= 2 * self.restart_s - EPSILON

    def spare_s(self, job: JobView) -> float:
        """How long a job at home could do without its GPUs in this hour. It stays the same while the job is there."""
        base_s, need_s = self._standing(job)
        return self.slot(job)[1] - base_s - need_s - self.restart_s

    def can_spare(self, job: JobView) -> bool:
        """True if that is long enough."""
        return self.spare_s(job) >= self.lend_s

    # The order -----------------------------------------------------------------------------------------------------

    def key(self, job: JobView, now_s: float) -> tuple[int, float]:
        """Running jobs are all equal, so that the newest of the lowest priority is stopped first."""
        is_promised = job.id in self.book
        if job.allocation is not None:
            return (0 if is_promised else 1, 0.0)
        if is_promised and self.need_s(job, now_s) > EPSILON:
            return (0, self.due_s(job))
        return (1, self.deficits.standing_s(job, now_s))

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
