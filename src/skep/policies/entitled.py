"""The planner of the variants of dominant resource fairness: users are entitled to parts of the cluster (`allocate/
entitle.py`), and jobs start within these first.

The user with the smallest share for its weight goes next, with whole gangs, its jobs in the order of their submission.
Nothing is preempted, but for priorities.

- `hug`: users whose jobs need several resources progress evenly, at a level P. What is left goes to the same users, but
  no user gets more than P of any resource, so that a user gains nothing by claiming a demand that it does not have.
- `nc-drf`: the same if amounts are not known: the number of jobs that need a resource stands for the amount.
- `amf`: GPU types are sites, and some jobs can use only some of them. The GPUs of a user on all types together are
  max-min fair: who can use any type makes room for those who cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from skep.core.memory import Memory
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import ClusterView, JobView, View
from skep.core.weights import Weights
from skep.policies.allocate.entitle import EPS, Claim, SiteClaim, even_level, fair_totals
from skep.policies.allox import push_out, user_of
from skep.policies.joint import JointPlanner
from skep.policies.order.shares import amounts_of, capacity_of, weight_of
from skep.policies.place import Place
from skep.policies.probe import on_types

HUG, NC_DRF, AMF = "hug", "nc-drf", "amf"

Amounts = tuple[float, ...]
"""Parts of the cluster's GPUs, CPUs and memory; with `amf`, GPUs of each type."""


class Entitlements(msgspec.Struct, eq=False):
    """What one decision knows about the users, by user."""

    entitled: dict[str, Amounts]
    """What it gets first."""
    most: dict[str, float]
    """The most of any resource that it may hold."""
    held: dict[str, Amounts]
    weights: dict[str, float]
    adds_up: bool
    """The amounts are of one kind, on several types."""

    def share(self, user: str) -> float:
        """Of one unit of weight: of the resource of which it holds most, or of all types together."""
        held = self.held[user]
        return (math.fsum(held) if self.adds_up else max(held)) / self.weights[user]

    def count(self, user: str, amounts: Amounts) -> None:
        self.held[user] = tuple(have + more for have, more in zip(self.held[user], amounts, strict=True))


