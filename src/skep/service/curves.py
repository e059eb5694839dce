"""What a job reported through `skep.train`, as series short enough to draw."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from skep.core.ports import Metrics
from skep.service.values import Json

LINE_MAX = 4096
KEYS_MAX = 50
OWN = ("step", "at_s")

_decode = msgspec.json.Decoder(dict[str, float | int | None]).decode
Point = tuple[float | None, float | None, float | None, int]
"""Step, time, value, attempt."""


class Curves(msgspec.Struct):
    """Points by key, in the order of steps."""

    points: dict[str, list[Point]]
    is_cut: bool


def read_curves(attempts: Iterable[Metrics]) -> Curves:
    """The reports of all attempts, oldest first. Repeated steps are included once: when an attempt restarts at a step,
    earlier reports from that step on are dropped."""
    found: dict[str, list[Point]] = {}
    is_any_cut = False
    for attempt in attempts:
        is_any_cut |= attempt.is_cut
        rows = [row for line in attempt.lines if (row := row_of(line)) is not None]
        steps = [step for row in rows if (step := finite(row.get("step"))) is not None]
        if steps:
            forget_from(found, min(steps))
        for row in rows:
            add_row(found, row, attempt.launch)
    return Curves(found, is_any_cut)


def row_of(line: bytes) -> dict[str, float | int | None] | None:
    if not line or len(line) > LINE_MAX:
        return None
    try:
        return _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def forget_from(found: dict[str, list[Point]], step: float) -> None:
    for key, points in found.items():
        found[key] = [point for point in points if point[0] is None or point[0] < step]


def add_row(found: dict[str, list[Point]], row: dict[str, float | int | None], attempt: int) -> None:
    step, at_s = (finite(row.get(name)) for name in OWN)
    for key, value in row.items():
        if key in OWN or (key not in found and len(found) >= KEYS_MAX):
            continue
        found.setdefault(key, []).append((step, at_s, finite(value), attempt))


def finite(value: float | int | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def thinned(points: list[Point], most: int) -> list[Point]:
    """At most this many points; the smallest and the largest value of each interval, so that spikes stay visible."""
    if len(points) <= most:
        return points
    stretches = max(most // 2, 1)
    kept: list[Point] = []
    for number in range(stretches):
        part = points[number * len(points) // stretches : (number + 1) * len(points) // stretches]
        known = [point for point in part if point[2] is not None] or part[:1]
        low = min(known, key=lambda point: point[2] or 0.0)
        high = max(known, key=lambda point: point[2] or 0.0)
        kept += [low] if low is high else sorted((low, high), key=part.index)
    return kept


def as_series(key: str, points: list[Point]) -> Json:
    step, at_s, value, attempt = (list(each) for each in zip(*points, strict=True)) if points else ([], [], [], [])
    return {"key": key, "step": step, "at_s": at_s, "value": value, "attempt": attempt}
