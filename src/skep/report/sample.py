"""Reduces hundreds of thousands of points to few enough to draw, without distorting them.

A distribution keeps exact points at even quantiles; a series over time becomes buckets whose mean is weighted by time.
Everything operates on slices at the speed of `sum`, `map` and `bisect`, so a report takes seconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import mul, sub

import msgspec

from skep.metrics.run import Run
from skep.report.units import HOUR_S

CURVE_POINTS = 200
BUCKETS = 300
WINDOW_S = 6 * HOUR_S
_WINDOW_PARTS = 4
_SEARCH_BUCKETS = 2400
_ROUND_S = HOUR_S / 4
"""A window begins at a full quarter of an hour, which reads better."""


class Bucket(msgspec.Struct, frozen=True):
    """Mean (weighted by time) and maximum of a series between two instants."""

    mean: float
    peak: float


def cdf_points(ordered: Sequence[float], *, total: int, most: int = CURVE_POINTS) -> list[tuple[float, float]]:
    """Points (value, share of `total` that is at most this value), each exact, at most `most` of them.

    `ordered` is ascending; `total` may be larger than its length, if some jobs have no value.
    """
    count = len(ordered)
    if not count:
        return []
    kept = min(count, most)
    picks = [ordered[round(index * (count - 1) / max(kept - 1, 1))] for index in range(kept)]
    return [(value, bisect_right(ordered, value) / total) for value in dict.fromkeys(picks)]


class Series:
    """A value over time: `values[i]` is valid from `at_s[i]` to `at_s[i + 1]`; the last instant ends it."""

    def __init__(self, at_s: Sequence[float], values: Sequence[float]) -> None:
        self.at_s = at_s
        self.values = values
        self._areas = list(map(mul, values, map(sub, at_s[1:], at_s)))

    def mean(self) -> float | None:
        """Weighted by time; `None` if no time passes."""
        if not self._areas or self.at_s[-1] <= self.at_s[0]:
            return None
        return float(sum(self._areas)) / (self.at_s[-1] - self.at_s[0])

    def buckets(self, start_s: float, end_s: float, *, count: int = BUCKETS) -> list[Bucket | None]:
        """`count` equal buckets over [start_s, end_s]; `None` outside the series.

        The mean of a bucket is over the part of it that the series covers.
        """
        if not self._areas or end_s <= start_s:
            return [None] * count
        step_s = (end_s - start_s) / count
        edges = [start_s + step_s * index for index in range(count)] + [end_s]
        return [self._bucket(max(lo, self.at_s[0]), min(hi, self.at_s[-1])) for lo, hi in pairwise(edges)]

    def _bucket(self, lo: float, hi: float) -> Bucket | None:
        if hi <= lo:
            return None
        at_s, values = self.at_s, self.values
        first = bisect_right(at_s, lo) - 1
        last = bisect_left(at_s, hi) - 1
        peak = max(values[first : last + 1])
        if first == last:
            return Bucket(mean=values[first], peak=peak)
        edges = values[first] * (at_s[first + 1] - lo) + values[last] * (hi - at_s[last])
        return Bucket(mean=(edges + sum(self._areas[first + 1 : last])) / (hi - lo), peak=peak)


class Reach(msgspec.Struct, frozen=True):
    """From one instant to a later one."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


class RunCourse(msgspec.Struct, frozen=True):
    """The history of one run, ready to be divided into buckets."""

    pending: Series
    busy: Series


def course_of(run: Run) -> RunCourse | None:
    """`None` if no history was kept or no time passes in it."""
    history = run.history
    if history is None or len(history.at_s) < 2 or history.at_s[-1] <= history.at_s[0]:
        return None
    return RunCourse(Series(history.at_s, history.pending_jobs), Series(history.at_s, history.busy_gpus))


def horizon(courses: Sequence[RunCourse | None]) -> Reach | None:
    """From the first to the last instant of all runs."""
    known = [course.pending.at_s for course in courses if course]
    return Reach(min(at_s[0] for at_s in known), max(at_s[-1] for at_s in known)) if known else None


def busiest_window(courses: Sequence[RunCourse | None], *, length_s: float = WINDOW_S) -> Reach | None:
    """The interval of `length_s` with most pending jobs over all runs, or most busy GPUs if no job ever waits.

    One window for all policies, so that their charts can be compared.
    """
    reach = horizon(courses)
    if reach is None or reach.length_s <= length_s:
        return reach
    count = min(int(reach.length_s / length_s * _WINDOW_PARTS), _SEARCH_BUCKETS)
    load = _load(courses, reach, count)
    parts = max(round(length_s / reach.length_s * count), 1)
    loads = [sum(load[index : index + parts]) for index in range(count - parts + 1)]
    since_s = reach.length_s * loads.index(max(loads)) / count
    since_s = min(since_s // _ROUND_S * _ROUND_S, reach.length_s - length_s)
    return Reach(reach.start_s + since_s, reach.start_s + since_s + length_s)


def anyone_waits(courses: Sequence[RunCourse | None]) -> bool:
    """True if a job is ever pending under any policy."""
    return any(any(course.pending.values) for course in courses if course)


def _load(courses: Sequence[RunCourse | None], reach: Reach, count: int) -> list[float]:
    """Mean number of pending jobs, or else of busy GPUs, of all runs together."""
    known = [course for course in courses if course]
    load, waits = [0.0] * count, anyone_waits(known)
    for course in known:
        series = course.pending if waits else course.busy
        buckets = series.buckets(reach.start_s, reach.end_s, count=count)
        load = [total + (bucket.mean if bucket else 0.0) for total, bucket in zip(load, buckets, strict=True)]
    return load
