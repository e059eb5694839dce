"""Downsampling against naive twins."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import make_row, make_run

from skep.metrics.run import Run, RunHistory
from skep.report.sample import Bucket, Reach, Series, busiest_window, cdf_points, course_of, horizon

times = st.floats(min_value=0, max_value=1e6, allow_subnormal=False)
amounts = st.integers(min_value=0, max_value=5000)


@st.composite
def series(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    at_s = sorted(draw(st.lists(times, min_size=2, max_size=40)))
    return at_s, draw(st.lists(amounts, min_size=len(at_s), max_size=len(at_s)))


@given(st.lists(times, min_size=1, max_size=600), st.integers(0, 50), st.integers(2, 60))
def test_kept_points_of_a_distribution_are_exact_and_close_together(
    values: list[float], missing: int, most: int
) -> None:
    ordered, total = sorted(values), len(values) + missing
    points = cdf_points(ordered, total=total, most=most)
    assert len(points) <= most
    assert all(share == bisect_right(ordered, value) / total for value, share in points)
    assert points[-1] == (ordered[-1], len(ordered) / total)
    xs = [value for value, _ in points]
    for value in ordered:
        shown = points[bisect_right(xs, value) - 1][1]
        exact = bisect_right(ordered, value) / total
        assert 0 <= exact - shown <= 1 / (most - 1) + 1 / len(ordered)


def test_a_distribution_of_nothing_has_no_points() -> None:
    assert cdf_points([], total=3) == []


def twin_bucket(at_s: list[float], values: list[int], lo: float, hi: float) -> Bucket | None:
    """Mean and peak of what overlaps [lo, hi], piece by piece."""
    area = covered = 0.0
    for start, end, value in zip(at_s, at_s[1:], values, strict=False):
        seconds = min(end, hi) - max(start, lo)
        if seconds > 0:
            area, covered = area + value * seconds, covered + seconds
    return Bucket(area / covered, 0.0) if covered > 0 else None


@given(series(), times, times, st.integers(1, 12))
def test_buckets_weigh_by_time(drawn: tuple[list[float], list[int]], one_s: float, other_s: float, count: int) -> None:
    at_s, values = drawn
    start_s, end_s = min(one_s, other_s), max(one_s, other_s) + 1.0
    step_s = (end_s - start_s) / count
    for index, bucket in enumerate(Series(at_s, values).buckets(start_s, end_s, count=count)):
        lo = start_s + step_s * index
        hi = end_s if index == count - 1 else start_s + step_s * (index + 1)
        twin = twin_bucket(at_s, values, lo, hi)
        assert (bucket is None) == (twin is None)
        if bucket and twin:
            assert bucket.mean == pytest.approx(twin.mean, rel=1e-6, abs=1e-6)
            assert bucket.mean <= bucket.peak + 1e-6


def test_a_bucket_knows_its_highest_value_however_short() -> None:
    spike = Series([0.0, 10.0, 10.5, 20.0, 40.0], [1, 900, 2, 0, 7])
    first, second = spike.buckets(0.0, 40.0, count=2)
    assert first == Bucket(mean=(10 * 1 + 0.5 * 900 + 9.5 * 2) / 20, peak=900)
    assert second == Bucket(mean=0.0, peak=0)


@given(series())
def test_the_mean_is_that_of_one_bucket(drawn: tuple[list[float], list[int]]) -> None:
    at_s, values = drawn
    whole = Series(at_s, values)
    if at_s[-1] > at_s[0]:
        (bucket,) = whole.buckets(at_s[0], at_s[-1], count=1)
        assert bucket
        assert whole.mean() == pytest.approx(bucket.mean, rel=1e-6, abs=1e-6)
    else:
        assert whole.mean() is None


def history_run(pending: list[int], *, busy: list[float] | None = None, step_s: float = 3600.0) -> Run:
    at_s = [index * step_s for index in range(len(pending))]
    history = RunHistory(at_s=at_s, pending_jobs=pending, busy_gpus=busy or [0.0] * len(pending))
    return make_run([make_row()], history=history)


def test_the_busiest_window_has_most_pending_jobs_of_all_policies_together() -> None:
    calm = [0] * 48
    morning, evening = list(calm), list(calm)
    morning[10:14] = [5] * 4
    evening[30:34] = [9] * 4
    courses = [course_of(history_run(pending)) for pending in (morning, evening, calm)]
    window = busiest_window(courses)
    assert window
    assert window.length_s == 6 * 3600
    assert window.start_s <= 30 * 3600 <= 34 * 3600 <= window.end_s


def test_where_nobody_waits_the_busiest_window_has_most_busy_gpus() -> None:
    busy = [0.0] * 40
    busy[20:26] = [8.0] * 6
    window = busiest_window([course_of(history_run([0] * 40, busy=busy))])
    assert window
    assert window.start_s == pytest.approx(20 * 3600, abs=5400)  # it looks every hour and a half


def test_a_short_history_is_its_own_busiest_window() -> None:
    course = course_of(history_run([1, 0], step_s=60.0))
    assert busiest_window([course, None]) == horizon([course]) == Reach(0.0, 60.0)


def test_without_history_there_is_no_window() -> None:
    assert course_of(make_run([])) is None
    assert course_of(history_run([3])) is None
    assert busiest_window([None]) is None
