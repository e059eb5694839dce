"""Numbers in readable form: 2.3 h, 14 min, 87.2%; and the ticks of axes.

Shared by the terminal table and the HTML report, so that the same run reads the same in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable

NOTHING = "\N{EN DASH}"
_TIMES = "\N{MULTIPLICATION SIGN}"
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0

_UNITS = (("s", 1.0, 60.0), ("min", MINUTE_S, 60.0), ("h", HOUR_S, 24.0), ("d", DAY_S, math.inf))
"""Name, seconds, and how many of it make the next one."""

_LOG_TICKS_S = (
    (1.0, MINUTE_S, HOUR_S, DAY_S, 10 * DAY_S, 100 * DAY_S, 1000 * DAY_S),
    (10.0, 10 * MINUTE_S, 6 * HOUR_S, 0.1, 0.01, 0.001),
    (
        2.0,
        5.0,
        30.0,
        2 * MINUTE_S,
        5 * MINUTE_S,
        30 * MINUTE_S,
        2 * HOUR_S,
        12 * HOUR_S,
        2 * DAY_S,
        5 * DAY_S,
    ),
)
"""The best known durations first: a finer one is drawn only if there is space between them."""

_STEPS_S = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(MINUTE_S * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR_S * n for n in (1, 2, 3, 6, 12)),
    *(DAY_S * n * 10**power for power in range(6) for n in (1, 2, 5)),
)


def format_duration(seconds: float | None) -> str:
    """Two significant digits below ten, whole units above: `0.4 s`, `42 s`, `14 min`, `2.3 h`, `3.1 d`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    sign = "-" if seconds < 0 else ""
    size = abs(seconds)
    # Chosen after rounding: 59.7 s is a minute, not sixty seconds.
    unit, unit_s = next((unit, unit_s) for unit, unit_s, limit in _UNITS if _two_digits(size / unit_s) < limit)
    amount = _two_digits(size / unit_s)
    return f"{sign if amount else ''}{_plain(amount)} {unit}"


def format_count(count: float | None) -> str:
    """`82,000`; a fraction keeps one digit."""
    if count is None or not math.isfinite(count):
        return NOTHING
    return f"{count:,.0f}" if float(count).is_integer() or abs(count) >= 100 else f"{count:,.1f}"


def format_percent(share: float | None) -> str:
    """`0.8721` is `87.2%`."""
    return NOTHING if share is None or not math.isfinite(share) else f"{share * 100:.1f}%"


def format_number(value: float | None) -> str:
    """Three significant digits for small ratios (`1.42`), grouped thousands for large ones."""
    if value is None or not math.isfinite(value):
        return NOTHING
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}"


def format_factor(factor: float) -> str:
    """A ratio: two digits, and a third if the difference is small (1.04)."""
    return f"{format_number(factor) if factor < 1.1 else _plain(_two_digits(factor))}{_TIMES}"


def format_instant(at_s: float, *, with_day: bool = True) -> str:
    """An instant counted from the first submission: `3 d 04:05`, with seconds if there are any."""
    whole = round(at_s)
    day, rest = divmod(whole, int(DAY_S))
    hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
    clock = f"{hours:02d}:{minutes:02d}" + (f":{seconds:02d}" if seconds else "")
    return f"{day} d {clock}" if with_day and day else clock


def log_ticks(lo: float, hi: float, *, gap: float) -> list[float]:
    """Familiar durations within [lo, hi], no two nearer than the share `gap` of the axis."""
    width = math.log(hi / lo)
    ticks: list[float] = []
    for tier in _LOG_TICKS_S:
        for tick in tier:
            is_clear = all(abs(math.log(tick / other)) >= gap * width for other in ticks)
            if lo * 0.999 <= tick <= hi * 1.001 and is_clear:
                ticks.append(tick)
    return sorted(ticks)


def log_floor(seconds: float) -> float:
    """The largest familiar duration not above `seconds`."""
    return max((tick for tier in _LOG_TICKS_S for tick in tier if tick <= seconds * 1.001), default=seconds)


def time_ticks(lo: float, hi: float, *, most: int) -> tuple[list[float], Callable[[float], str]]:
    """At most `most` round instants of [lo, hi], and how to write them: `0`, `6 h`, `12 h`."""
    step = next((step for step in _STEPS_S if (hi - lo) / step < most), _STEPS_S[-1])
    first = math.ceil(lo / step - 1e-9)
    ticks = [step * index for index in range(first, math.floor(hi / step + 1e-9) + 1)]
    unit, unit_s, _ = next(unit for unit in reversed(_UNITS) if unit[1] <= step)
    return ticks, lambda tick: f"{tick / unit_s:,g} {unit}" if tick else "0"


def count_ticks(hi: float, *, most: int) -> list[float]:
    """0 and round steps up to the first one that reaches `hi`."""
    raw = max(hi, 1.0) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= raw * 0.999)
    step = max(step, 1.0)
    return [step * index for index in range(math.ceil(max(hi, 1.0) / step - 1e-9) + 1)]


def format_tick(count: float) -> str:
    """Short enough for an axis: `800`, `1.5k`, `2M`."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:g}{suffix}"
    return f"{count:g}"


def _two_digits(amount: float) -> float:
    return round(amount, 1) if round(amount, 1) < 10 else float(round(amount))


def _plain(amount: float) -> str:
    return f"{amount:,.0f}" if amount.is_integer() else f"{amount:.1f}"