class Entitled(JointPlanner):
    def __init__(self, *, name: str, place: Place, mode: str, weights: Weights) -> None:
        super().__init__(name=name, place=place)
        self.mode = mode
        self.weights = weights

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float:
        self.capacity = capacity_of(view.cluster)
        there = [job for job in view.placed_jobs() if job.allocation is not None]
        for rank in sorted({job.rank for job in pending}):
            waiting = [job for job in pending if job.rank == rank]
            books = self._books(view, [job for job in there if job.rank <= rank], waiting)
            self._fill(view, plan, books, waiting, self._start_entitled)
            self._fill(view, plan, books, [job for job in waiting if job.allocation is None], self._start_anywhere)
        return min((self.place.changes_at(job, view.now_s) for job in pending), default=math.inf)

    # What users are entitled to --------------------------------------------------------------------------------

    def _books(self, view: View, there: Sequence[JobView], waiting: Sequence[JobView]) -> Entitlements:
        cluster, jobs = view.cluster, [*there, *waiting]
        users = sorted({user_of(job) for job in jobs})
        weights = {user_of(job): weight_of(self.weights, job) for job in jobs}
        width = len(cluster.pools) if self.mode == AMF else 3
        books = Entitlements(
            {}, dict.fromkeys(users, math.inf), dict.fromkeys(users, (0.0,) * width), weights, self.mode == AMF
        )
        for job in there:
            books.count(user_of(job), self._held(view, job))
        if self.mode == AMF:
            claims = [SiteClaim(self._work(cluster, [job for job in jobs if user_of(job) == user])) for user in users]
            claims = [claim._replace(weight=weights[user]) for user, claim in zip(users, claims, strict=True)]
            books.entitled = dict(zip(users, map(tuple, fair_totals(claims, gpus_of(cluster))[1]), strict=True))
            return books
        vectors = {user: self._claim([job for job in jobs if user_of(job) == user]) for user in users}
        level = even_level([vectors[user]._replace(weight=weights[user]) for user in users])
        for user in users:
            books.most[user] = weights[user] * level
            books.entitled[user] = tuple(each * min(books.most[user], 1.0) for each in vectors[user].vector)
        return books

    def _parts(self, job: JobView) -> Amounts:
        """Of the cluster's GPUs, CPUs and memory."""
        return tuple(want / there for want, there in zip(amounts_of(job), self.capacity, strict=True))

    def _held(self, view: View, job: JobView) -> Amounts:
        if self.mode != AMF:
            return self._parts(job)
        on = [0.0] * len(view.cluster.pools)
        for piece in job.allocation.slices if job.allocation is not None else ():
            if piece.gpus:
                on[view.cluster.pools.index(view.cluster.nodes[piece.node].pool)] += piece.gpus.bit_count()
        return tuple(on)

    def _claim(self, jobs: Iterable[JobView]) -> Claim:
        """Its vector is relative to the resource that it needs most."""
        needs = [self._parts(job) for job in jobs]
        totals = [math.fsum(column) for column in zip(*needs, strict=True)]
        counts = [float(sum(part > 0 for part in column)) for column in zip(*needs, strict=True)]
        of = counts if self.mode == NC_DRF else totals
        most = max(of)
        return Claim(tuple(each / most if most else 0.0 for each in of), max(totals))

    def _work(self, cluster: ClusterView, jobs: Iterable[JobView]) -> dict[frozenset[int], float]:
        found: dict[frozenset[int], float] = {}
        for job in jobs:
            usable = frozenset(map(cluster.pools.index, cluster.pools_for(job.shapes[0].gpu_types)))
            found[usable] = found.get(usable, 0.0) + job.gpus
        return found

    # Who starts ------------------------------------------------------------------------------------------------

    def _fill(
        self,
        view: View,
        plan: Plan,
        books: Entitlements,
        waiting: Sequence[JobView],
        start: Callable[..., Amounts | None],
    ) -> None:
        """Offer to the user with the smallest share, until no user can start another job."""
        lines: dict[str, list[JobView]] = {}
        for job in sorted(waiting, key=lambda job: -job.seq):
            lines.setdefault(user_of(job), []).append(job)
        failed: set[tuple[str, Shape]] = set()
        while lines:
            user = min(lines, key=lambda user: (books.share(user), user))
            job = lines[user].pop()
            key = (user, job.shapes[0])
            if key not in failed:
                taken = start(view, plan, books, user, job)
                if taken is None:
                    failed.add(key)
                else:
                    books.count(user, taken)
            if not lines[user]:
                del lines[user]

    def _start_entitled(self, view: View, plan: Plan, books: Entitlements, user: str, job: JobView) -> Amounts | None:
        """On what the user is entitled to."""
        if self.mode != AMF:
            needs = self._parts(job)
            return self._start(view, plan, job, needs) if fits(books.held[user], needs, books.entitled[user]) else None
        shape = job.shapes[0]
        for number, pool in enumerate(view.cluster.pools):
            needs = tuple(job.gpus if at == number else 0.0 for at in range(len(view.cluster.pools)))
            is_usable = shape.gpus and pool in view.cluster.pools_for(shape.gpu_types)
            if is_usable and fits(books.held[user], needs, books.entitled[user]):
                found = self._start(view, plan, job, needs, on_types(shape, (pool.gpu_type,)))
                if found is not None:
                    return found
        return None

    def _start_anywhere(self, view: View, plan: Plan, books: Entitlements, user: str, job: JobView) -> Amounts | None:
        """On what is left, up to the cap. A user who holds nothing may start one gang that is larger."""
        needs = self._needs(view, job)
        cap = (books.most[user],) * len(needs)
        if any(books.held[user]) and not fits(books.held[user], needs, cap):
            return None
        for shape in job.shapes:
            if self._start(view, plan, job, needs, shape) is not None:
                return self._held(view, job)
        return None

    def _needs(self, view: View, job: JobView) -> Amounts:
        return (0.0,) * len(view.cluster.pools) if self.mode == AMF else self._parts(job)

    def _start(
        self, view: View, plan: Plan, job: JobView, needs: Amounts, shape: Shape | None = None
    ) -> Amounts | None:
        shape = shape or job.shapes[0]
        found = self.place.find(view.cluster, plan, job, shape, view.now_s)
        if found is None:
            found = push_out(view, plan, self.place, job, shape)
        if found is None:
            return None
        plan.start(job, found)
        return needs


def fits(held: Amounts, more: Amounts, most: Amounts) -> bool:
    return all(have + want <= there + EPS for have, want, there in zip(held, more, most, strict=True) if want)


def gpus_of(cluster: ClusterView) -> list[float]:
    return [float(pool.total) for pool in cluster.pools]
