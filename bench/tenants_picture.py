"""The picture of bench/tenants.py: one line per tenant, what its jobs wait in each of the four ways, on a log scale."""

from __future__ import annotations

import math
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, GAP, COUNTS, ROW, TOP, BOTTOM = 1100.0, 170.0, 60.0, 150.0, 30.0, 128.0, 40.0
LEAST_S, MOST_S = 60.0, 4e6
TICKS = ((60, "≤ 1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"), (259_200, "3 d"), (2.592e6, "30 d"))
LABELS = {
    "private": "private clusters",
    "numbers": "shared, by number only",
    "cells": "shared, cells: as private",
    "borrowing": "shared, cells with borrowing",
}
STYLE = """
  text { font: 13px system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #24292f; }
  .title { font-size: 16px; font-weight: 600; } .soft { fill: #57606a; } .bold { font-weight: 600; }
  .grid { stroke: #d8dee4; } .band { fill: #f6f8fa; }
  .private { fill: none; stroke: #24292f; stroke-width: 1.8; } .cells { fill: #24292f; }
  .numbers { fill: #d1602c; } .borrowing { fill: #2a7fba; } .shorter { stroke: #8c959f; stroke-width: 2; }
  .longer { stroke: #d1602c; stroke-width: 5; opacity: .45; } .worse { fill: #b3461a; font-weight: 600; }
"""


def picture(found: list[Any]) -> str:
    """`found`: what each tenant saw, and all of them together at the end."""
    height = TOP + ROW * len(found) + BOTTOM
    panel = (WIDTH - LEFT - GAP - COUNTS) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        'aria-label="Waiting of each tenant in four ways of sharing">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        text(20, 28, "What each tenant's jobs wait on average, by how the cluster is shared", "title"),
        text(WIDTH - 20, 28, "×2: by number twice as long as private", "worse", "end"),
        legend(),
    ]
    for number in range(0, len(found), 2):
        parts.append(f'<rect class="band" x="0" y="{TOP + ROW * number:.0f}" width="{WIDTH:.0f}" height="{ROW:.0f}"/>')
    for number, one in enumerate(found):
        parts += names(one, TOP + ROW * (number + 0.5) + 4.5)
    parts += panel_of(LEFT, panel, "all jobs", [one.average_s for one in found])
    large = [one.large_s if one.large else {} for one in found]
    parts += panel_of(LEFT + panel + GAP, panel, "jobs of a whole node or more", large)
    parts += [text(WIDTH - 20, TOP - 31, "promises broken", "bold", "end")]
    parts += [text(WIDTH - 20, TOP - 14, "by number | cells", "soft", "end")]
    return "\n".join([*parts, "</svg>", ""])


def names(one: Any, y: float) -> list[str]:
    """What stands at both ends of a line. Cells break no promise: the run fails if they do."""
    return [
        text(20, y, one.name, "bold"),
        text(LEFT - 22, y, f"{one.nodes} nodes" if one.nodes > 1 else "1 node", "soft", "end"),
        text(WIDTH - 60, y, f"{one.broken:,}", "worse" if one.broken else "soft", "end"),
        text(WIDTH - 28, y, "0", "soft", "end"),
    ]


def panel_of(left: float, width: float, title: str, rows: list[dict[str, float]]) -> list[str]:
    """`rows`: seconds by way of sharing; empty where there are no such jobs."""

    def x_of(seconds: float) -> float:
        share = math.log(min(max(seconds, LEAST_S), MOST_S) / LEAST_S) / math.log(MOST_S / LEAST_S)
        return left + share * width

    bottom = TOP + ROW * len(rows)
    parts = [text(left, TOP - 14, title, "bold")]
    for seconds, label in TICKS:
        x = x_of(seconds)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:.0f}" y2="{bottom:.0f}"/>')
        parts.append(text(x, bottom + 19, label, "soft", "middle"))
    for number, row in enumerate(rows):
        if row:
            parts += line(row, {way: x_of(row[way]) for way in LABELS}, TOP + ROW * (number + 0.5))
    return parts


def line(row: dict[str, float], at: dict[str, float], y: float) -> list[str]:
    """The four marks; from private to numbers a bar, with how many times as long one waits by number."""
    ratio = row["numbers"] / max(row["private"], 1.0)
    kind = "longer" if row["numbers"] > row["private"] else "shorter"
    parts = [f'<line class="{kind}" x1="{at["private"]:.1f}" x2="{at["numbers"]:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>']
    parts += [mark(way, at[way], y) for way in ("borrowing", "numbers", "private", "cells")]
    if row["numbers"] >= LEAST_S and not 0.95 < ratio < 1.05:
        words = times(ratio) if row["private"] >= LEAST_S else f"0 → {span(row['numbers'])}"
        parts.append(text(max(at.values()) + 11, y + 4.5, words, "worse" if ratio > 1 else "soft"))
    return parts


def mark(way: str, x: float, y: float) -> str:
    """Private is a ring and cells a dot: where both are the same, the dot is in the ring."""
    if way == "numbers":
        return f'<path class="numbers" d="M{x:.1f},{y - 6.5:.1f}l6.5,6.5l-6.5,6.5l-6.5,-6.5z"/>'
    if way == "borrowing":
        return f'<rect class="borrowing" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
    return f'<circle class="{way}" cx="{x:.1f}" cy="{y:.1f}" r="{6.5 if way == "private" else 2.8}"/>'


def legend() -> str:
    parts = []
    x = 28.0
    for way, label in LABELS.items():
        parts += [mark(way, x, 57), text(x + 14, 61.5, label)]
        x += 34 + 7.1 * len(label)
    return "\n".join(parts)


def span(seconds: float) -> str:
    """Two digits are enough to compare: `0`, `47 s`, `3.1 min`, `5.2 h`."""
    if seconds < 0.5:
        return "0"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{seconds:.0f} s"


def times(ratio: float) -> str:
    return f"×{ratio:.2f}" if ratio < 2 else f"×{ratio:.1f}" if ratio < 10 else f"×{ratio:.0f}"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def average(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def p99(values: list[float]) -> float:
    """The smallest value that 99 of 100 do not exceed."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else 0.0
