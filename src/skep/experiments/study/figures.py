"""The drawings of a study: intervals of policies, which differences are real, and curves along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from skep.experiments.study.analyse import PairedTest, Side, compare_pairs
from skep.experiments.study.choose import GROUPS
from skep.experiments.study.recommend import LEAST, LEVEL, Recommendation
from skep.experiments.study.words import NAMES, shown_interval
from skep.metrics.student import step_up
from skep.report.columns import Column
from skep.report.markup import clip, escape, series_class, tag
from skep.report.svg import Frame, Scale, line_path, path, picture, short, words, x_axis, y_axis
from skep.report.units import format_duration, format_percent, log_ticks

ROW, HEAD_ROW = 25.0, 30.0
NAMES_WIDTH, LEFT, RIGHT = 190.0, 500.0, 370.0
MINI_ROW, MINI_NAMES, MINI_WIDTH = 15.0, 96.0, 360.0
CELL = 24.0
RATIOS = (0.1, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
CURVE_FRAME = Frame(width=540, height=300, left=58, right=14, top=12, bottom=40)


class Look(msgspec.Struct, frozen=True):
    """How a policy is drawn in every figure."""

    mark: str
    """best, equal, worse, oracle or excluded."""
    note: str


def looks_of(sides: Sequence[Side], found: Recommendation) -> dict[str, Look]:
    marks = {side.policy: Look("excluded", "fewer jobs finished") for side in sides}
    marks |= {side.policy: Look("oracle", "knows durations: a bound") for side in sides if side.oracle}
    for rival in found.rivals:
        marks[rival.side.policy] = (
            Look("worse", "really worse than the best")
            if rival.is_worse
            else Look("equal", "as good as the best, as far as one can say")
        )
    if found.best is not None:
        marks[found.best.policy] = Look("best", "the best value")
    return marks


def in_order(sides: Sequence[Side], column: Column) -> list[Side]:
    """By what they assume, then by their values."""
    sign = 1 if column.better == "low" else -1
    return sorted(sides, key=lambda side: (GROUPS.index(side.group), sign * (side.value(column.key) or math.inf)))


def scale_of(column: Column, sides: Sequence[Side], start: float, end: float) -> Scale:
    """Logarithmic where values differ much."""
    found = [interval for side in sides if (interval := side.interval(column.key)) is not None]
    low = min((each.low for each in found), default=0.0)
    high = max((each.high for each in found), default=1.0)
    typical = max((each.value for each in found), default=1.0)
    high = min(high, typical * 8)  # one very wide interval must not squeeze all others
    if low > 0 and high / low > (4 if column.show is format_duration else 40):
        return Scale(low * 0.9, high * 1.1, start, end, is_log=True)
    room = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
    low = max(low - room, 0.0) if low >= 0 else low - room
    high = min(high + room, 1.0) if column.show is format_percent or column.key == "jain" else high + room
    return Scale(low, high if high > low else low + 1.0, start, end)


def powers(scale: Scale, most: int) -> list[float]:
    """Of ten, and their halves and fifths if there are few."""
    first, last = math.floor(math.log10(scale.lo)), math.ceil(math.log10(scale.hi))
    steps = (1, 2, 5) if last - first < most / 2 else (1,)
    found = [10.0**power * n for power in range(first, last + 1) for n in steps]
    inside = [tick for tick in found if scale.lo <= tick <= scale.hi]
    return inside[:: 1 + (len(inside) - 1) // most] if inside else []


def ticks_of(scale: Scale, column: Column, *, most: int) -> list[float]:
    if scale.is_log:
        return log_ticks(scale.lo, scale.hi, gap=1 / most) if column.show is format_duration else powers(scale, most)
    raw = (scale.hi - scale.lo) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * n for n in (1, 2, 2.5, 5, 10) if power * n >= raw * 0.999)
    first = math.ceil(scale.lo / step - 1e-9)
    return [step * index for index in range(first, math.floor(scale.hi / step + 1e-9) + 1)]


def forest(sides: Sequence[Side], found: Recommendation, looks: dict[str, Look]) -> str:
    """Each policy with its interval, and beside it how it differs from the best one in the same runs."""
    column = found.measure
    ordered = in_order(sides, column)
    heads = [group for group in GROUPS if any(side.group == group for side in ordered)]
    height = 34 + len(heads) * HEAD_ROW + len(ordered) * ROW + 26
    frame = Frame(NAMES_WIDTH + LEFT + RIGHT + 40, height, NAMES_WIDTH, RIGHT + 40, 30, 26)
    x = scale_of(column, ordered, NAMES_WIDTH, NAMES_WIDTH + LEFT)
    tests = {rival.side.policy: rival.test for rival in found.rivals}
    beside = ratio_scale(tests.values(), NAMES_WIDTH + LEFT + 40, NAMES_WIDTH + LEFT + 40 + RIGHT - 12)
    right = Frame(frame.width, height, beside.start, frame.width - beside.end, 30, 26)
    body = x_axis(frame, x, ticks_of(x, column, most=6), column.show)
    body += x_axis(right, beside, ratio_ticks(beside), lambda ratio: f"{ratio:g}×")
    body += tag("line", x1=short(beside.at(1)), x2=short(beside.at(1)), y1=30, y2=short(height - 26), class_="axis")
    body += words(NAMES_WIDTH, 16, NAMES[column.key], anchor="start")
    best = found.best.policy if found.best is not None else "the best"
    body += words(beside.start, 16, f"against {best}, in the same runs", anchor="start")
    y, group = 30.0, ""
    for side in ordered:
        if side.group != group:
            group = side.group
            y += HEAD_ROW
            body += tag("text", escape(f"assumes {group}"), x=0, y=short(y - 8), class_="assumes")
        body += forest_row(side, column, x, beside, tests.get(side.policy), looks[side.policy], y + ROW / 2)
        y += ROW
    label = f"{NAMES[column.key]} of each policy with its 95% interval"
    return picture(frame, body, label=label, class_="forest")


def forest_row(
    side: Side, column: Column, x: Scale, beside: Scale, test: PairedTest | None, look: Look, y: float
) -> str:
    text = tag("text", escape(clip(side.policy, 28)), x=12, y=short(y + 4), class_=f"policy {look.mark}")
    note = f"{side.policy}: {shown_interval(side, column)}; {look.note}"
    row = text + whisker(side, column, x, y, look, 5.0, note)
    if test is not None and math.isfinite(test.low):
        low, mid, high = (beside.at(max(1 + part, 1e-3)) for part in (test.low, test.effect, test.high))
        row += whisker_line(low, high, y, look) + dot(mid, y, 5.0, look)
        row += words(max(high, mid) + 9, y + 4, signed(test.effect), anchor="start") if high < beside.end - 60 else ""
        note += f"; {signed(test.effect)} against the best ({signed(test.low)} to {signed(test.high)})"
    return tag("g", tag("title", escape(note)) + row)


def signed(part: float) -> str:
    return f"{part:+.1%}" if abs(part) < 1 else f"{1 + part:.1f}×"


def whisker(side: Side, column: Column, x: Scale, y: float, look: Look, radius: float, note: str = "") -> str:
    found = side.interval(column.key)
    if found is None:
        return ""
    line = whisker_line(x.at(found.low), x.at(found.high), y, look)
    return line + dot(x.at(found.value), y, radius, look)


def whisker_line(low: float, high: float, y: float, look: Look) -> str:
    return tag("line", x1=short(low), x2=short(high), y1=short(y), y2=short(y), class_=f"whisker {look.mark}")


def dot(x: float, y: float, radius: float, look: Look) -> str:
    return tag("circle", cx=short(x), cy=short(y), r=short(radius), class_=f"dot {look.mark}")


def ratio_scale(tests: object, start: float, end: float) -> Scale:
    known = [test for test in tests if math.isfinite(test.low)]  # type: ignore[attr-defined]
    low = min([1 + test.low for test in known] + [0.95])
    high = max([1 + test.effect for test in known] + [1.05])
    return Scale(max(low * 0.97, 0.05), min(high * 1.6, 2000.0), start, end, is_log=True)


def ratio_ticks(scale: Scale) -> list[float]:
    """1, and others where there is room."""
    width = math.log(scale.hi / scale.lo)
    found = [1.0]
    for ratio in sorted(RATIOS, key=lambda ratio: abs(math.log(ratio))):
        is_clear = all(abs(math.log(ratio / other)) >= 0.11 * width for other in found)
        if scale.lo <= ratio <= scale.hi and is_clear:
            found.append(ratio)
    return sorted(found)


def mini_forest(sides: Sequence[Side], column: Column, looks: dict[str, Look]) -> str:
    """The same of another measure, small."""
    height = 6 + len(sides) * MINI_ROW + 22
    frame = Frame(MINI_WIDTH, height, MINI_NAMES, 14, 4, 22)
    x = scale_of(column, sides, MINI_NAMES, MINI_WIDTH - 14)
    body = x_axis(frame, x, ticks_of(x, column, most=4), column.show)
    for index, side in enumerate(sides):
        y, look = 6 + (index + 0.5) * MINI_ROW, looks[side.policy]
        name = tag("text", escape(clip(side.policy, 16)), x=0, y=short(y + 3.5), class_=f"policy {look.mark}")
        note = f"{side.policy}: {shown_interval(side, column)}"
        body += tag("g", tag("title", escape(note)) + name + whisker(side, column, x, y, look, 3.4))
    return picture(frame, body, label=f"{NAMES[column.key]} of each policy", class_="mini")


def matrix(sides: Sequence[Side], column: Column) -> str:
    """Each policy against each other: coloured where the difference is real."""
    pairs = [(row, col) for row in range(len(sides)) for col in range(row)]
    tests = {pair: compare_pairs(sides[pair[0]], sides[pair[1]], column.key) for pair in pairs}
    chances = dict(zip(pairs, step_up([tests[pair].chance for pair in pairs]), strict=True))
    left, top = 170.0, 112.0
    size = len(sides) * CELL
    body = ""
    for index, side in enumerate(sides):
        at = (index + 0.5) * CELL
        mark = "policy oracle" if side.oracle else "policy"
        body += tag(
            "text", escape(clip(side.policy, 22)), x=left - 8, y=short(top + at + 4), text_anchor="end", class_=mark
        )
        turn = f"translate({short(left + at + 4)} {top - 8}) rotate(-52)"
        body += tag("text", escape(clip(side.policy, 18)), transform=turn, class_=mark)
    for (row, col), test in tests.items():
        for one, other, effect in ((row, col, test.effect), (col, row, 1 / (1 + test.effect) - 1)):
            body += matrix_cell(sides, one, other, effect, chances[row, col], column, left, top)
    frame = Frame(left + size + 70, top + size + 4, 0, 0, 0, 0)
    return picture(frame, body, label=f"Which differences in {NAMES[column.key]} are real", class_="matrix")


def matrix_cell(
    sides: Sequence[Side], one: int, other: int, effect: float, chance: float, column: Column, left: float, top: float
) -> str:
    is_real = chance < LEVEL and abs(effect) >= LEAST
    is_better = (effect < 0) == (column.better == "low")
    strength = 1 if abs(math.log1p(effect)) < 0.1 else 2 if abs(math.log1p(effect)) < 0.7 else 3
    look = f"{'better' if is_better else 'behind'} d{strength}" if is_real else "unsure"
    verdict = "" if is_real else ", which may be chance"
    note = f"{sides[one].policy} against {sides[other].policy}: {signed(effect)}{verdict}"
    return tag(
        "rect",
        tag("title", escape(note)),
        x=short(left + other * CELL + 1),
        y=short(top + one * CELL + 1),
        width=short(CELL - 2),
        height=short(CELL - 2),
        rx=4,
        class_=f"cell {look}",
    )


class CurveLine(msgspec.Struct, frozen=True):
    """One policy along the axis."""

    series: int
    sides: list[Side | None]


def curves(
    lines: Sequence[CurveLine], positions: Sequence[float], names: Sequence[str], column: Column, axis: str
) -> str:
    """A measure along an axis, with the interval of each point as a band."""
    frame = CURVE_FRAME
    known = [side for line in lines for side in line.sides if side is not None]
    y = scale_of(column, known, frame.height - frame.bottom, frame.top)
    x = frame.across(min(positions), max(positions) if max(positions) > min(positions) else min(positions) + 1)
    shown = dict(zip(positions, names, strict=True))
    body = y_axis(frame, y, ticks_of(y, column, most=5), column.show)
    body += x_axis(frame, x, spaced(positions, x), lambda position: shown[position])
    body += words((frame.left + frame.width - frame.right) / 2, frame.height - 4, axis, anchor="middle")
    for line in lines:
        body += curve(line, positions, x, y, column)
    return picture(frame, body, label=f"{NAMES[column.key]} along {axis}")


def spaced(positions: Sequence[float], x: Scale) -> list[float]:
    found: list[float] = []
    for position in positions:
        if not found or x.at(position) - x.at(found[-1]) > 48:
            found.append(position)
    return found


def curve(line: CurveLine, positions: Sequence[float], x: Scale, y: Scale, column: Column) -> str:
    at: Callable[[float], float] = y.at
    points, above, below = [], [], []
    for side, position in zip(line.sides, positions, strict=True):
        found = side.interval(column.key) if side is not None else None
        if found is not None:
            points.append((x.at(position), at(found.value)))
            above.append((x.at(position), at(found.high)))
            below.append((x.at(position), at(found.low)))
    if not points:
        return ""
    look = series_class(line.series)
    band = path(line_path([*above, *reversed(below)]) + "Z", f"area band {look}", data_p=line.series)
    dots = "".join(tag("circle", cx=short(px), cy=short(py), r=3, class_=f"knot {look}") for px, py in points)
    return band + path(line_path(points), f"line {look}", data_p=line.series) + tag("g", dots, data_p=line.series)
