"""The planner of Themis: GPUs are leased, and when leases end they are auctioned among the apps that are treated worst.

An app is a group of jobs, or a job without a group. Its rho is its expected time to the end divided by the time on a
private part of the cluster. The apps with the worst rho bid for the GPUs that are free or whose lease is over; the rest
of these GPUs goes to all others, the worst rho first, so that none stays idle. A lease that ends goes on in place if
no other job gets the GPUs.

Gangs cannot be cut, so a winner pays in time: its lease is shorter by the part of the bundle that it does not keep.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from skep.core.job import JobState, amount_of
from skep.core.memory import Memory, Of, Slot
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.allocate.auction import Parcel, sell
from skep.policies.allocate.matching import NEVER_S
from skep.policies.allox import can_stop
from skep.policies.estimate.duration import Duration
from skep.policies.joint import JointPlanner
from skep.policies.place import Place
from skep.policies.probe import Probes, on_types
from skep.policies.room import make_room

STOPPING = JobState.STOPPING

LEASE_MIN = 0.1
"""The part of a lease that the highest payment leaves."""
SIZES_MAX = 8
"""The most numbers of jobs of one app, on one GPU type, that it bids for."""


class Contention(msgspec.Struct, frozen=True):
    """How many apps there were: app-seconds up to a time, and their number since then."""

    at_s: float
    app_s: float
    apps: int

    def until(self, now_s: float) -> float:
        return self.app_s + self.apps * (now_s - self.at_s)


LEASE = Slot("themis lease", float)
"""When the lease of a job ends."""
SINCE = Slot("themis since", float)
"""The app-seconds when the job was first seen."""
CONTENTION = Slot("themis contention", Contention, Of.ALL)


class App(msgspec.Struct, eq=False):
    """Jobs of one rank that share one rho: those that want GPUs now, and the figures of all of them."""

    rank: int
    wanting: list[JobView] = []
    """In the order in which it would run them: running ones first."""
    service_s: float = 0.0
    """GPU-seconds of all its jobs."""
    left_s: float = 0.0
    demand: int = 0
    held: int = 0
    """GPUs that it holds under leases that go on."""
    since_s: float = math.inf
    contenders: float = 1.0

    def ideal_s(self, gpu_total: int) -> float:
        """On a private part of the cluster."""
        return max(self.service_s / min(gpu_total / self.contenders, self.demand), 1e-3)

    def shared_s(self, gpus: float, lease_s: float, now_s: float) -> float:
        """From its first submission to its end, with so many more GPUs for this lease and then all that it wants."""
        gpus += self.held
        age_s = now_s - self.since_s
        if gpus * lease_s >= self.left_s:
            return age_s + (self.left_s / gpus if gpus else 0.0)
        return age_s + lease_s + (self.left_s - gpus * lease_s) / self.demand

    def rho(self, gpus: float, lease_s: float, now_s: float, gpu_total: int) -> float:
        """Rounded, so that equal apps stay equal."""
        return max(round(max(self.shared_s(gpus, lease_s, now_s), 1e-3) / self.ideal_s(gpu_total), 9), 1e-9)


class Won(NamedTuple):
    job: JobView
    home: str
    kept: float


class Themis(JointPlanner):
    """`left_out`: the part of the apps, those with the best rho, that does not bid."""

    def __init__(self, *, name: str, place: Place, lease_s: float, left_out: float, probe_s: float = 0.0) -> None:
        super().__init__(name=name, place=place)
        self.lease_s = lease_s
        self.left_out = left_out
        self.estimate = Duration()
        self.probes = Probes(probe_s, place)

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float:
        pending = self.probes.start(view, plan, memory, pending)
        leases = self._leases(view, plan, memory)
        there = [job for job in view.placed_jobs() if job.allocation is not None]
        self._count(view, plan, memory, [*pending, *there])
        expired = {job.seq: job for job in there if leases.get(job.id, math.inf) <= view.now_s and can_stop(job)}
        for rank in sorted({job.rank for job in pending}):
            jobs = [job for job in (*pending, *there) if job.rank == rank and job.state is not STOPPING]
            apps = self._apps(view, memory, jobs, expired)
            # Who has a higher priority keeps its GPUs: it would take them back at once.
            self._divide(view, plan, apps, {seq: job for seq, job in expired.items() if job.rank >= rank}, rank)
        if not any(job.allocation is None for job in pending):
            return math.inf
        ends = self._leases(view, plan, memory).values()
        changes = (self.place.changes_at(job, view.now_s) for job in pending)
        return min((at_s for at_s in (*ends, *changes) if at_s > view.now_s), default=math.inf)

    def _leases(self, view: View, plan: Plan, memory: Memory) -> dict[str, float]:
        """When the leases of jobs with GPUs end, as remembered or as planned. A job of another policy gets one now."""
        planned = {change.key: change.value for change in plan.memory if change.slot == LEASE.name}
        found = {}
        for job in view.placed_jobs():
            if job.allocation is not None:
                until_s = planned.get(job.id) or LEASE.get(memory, job.id)
                if until_s is None:
                    until_s = view.now_s + self.lease_s
                    plan.remember(LEASE, job.id, until_s)
                found[job.id] = until_s
        return found

    # The rho of apps -------------------------------------------------------------------------------------------

    def _count(self, view: View, plan: Plan, memory: Memory, jobs: Iterable[JobView]) -> None:
        """Note how many apps there are, and since when each job contends."""
        before = CONTENTION.get(memory)
        app_s = 0.0 if before is None else before.until(view.now_s)
        names = set()
        for job in jobs:
            names.add(app_of(job))
            if SINCE.get(memory, job.id) is None:
                plan.remember(SINCE, job.id, app_s)
        if before is None or before.apps != len(names):
            plan.remember(CONTENTION, "", Contention(view.now_s, app_s, len(names)))

    def _apps(self, view: View, memory: Memory, jobs: Iterable[JobView], expired: Collection[int]) -> dict[str, App]:
        found: dict[str, App] = {}
        counted = CONTENTION.get(memory)
        for job in jobs:
            app = found.setdefault(app_of(job), App(job.rank))
            gpus, total_s = max(gpus_of(job), 1), min(self.estimate.total_s(job), NEVER_S)
            app.service_s += total_s * gpus
            app.left_s += max(total_s - job.work_at(view.now_s), 0.0) * gpus
            app.demand += gpus
            if job.submit_s < app.since_s:
                app.since_s = job.submit_s
                since = SINCE.get(memory, job.id)
                if since is not None and counted is not None and view.now_s > job.submit_s:
                    app.contenders = max((counted.until(view.now_s) - since) / (view.now_s - job.submit_s), 1.0)
            if job.allocation is None or job.seq in expired:
                app.wanting.append(job)
            else:
                app.held += gpus
        for app in found.values():
            app.wanting.sort(key=lambda job: (job.allocation is None, job.seq))
        return {name: app for name, app in found.items() if app.wanting}

    # The auction -----------------------------------------------------------------------------------------------

    def _divide(self, view: View, plan: Plan, apps: dict[str, App], expired: dict[int, JobView], rank: int) -> None:
        total = max(view.cluster.gpu_total, 1)
        rho = {name: app.rho(0, self.lease_s, view.now_s, total) for name, app in apps.items()}
        worst = sorted(apps, key=lambda name: (-rho[name], apps[name].wanting[0].seq))
        bidders = worst[: max(math.ceil((1 - self.left_out) * len(worst) - 1e-9), 1)]
        won = self._auction(view, [apps[name] for name in bidders], expired, total)
        rest = [Won(job, "", 1.0) for name in worst for job in apps[name].wanting]
        victims = sorted(expired.values(), key=lambda job: (rho.get(app_of(job), 0.0), -job.seq))
        lower = [job for job in view.placed_jobs() if job.rank > rank and can_stop(job) and job.seq not in expired]
        lower.sort(key=lambda job: (-job.rank, -job.decided_s, -job.seq))
        kept: set[int] = {each.job.seq for each in won}
        """Those whose GPUs are not to be had any more."""
        for each in (*won, *rest):
            if each.job.allocation is not None or each.job.seq in expired:
                if each.job.allocation is not None and (each.job.seq not in kept or each in won):
                    kept.add(each.job.seq)
                    self._lease(plan, each, view.now_s)
                continue
            room = [job for job in victims if job.seq not in kept and job.allocation is not None]
            room += [job for job in lower if job.allocation is not None]
            if self._start(view, plan, each, room):
                kept.add(each.job.seq)

    def _auction(self, view: View, apps: list[App], expired: dict[int, JobView], total: int) -> list[Won]:
        """The jobs of the winners, with the GPU type that each has won."""
        pools = view.cluster.pools
        offer = [pool.free for pool in pools]
        for job in expired.values():
            if job.allocation is not None:
                for piece in job.allocation.slices:
                    number = pools.index(view.cluster.nodes[piece.node].pool)
                    offer[number] += piece.gpus.bit_count()
        bids, ways = [], []
        for app in apps:
            bid, way = self._bid(view, app, total)
            bids.append(bid)
            ways.append(way)
        sale = sell(bids, tuple(offer))
        found = []
        for at, kept, way in zip(sale.bundles, sale.kept, ways, strict=True):
            jobs, home = way[at]
            found += [Won(job, home, kept) for job in jobs]
        return found

    def _bid(self, view: View, app: App, total: int) -> tuple[list[Parcel], list[tuple[list[JobView], str]]]:
        """Bundles of one GPU type for the first jobs of the app, and which jobs and which type these are."""
        pools = view.cluster.pools
        nothing = 1 / app.rho(0, self.lease_s, view.now_s, total)
        bid, ways = [Parcel((0,) * len(pools), nothing)], [(list[JobView](), "")]
        for number, pool in enumerate(pools):
            jobs = [job for job in app.wanting if runs_on(view, job, pool.gpu_type)]
            for size in sizes(len(jobs)):
                some = jobs[:size]
                gpus = sum(map(gpus_of, some))
                speed = sum(max(gpus_of(job), 1) * rate_on(view, job, pool.gpu_type) for job in some)
                value = 1 / app.rho(speed, self.lease_s, view.now_s, total)
                bid.append(Parcel((0,) * number + (gpus,) + (0,) * (len(pools) - number - 1), value))
                ways.append((some, pool.gpu_type))
        return bid, ways

    def _start(self, view: View, plan: Plan, won: Won, victims: list[JobView]) -> bool:
        """Start the job on what it has won, or else wherever it fits; `victims` may be stopped, the first ones
        rather."""
        job = won.job
        shapes = [on_types(shape, (won.home,)) for shape in job.shapes if won.home and shape.gpus]
        for shape in (*shapes, *job.shapes):
            found = self.place.find(view.cluster, plan, job, shape, view.now_s)
            if found is None and victims:
                missing = shape.gpus - view.cluster.free_gpus(shape.gpu_types)
                room = make_room(view, plan, self.place, job, shape, victims, missing)
                found = None if room is None else room.allocation
            if found is not None:
                plan.start(job, found)
                self._lease(plan, won, view.now_s)
                return True
        return False

    def _lease(self, plan: Plan, won: Won, now_s: float) -> None:
        plan.remember(LEASE, won.job.id, now_s + self.lease_s * max(won.kept, LEASE_MIN))


def app_of(job: JobView) -> str:
    return job.id if job.spec.group is None else f"group {job.spec.group.id}"


def gpus_of(job: JobView) -> int:
    return math.ceil(amount_of(job.shapes[0]))


def sizes(count: int) -> list[int]:
    """1, 2, 4, … and all."""
    found = [size for size in (2**power for power in range(SIZES_MAX - 1)) if size < count]
    return [*found, count] if count else []


def runs_on(view: View, job: JobView, gpu_type: str) -> bool:
    """True if it could run there; a running job wants to stay where it is."""
    if job.allocation is not None:
        return any(view.cluster.nodes[piece.node].pool.gpu_type == gpu_type for piece in job.allocation.slices)
    return any(not shape.gpu_types or gpu_type in shape.gpu_types for shape in job.shapes)


def rate_on(view: View, job: JobView, gpu_type: str) -> float:
    rate = view.knowledge.rate(job.spec, job.shapes[0], gpu_type)
    return 1.0 if rate is None else rate
