"""The charts over all policies: distributions on a common log axis, series over time, waiting by cause.

Each is a drawing plus the few numbers from which the script shows values under the pointer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from skep.metrics.run import Run
from skep.report.groups import GroupWaiting
from skep.report.markup import clip, series_class, tag
from skep.report.sample import Bucket, Reach, RunCourse
from skep.report.svg import (
    Frame,
    Scale,
    area_path,
    line_path,
    path,
    picture,
    rectangle,
    step_path,
    x_axis,
    y_axis,
)
from skep.report.units import (
    count_ticks,
    format_count,
    format_duration,
    format_percent,
    format_tick,
    log_floor,
    log_ticks,
    time_ticks,
)

Curve = Sequence[tuple[float, float]]

_CDF_FRAME = Frame(width=540, height=300, left=44, right=12, top=10, bottom=26)
_PANEL_FRAME = Frame(width=360, height=150, left=44, right=12, top=8, bottom=24)
_UNKNOWN = "no history"
_NOBODY = 0.5
"""Where a logarithmic axis shows an empty queue."""
UNEVEN = 8.0
"""Queues whose averages differ by more than this are drawn on a logarithmic axis."""
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


class Chart(msgspec.Struct, frozen=True):
    """Drawings that share axes, in the order of the policies, and the data for the script."""

    drawings: list[str]
    data: dict[str, Any]
    notes: list[str]
    """The one number of each drawing, as text."""


def cdf_chart(name: str, curves: Sequence[Curve], *, what: str, policies: Sequence[str]) -> Chart:
    """One step curve per policy over a log time axis that begins at a familiar duration.

    Times below the first tick, zero above all, are drawn on it; the tick then says `≤`.
    """
    lo, hi = _log_domain([value for curve in curves for value, _ in curve])
    frame = _CDF_FRAME
    x, y = frame.across(lo, hi, is_log=True), frame.upward(0.0, 1.0)
    is_cut = any(curve and curve[0][0] < lo for curve in curves)
    ticks = log_ticks(lo, hi, gap=0.1)

    def show(tick: float) -> str:
        return ("≤ " if is_cut and tick == ticks[0] else "") + format_duration(tick)

    body = y_axis(frame, y, _SHARES, lambda share: f"{share:.0%}") + x_axis(frame, x, ticks, show)
    body += "".join(_curve(curve, x, y, series) for series, curve in enumerate(curves) if curve)
    label = f"Distribution of {what}: " + "; ".join(
        f"{clip(policy, 60)} median {format_duration(_median(curve))}"
        for policy, curve in zip(policies, curves, strict=True)
    )
    data = _axis(frame, x) | {"kind": "cdf", "series": [_columns(curve) for curve in curves]}
    return Chart([picture(frame, body, label=label, data_chart=name)], data, [""])


def _log_domain(values: Sequence[float]) -> tuple[float, float]:
    hi = max(values, default=0.0)
    if hi <= 0.0:
        return 1.0, 60.0
    lo = max(min(values), 1.0 if hi > 10.0 else hi / 1000.0)
    return log_floor(min(lo, hi / 10.0)), hi * 1.2  # so that the last step is not on the edge


def _curve(curve: Curve, x: Scale, y: Scale, series: int) -> str:
    """From the floor to the right edge; from the left edge, if some values lie before it."""
    points = [(x.at(value), y.at(share)) for value, share in curve]
    if curve[0][0] >= x.lo:
        points.insert(0, (points[0][0], y.start))
    points = [*_after_start(points, x.start), (x.end, points[-1][1])]
    return path(step_path(points), f"line {series_class(series)}", data_p=series)


def _after_start(points: Sequence[tuple[float, float]], start: float) -> Sequence[tuple[float, float]]:
    """Of the points on the left edge only the last: times too short for the axis draw no line up it."""
    on_edge = sum(x <= start for x, _ in points)
    return points[max(on_edge - 1, 0) :]


def _columns(curve: Curve) -> list[list[float]]:
    return [[_brief(value) for value, _ in curve], [round(share, 4) for _, share in curve]]


def _median(curve: Curve) -> float | None:
    return next((value for value, share in curve if share >= 0.5), None)


def queue_chart(name: str, runs: Sequence[Run], courses: Sequence[RunCourse | None], reach: Reach) -> Chart:
    """Pending jobs over time: mean line and area, a faint line for the highest of each bucket."""
    series = [course.pending.buckets(reach.start_s, reach.end_s) if course else [] for course in courses]
    peaks = [max((bucket.peak for bucket in buckets if bucket), default=0.0) for buckets in series]
    y, rule = _log_count_axis(max(peaks)) if is_uneven(courses) else _count_axis(max(peaks))
    notes = [
        f"{format_count(course.pending.mean())} on average, at most {format_count(peak)}" if course else _UNKNOWN
        for course, peak in zip(courses, peaks, strict=True)
    ]
    return _panels(name, "Pending jobs", runs, series, reach, y, rule, notes=notes, is_share=False)


def is_uneven(courses: Sequence[RunCourse | None]) -> bool:
    """True if one policy's queue would be a flat line on the axis that another's needs."""
    means = [mean for course in courses if course and (mean := course.pending.mean()) is not None]
    return bool(means) and max(means) > UNEVEN * max(min(means), 0.5)


def _count_axis(peak: float) -> tuple[Scale, str]:
    ticks = count_ticks(peak, most=3)
    y = _PANEL_FRAME.upward(0.0, ticks[-1])
    return y, y_axis(_PANEL_FRAME, y, ticks, format_tick)


def _log_count_axis(peak: float) -> tuple[Scale, str]:
    """Powers of ten above a floor that stands for an empty queue."""
    powers = [10.0**power for power in range(math.ceil(math.log10(max(peak, 10.0))) + 1)]
    y = _PANEL_FRAME.upward(_NOBODY, powers[-1], is_log=True)
    shown = [_NOBODY, *powers[:: 1 + len(powers) // 5]]
    return y, y_axis(_PANEL_FRAME, y, shown, lambda tick: "0" if tick == _NOBODY else format_tick(tick))


def utilization_chart(name: str, runs: Sequence[Run], courses: Sequence[RunCourse | None], reach: Reach) -> Chart:
    """Share of busy GPUs over time."""
    series = [_shares(run, course, reach) if course else [] for run, course in zip(runs, courses, strict=True)]
    y = _PANEL_FRAME.upward(0.0, 1.0)
    rule = y_axis(_PANEL_FRAME, y, (0.0, 0.5, 1.0), lambda share: f"{share:.0%}")
    notes = [f"{format_percent(run.summary.utilization)} used" for run in runs]
    return _panels(name, "Busy GPUs", runs, series, reach, y, rule, notes=notes, is_share=True)


def _shares(run: Run, course: RunCourse, reach: Reach) -> list[Bucket | None]:
    total = run.gpu_total
    buckets = course.busy.buckets(reach.start_s, reach.end_s)
    return [Bucket(bucket.mean / total, bucket.peak / total) if bucket else None for bucket in buckets]


def _panels(
    name: str,
    what: str,
    runs: Sequence[Run],
    series: Sequence[Sequence[Bucket | None]],
    reach: Reach,
    y: Scale,
    rule: str,
    *,
    notes: list[str],
    is_share: bool,
) -> Chart:
    """One small drawing per policy, all with the same axes."""
    frame = _PANEL_FRAME
    x = frame.across(0.0, reach.length_s)
    axes = rule + x_axis(frame, x, *time_ticks(x.lo, x.hi, most=6))
    drawings = []
    for index, buckets in enumerate(series):
        label = f"{what} over time under {clip(runs[index].summary.policy, 60)}: {notes[index]}"
        body = axes + _series(buckets, x, y, index, has_peak=not is_share)
        drawings.append(picture(frame, body, label=label, data_chart=name))
    rows = [_rows(buckets, has_peak=not is_share) for buckets in series]
    return Chart(drawings, _axis(frame, x) | {"kind": "time", "percent": is_share, "series": rows}, notes)


def _series(buckets: Sequence[Bucket | None], x: Scale, y: Scale, series: int, *, has_peak: bool) -> str:
    known = [(index, bucket) for index, bucket in enumerate(buckets) if bucket]
    if not known:
        return ""
    middle = (x.end - x.start) / len(buckets)
    means = [(x.start + middle * (index + 0.5), y.at(bucket.mean)) for index, bucket in known]
    peaks = [(x.start + middle * (index + 0.5), y.at(bucket.peak)) for index, bucket in known]
    shade = series_class(series)
    top = path(line_path(peaks), f"peak {shade}") if has_peak else ""
    return top + path(area_path(means, y.start), f"area {shade}") + path(line_path(means), f"mean {shade}")


def _rows(buckets: Sequence[Bucket | None], *, has_peak: bool) -> list[list[float | None]]:
    means = [_brief(bucket.mean) if bucket else None for bucket in buckets]
    return [means, [bucket.peak if bucket else None for bucket in buckets]] if has_peak else [means]


def _axis(frame: Frame, x: Scale) -> dict[str, Any]:
    return {
        "x": [x.start, x.end],
        "y": [frame.top, frame.height - frame.bottom],
        "domain": [_brief(x.lo), _brief(x.hi)],
    }


def _brief(number: float) -> float:
    """Enough digits to read a value off a chart."""
    return float(f"{number:.4g}")


def waiting_bar(waiting: GroupWaiting, longest_s: float) -> str:
    """One stacked bar, as wide as the longest one at most."""
    label = (
        f"quota {format_duration(waiting.quota_s)}, "
        f"fragmentation {format_duration(waiting.fragmentation_s)}, other {format_duration(waiting.other_s)}"
    )
    x, parts = 0.0, []
    causes = (
        ("quota", waiting.quota_s),
        ("fragmentation", waiting.fragmentation_s),
        ("other", waiting.other_s),
    )
    for cause, seconds in causes:
        width = 100.0 * seconds / longest_s if longest_s else 0.0
        if width:
            parts.append(rectangle(x, 0.0, max(width, 0.1), 10.0, f"cause {cause}"))
        x += width
    body = "".join(parts)
    return tag(
        "svg",
        body,
        class_="bar",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
