"""The jobs of a run by virtual cluster, by size, and their waiting by cause: pure folds over the rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import msgspec

from skep.metrics.run import JobRow

Key = TypeVar("Key", bound=Hashable)

_SIZE_LIMITS = (0.0, 0.999, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_SIZE_NAMES = (
    "none",
    "less than 1",
    "1",
    "2",
    "3 to 4",
    "5 to 8",
    "9 to 16",
    "17 to 32",
    "33 to 64",
    "more than 64",
)


class GroupTally(msgspec.Struct):
    """Sums over some jobs; the averages are over those that finished."""

    jobs: int = 0
    finished: int = 0
    jct_sum_s: float = 0.0
    queue_sum_s: float = 0.0
    quota_sum_s: float = 0.0
    fragmentation_sum_s: float = 0.0
    service_gpu_s: float = 0.0

    @property
    def jct_avg_s(self) -> float | None:
        return self.jct_sum_s / self.finished if self.finished else None

    @property
    def queue_avg_s(self) -> float | None:
        return self.queue_sum_s / self.finished if self.finished else None

    def add(self, other: GroupTally) -> None:
        self.jobs += other.jobs
        self.finished += other.finished
        self.jct_sum_s += other.jct_sum_s
        self.queue_sum_s += other.queue_sum_s
        self.quota_sum_s += other.quota_sum_s
        self.fragmentation_sum_s += other.fragmentation_sum_s
        self.service_gpu_s += other.service_gpu_s


class GroupWaiting(msgspec.Struct, frozen=True):
    """Average waiting of a finished job, split by its cause."""

    quota_s: float
    fragmentation_s: float
    other_s: float
    """For capacity, or because other jobs were first."""

    @property
    def total_s(self) -> float:
        return self.quota_s + self.fragmentation_s + self.other_s


Tallies = dict[tuple[str, float], GroupTally]
"""By VC and GPUs: all other groups are combined from these few."""


def tally_rows(rows: Sequence[JobRow]) -> Tallies:
    """Sorts the jobs into few groups, then sums each group: several times faster than adding job by job."""
    piles: dict[tuple[str, float], list[JobRow]] = {}
    for row in rows:
        key = (row.vc, row.gpus)
        if key in piles:
            piles[key].append(row)
        else:
            piles[key] = [row]
    return {key: _tally(pile) for key, pile in piles.items()}


def _tally(rows: Sequence[JobRow]) -> GroupTally:
    jcts = [row.jct_s for row in rows if row.jct_s is not None]
    finished = rows if len(jcts) == len(rows) else [row for row in rows if row.jct_s is not None]
    return GroupTally(
        jobs=len(rows),
        finished=len(jcts),
        jct_sum_s=sum(jcts),
        queue_sum_s=sum([row.queue_s or 0.0 for row in finished]),
        quota_sum_s=sum([row.queue_quota_s for row in finished]),
        fragmentation_sum_s=sum([row.queue_fragmentation_s for row in finished]),
        service_gpu_s=sum([row.service_gpu_s for row in rows]),
    )


def by_vc(tallies: Tallies) -> dict[str, GroupTally]:
    """Tallies by name of the VC."""
    return _merge(tallies, lambda vc, gpus: vc)


def by_size(tallies: Tallies) -> dict[int, GroupTally]:
    """Tallies by class of requested GPUs, see `size_name`."""
    return _merge(tallies, lambda vc, gpus: bisect_left(_SIZE_LIMITS, gpus))


def size_name(size: int) -> str:
    """How many GPUs the jobs of a size class request."""
    return _SIZE_NAMES[size]


def waiting_by_cause(tallies: Tallies) -> GroupWaiting | None:
    """`None` if no job finished."""
    total = GroupTally()
    for tally in tallies.values():
        total.add(tally)
    if not total.finished:
        return None
    known_s = total.quota_sum_s + total.fragmentation_sum_s
    return GroupWaiting(
        quota_s=total.quota_sum_s / total.finished,
        fragmentation_s=total.fragmentation_sum_s / total.finished,
        other_s=max(total.queue_sum_s - known_s, 0.0) / total.finished,
    )


def _merge(tallies: Tallies, key: Callable[[str, float], Key]) -> dict[Key, GroupTally]:
    merged: dict[Key, GroupTally] = {}
    for (vc, gpus), tally in tallies.items():
        merged.setdefault(key(vc, gpus), GroupTally()).add(tally)
    return merged
