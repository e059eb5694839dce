"""Numbers as people read them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.report.table import format_count, format_duration, format_number, format_percent
from skep.report.units import (
    DAY_S,
    count_ticks,
    format_factor,
    format_instant,
    format_tick,
    log_floor,
    log_ticks,
    time_ticks,
)

NOTHING = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, NOTHING),
        (math.nan, NOTHING),
        (math.inf, NOTHING),
        (0, "0 s"),
        (0.04, "0 s"),
        (-0.04, "0 s"),
        (0.4, "0.4 s"),
        (1, "1 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (42.4, "42 s"),
        (59.4, "59 s"),
        (59.7, "1 min"),
        (60, "1 min"),
        (90, "1.5 min"),
        (14 * 60 + 20, "14 min"),
        (59.4 * 60, "59 min"),
        (59.6 * 60, "1 h"),
        (2.3 * 3600, "2.3 h"),
        (23.4 * 3600, "23 h"),
        (23.6 * 3600, "1 d"),
        (3.14 * 86400, "3.1 d"),
        (412 * 86400, "412 d"),
        (12_345 * 86400, "12,345 d"),
        (-90, "-1.5 min"),
    ],
)
def test_a_duration_reads_like_this(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(min_value=0, max_value=1e12))
def test_a_duration_never_claims_a_full_larger_unit(seconds: float) -> None:
    amount, unit = format_duration(seconds).split()
    limits = {"s": 60, "min": 60, "h": 24, "d": math.inf}
    assert float(amount.replace(",", "")) < limits[unit]


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, NOTHING), (0, "0"), (82_000, "82,000"), (3.5, "3.5"), (8.0, "8"), (1234.5, "1,234")],
)
def test_a_count_reads_like_this(count: float | None, text: str) -> None:
    assert format_count(count) == text


def test_shares_and_ratios() -> None:
    assert [format_percent(share) for share in (None, 0.0, 0.8721, 1.0)] == [
        NOTHING,
        "0.0%",
        "87.2%",
        "100.0%",
    ]
    assert [format_number(value) for value in (None, 1.416, 12.34, 5000.4)] == [
        NOTHING,
        "1.42",
        "12.3",
        "5,000",
    ]
    assert [format_factor(factor)[:-1] for factor in (1.042, 1.9, 3.14, 31.4)] == ["1.04", "1.9", "3.1", "31"]
    assert [format_tick(count) for count in (0.0, 800.0, 1500.0, 2e6)] == ["0", "800", "1.5k", "2M"]


@pytest.mark.parametrize(
    ("at_s", "text"),
    [(0, "00:00"), (61, "00:01:01"), (3 * 86400 + 4 * 3600 + 300, "3 d 04:05"), (86399.7, "1 d 00:00")],
)
def test_an_instant_reads_like_this(at_s: float, text: str) -> None:
    assert format_instant(at_s) == text


def test_log_ticks_are_familiar_durations() -> None:
    ticks = log_ticks(1.0, 20 * DAY_S, gap=0.08)
    assert [format_duration(tick) for tick in ticks] == [
        *("1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "10 d"),
    ]


@given(st.floats(min_value=0.01, max_value=1e6), st.floats(min_value=10, max_value=1e6))
def test_log_ticks_keep_their_distance(lo: float, factor: float) -> None:
    hi, gap = lo * factor, 0.1
    ticks = log_ticks(lo, hi, gap=gap)
    assert all(lo <= tick <= hi for tick in ticks)
    places = [math.log(tick / lo) / math.log(factor) for tick in ticks]
    assert all(right - left >= gap - 1e-9 for left, right in pairwise(places))


def test_log_floor_is_a_tick_or_the_value_itself() -> None:
    assert [log_floor(seconds) for seconds in (1.0, 59.0, 4000.0, 1e-6)] == [1.0, 30.0, 3600.0, 1e-6]


@pytest.mark.parametrize(
    ("hi", "labels"),
    [
        (10.0, ["0", "2 s", "4 s", "6 s", "8 s", "10 s"]),
        (5 * 3600.0, ["0", "1 h", "2 h", "3 h", "4 h", "5 h"]),
        (11 * DAY_S, ["0", "2 d", "4 d", "6 d", "8 d", "10 d"]),
    ],
)
def test_time_ticks_are_few_and_round(hi: float, labels: list[str]) -> None:
    ticks, show = time_ticks(0.0, hi, most=6)
    assert [show(tick) for tick in ticks] == labels


@pytest.mark.parametrize(
    ("hi", "ticks"),
    [(0.0, [0, 1]), (1.0, [0, 1]), (7.0, [0, 5, 10]), (569.0, [0, 200, 400, 600]), (30.0, [0, 10, 20, 30])],
)
def test_count_ticks_reach_the_highest(hi: float, ticks: list[float]) -> None:
    assert count_ticks(hi, most=3) == ticks
