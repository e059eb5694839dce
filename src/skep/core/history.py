"""The history of finished jobs: how much work they needed, and how many GPU-seconds a VC has used.

It follows from exits, so the log has no events of its own for it. `Past` is part of the state and of its snapshots: one
for the whole cluster and one for each VC, because the planner of a VC must not depend on other VCs. Planners read a
`History`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from skep.core.requests import drop_oldest

if TYPE_CHECKING:
    from skep.core.view import JobView

KEPT = 5_000
"""The number of finished jobs that are kept; older ones are dropped."""


class Finished(msgspec.Struct, frozen=True, array_like=True):
    """A job that succeeded."""

    owner: str
    model: str
    gpus: float
    work_s: float
    """In seconds at its reference."""
    run_s: float
    service_gpu_s: float


class Past(msgspec.Struct):
    """What the state keeps, of all jobs or of the jobs of one VC."""

    finished: list[Finished] = []
    """In the order of their ends; the latest `KEPT`, and up to as many older ones."""
    count: int = 0
    """The number of jobs that have ever finished."""
    used_gpu_s: float = 0.0
    """GPU-seconds of all jobs, up to the last start, move, suspension or end of each."""

    def note(self, jobs: list[Finished]) -> None:
        self.count += len(jobs)
        self.finished += jobs
        drop_oldest(self.finished, 2 * KEPT, KEPT // 2)

    def after(self, count: int) -> list[Finished]:
        """The jobs that finished after the first `count`, as far as they are kept."""
        return self.finished[-(self.count - count) :] if count < self.count else []


class Spread(msgspec.Struct, frozen=True, array_like=True):
    """Observed numbers: count, mean and standard deviation (0 for a single one)."""

    count: int
    mean: float
    deviation: float


class Sums:
    """A running count, mean and deviation of lengths in whole milliseconds. Integers, so that removing a value restores
    the previous result exactly."""

    __slots__ = ("count", "squares", "total")

    def __init__(self) -> None:
        self.count = self.total = self.squares = 0

    def add(self, length_s: float, sign: int = 1) -> None:
        ms = round(length_s * 1000)
        self.count += sign
        self.total += sign * ms
        self.squares += sign * ms * ms

    def spread(self) -> Spread:
        count, total = self.count, self.total
        over = count * self.squares - total * total
        deviation_ms = math.sqrt(over / (count * (count - 1))) if count > 1 else 0.0
        return Spread(count, total / count / 1000, deviation_ms / 1000)


Kind = tuple[str, str, float]
"""Owner, model and GPUs; an empty text or a negative number matches any."""

ANY = -1.0


class History:
    """The latest finished jobs and statistics about them, computed on demand."""

    def __init__(self, find: Callable[[], Past], used: Callable[[str], float]) -> None:
        self._find = find
        self.used_by = used
        """GPU-seconds that a VC has used."""
        self._seen = 0
        self._latest: deque[Finished] = deque()
        self._sums: dict[Kind, Sums] = {}

    @property
    def past(self) -> Past:
        return self._find()

    @property
    def count(self) -> int:
        """The number of jobs that have ever finished."""
        return self.past.count

    @property
    def used_gpu_s(self) -> float:
        return self.past.used_gpu_s

    def finished(self, first: int, last: int) -> list[Finished]:
        """The jobs from number `first` to `last` in the order of their ends, as far as they are kept (which is more
        than the latest `KEPT`)."""
        past = self.past
        begin = past.count - len(past.finished)
        return past.finished[max(first - begin, 0) : max(last - begin, 0)]

    def latest(self) -> deque[Finished]:
        self._follow()
        return self._latest

    def like(self, job: JobView) -> Spread | None:
        """The work (in seconds at their reference) of the most similar finished jobs."""
        self._follow()
        for kind in kinds_of(job):
            sums = self._sums.get(kind)
            if sums is not None:
                return sums.spread()
        return None

    def _follow(self) -> None:
        past = self.past
        if self._seen == past.count:
            return
        fresh = past.after(self._seen)
        self._latest += fresh
        for each in fresh:
            self._count(each, +1)
        while len(self._latest) > KEPT:
            self._count(self._latest.popleft(), -1)
        self._seen = past.count

    def _count(self, job: Finished, sign: int) -> None:
        for kind in kinds(job.owner, job.model, job.gpus):
            sums = self._sums.get(kind)
            if sums is None:
                sums = self._sums[kind] = Sums()
            sums.add(job.work_s, sign)
            if not sums.count:
                del self._sums[kind]


def kinds_of(job: JobView) -> tuple[Kind, ...]:
    """The classes of similar jobs, most similar first: same owner, model and size; same owner and size; same owner;
    same size; all."""
    return kinds(owner_of(job), job.spec.model, job.gpus)


def kinds(owner: str, model: str, gpus: float) -> tuple[Kind, ...]:
    wider = ((owner, "", gpus), (owner, "", ANY), ("", "", gpus), ("", "", ANY))
    return ((owner, model, gpus), *wider) if model else wider


def owner_of(job: JobView) -> str:
    return job.spec.user or job.spec.vc
