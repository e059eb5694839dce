"""The picture of bench/tenants.py: one line per tenant, what its jobs wait in each of the four ways, on a log scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.sax.saxutils import escape

WIDTH, LEFT, GAP, ROW, TOP, BOTTOM = 1020.0, 178.0, 56.0, 30.0, 122.0, 40.0
LEAST_S, MOST_S = 1.0, 4e6
TICKS = (
    (1, "≤ 1 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3600, "1 h"),
    (36_000, "10 h"),
    (259_200, "3 d"),
    (2.592e6, "30 d"),
)
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
  .numbers { fill: #d1602c; } .borrowing { fill: #2a7fba; } .path { stroke: #d1602c; stroke-width: 2; opacity: .45; }
"""


def picture(nodes: dict[str, int], waits: dict[str, dict[str, list[float]]]) -> str:
    """`waits`: way of sharing → VC → seconds that each job waited."""
    vcs = sorted(nodes, key=lambda vc: -nodes[vc])
    height = TOP + ROW * len(vcs) + BOTTOM
    panel = (WIDTH - LEFT - GAP - 24) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        'aria-label="Waiting of each tenant in four ways of sharing">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        text(20, 28, "What each tenant's jobs wait, by how the cluster is shared", "title"),
        legend(),
    ]
    for number in range(0, len(vcs), 2):
        parts.append(f'<rect class="band" x="0" y="{TOP + ROW * number:.0f}" width="{WIDTH:.0f}" height="{ROW:.0f}"/>')
    for number, vc in enumerate(vcs):
        y = TOP + ROW * (number + 0.5) + 4.5
        parts.append(text(20, y, vc, "bold"))
        parts.append(text(LEFT - 22, y, f"{nodes[vc]} nodes" if nodes[vc] > 1 else "1 node", "soft", "end"))
    for at, (title, measure) in enumerate((("average", average), ("99th percentile", p99))):
        parts += panel_of(LEFT + at * (panel + GAP), panel, height, title, vcs, waits, measure)
    return "\n".join([*parts, "</svg>", ""])


def panel_of(
    left: float,
    width: float,
    height: float,
    title: str,
    vcs: list[str],
    waits: dict[str, dict[str, list[float]]],
    measure: Callable[[list[float]], float],
) -> list[str]:
    def x_of(seconds: float) -> float:
        share = math.log(min(max(seconds, LEAST_S), MOST_S) / LEAST_S) / math.log(MOST_S / LEAST_S)
        return left + share * width

    parts = [text(left, TOP - 14, title, "bold")]
    for seconds, label in TICKS:
        x = x_of(seconds)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:.0f}" y2="{height - BOTTOM:.0f}"/>')
        parts.append(text(x, height - BOTTOM + 19, label, "soft", "middle"))
    for number, vc in enumerate(vcs):
        y = TOP + ROW * (number + 0.5)
        at = {way: x_of(measure(waits[way].get(vc, [0.0]))) for way in LABELS}
        ends = sorted((at["private"], at["numbers"]))
        parts.append(f'<line class="path" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts += [mark(way, at[way], y) for way in ("borrowing", "numbers", "private", "cells")]
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


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def average(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def p99(values: list[float]) -> float:
    """The smallest value that 99 of 100 do not exceed."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else 0.0
