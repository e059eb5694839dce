"""A small drawing kit: scales, axes, lines, steps and areas, as inline SVG.

Coordinates are those of the view box; colours, weights and fonts belong to the style sheet, so that light, dark and
print use one drawing. Labels lie outside the frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from skep.report.markup import escape, tag

Point = tuple[float, float]


class Scale(msgspec.Struct, frozen=True):
    """From data [lo, hi] to pixels [start, end]; values outside are drawn at the edge."""

    lo: float
    hi: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        value = min(max(value, self.lo), self.hi)
        if self.is_log:
            share = math.log(value / self.lo) / math.log(self.hi / self.lo)
        else:
            share = (value - self.lo) / (self.hi - self.lo)
        return self.start + share * (self.end - self.start)


class Frame(msgspec.Struct, frozen=True):
    """The size of a drawing and the space for its labels."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def across(self, lo: float, hi: float, *, is_log: bool = False) -> Scale:
        return Scale(lo, hi, self.left, self.width - self.right, is_log)

    def upward(self, lo: float, hi: float, *, is_log: bool = False) -> Scale:
        return Scale(lo, hi, self.height - self.bottom, self.top, is_log)


def picture(frame: Frame, body: str, *, label: str, **attributes: object) -> str:
    """The whole drawing, with a description for screen readers."""
    box = f"0 0 {short(frame.width)} {short(frame.height)}"
    return tag("svg", body, viewBox=box, role="img", aria_label=label, **attributes)


def x_axis(frame: Frame, scale: Scale, ticks: Sequence[float], show: Callable[[float], str]) -> str:
    """Vertical grid lines, labels below; the outermost labels are aligned inwards so that none is cut off."""
    floor = frame.height - frame.bottom
    parts = []
    for tick in ticks:
        x = scale.at(tick)
        parts.append(_rule(x, frame.top, x, floor, "grid"))
        parts.append(words(x, floor + 15, show(tick), anchor=_anchor(x, frame)))
    parts.append(_rule(frame.left, floor, frame.width - frame.right, floor, "axis"))
    return "".join(parts)


def y_axis(frame: Frame, scale: Scale, ticks: Sequence[float], show: Callable[[float], str]) -> str:
    """Horizontal grid lines, labels to the left."""
    parts = []
    for tick in ticks:
        y = scale.at(tick)
        parts.append(_rule(frame.left, y, frame.width - frame.right, y, "grid"))
        parts.append(words(frame.left - 7, y + 4, show(tick), anchor="end"))
    return "".join(parts)


def line_path(points: Iterable[Point]) -> str:
    """Straight from point to point."""
    return "M" + "L".join(f"{short(x)},{short(y)}" for x, y in points)


def step_path(points: Sequence[Point]) -> str:
    """Horizontal to the next point, then vertical to it."""
    first = points[0]
    rest = "".join(f"H{short(x)}V{short(y)}" for x, y in points[1:])
    return f"M{short(first[0])},{short(first[1])}{rest}"


def area_path(points: Sequence[Point], floor: float) -> str:
    """The area between the line and the floor."""
    return f"{line_path(points)}L{short(points[-1][0])},{short(floor)}H{short(points[0][0])}Z"


def path(d: str, class_: str, **attributes: object) -> str:
    return tag("path", d=d, class_=class_, **attributes)


def rectangle(x: float, y: float, width: float, height: float, class_: str, mark: str = "") -> str:
    """Written without `tag`: a report has thousands of these. `mark` is ready markup."""
    return (
        f'<rect x="{short(x)}" y="{short(y)}" width="{short(width)}" height="{short(height)}" '
        f'class="{class_}"{mark}></rect>'
    )


def words(x: float, y: float, text: str, *, anchor: str, note: str = "") -> str:
    """Text at a point; `note` is its tooltip."""
    title = tag("title", escape(note)) if note else ""
    return tag("text", escape(text) + title, x=short(x), y=short(y), text_anchor=anchor)


def short(number: float) -> str:
    """A tenth of a pixel is precise enough: `12.3`, `7`."""
    text = f"{number:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _rule(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return tag("line", x1=short(x1), y1=short(y1), x2=short(x2), y2=short(y2), class_=class_)


def _anchor(x: float, frame: Frame) -> str:
    if x - frame.left < 12:
        return "start"
    return "end" if frame.width - frame.right - x < 12 else "middle"
