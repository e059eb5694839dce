"""The history of finished jobs: what the latest of them took, and how many GPU-seconds a VC has used.

It follows from exits, so nothing of it is in the log by itself. `Past` is part of the state and of its snapshots: one
of the whole cluster, and one of each VC, whose planner is to notice nothing of other VCs. Planners read a `History`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from skep.core.view import JobView

KEPT = 5_000
"""The number of finished jobs that are kept: the latest."""


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
    """What the state keeps, of all jobs or of those of a VC."""

    finished: list[Finished] = []
    """In the order of their ends; the latest `KEPT`, and up to as many before them."""
    count: int = 0
    """Jobs that have ever finished."""
    used_gpu_s: float = 0.0
    """By whatever ran, up to its last start, move, suspension or end."""

    def note(self, job: Finished) -> None:
        self.count += 1
        self.finished.append(job)
        if len(self.finished) == 2 * KEPT:
            del self.finished[: KEPT // 2]

    def after(self, count: int) -> list[Finished]:
        """Those that finished after so many others, as far as they are kept."""
        return self.finished[-(self.count - count) :] if count < self.count else []


class Spread(msgspec.Struct, frozen=True, array_like=True):
    """Numbers that were seen, in three: how many, their mean, and their standard deviation (0 of a single one)."""

    count: int
    mean: float
    deviation: float


class Sums:
    """Of lengths in whole milliseconds: taking one away again leaves what was there, to the last bit."""

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
"""Owner, model and GPUs; nothing and a negative number: any."""

ANY = -1.0


class History:
    """The latest finished jobs and what follows from them, computed on demand."""

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
        """Jobs that have ever finished."""
        return self.past.count

    @property
    def used_gpu_s(self) -> float:
        return self.past.used_gpu_s

    def finished(self, first: int, last: int) -> list[Finished]:
        """From the job that finished after `first` others up to the `last`, as far as they are kept: more than the
        latest `KEPT`."""
        past = self.past
        begin = past.count - len(past.finished)
        return past.finished[max(first - begin, 0) : max(last - begin, 0)]

    def latest(self) -> deque[Finished]:
        self._follow()
        return self._latest

    def like(self, job: JobView) -> Spread | None:
        """How much work (in seconds at their reference) jobs like this one had, of those that are the most alike."""
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
    """Whom a job is like, the most alike first: jobs of its owner, model and size, of its owner and size, of its owner,
    of its size, all."""
    return kinds(owner_of(job), job.spec.model, job.gpus)


def kinds(owner: str, model: str, gpus: float) -> tuple[Kind, ...]:
    wider = ((owner, "", gpus), (owner, "", ANY), ("", "", gpus), ("", "", ANY))
    return ((owner, model, gpus), *wider) if model else wider


def owner_of(job: JobView) -> str:
    return job.spec.user or job.spec.vc
