"""The tenants of each GPU in the busiest hours: rows are GPUs, grouped by node; bars are jobs.

A cluster of thousands of GPUs does not fit on a page, so the same few nodes and the same window are drawn for all
policies, and the page states what was left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from skep.metrics.run import Run, Span
from skep.report.markup import clip
from skep.report.sample import Reach
from skep.report.svg import Frame, Scale, picture, rectangle, words, x_axis
from skep.report.units import format_count, format_instant, time_ticks

GPUS_MOST, NODES_MOST, BARS_MOST = 64, 24, 4800
_GPU_PX, _NODE_PX, _GAP_PX = 7.0, 13.0, 5.0
HUES = 12
"""Colours by virtual cluster or job; they repeat after this many."""
SIZES = ((1, "1 GPU or less"), (4, "2 to 4"), (8, "5 to 8"), (float("inf"), "more than 8"))


class Lane(msgspec.Struct, frozen=True):
    """Where a node is drawn."""

    node: int
    gpus: int
    top: float
    gpu_px: float


class Bar(msgspec.Struct, frozen=True):
    """A job on neighbouring GPUs of a node; `slot` of `slots` if a GPU is shared."""

    span: Span
    first: int
    count: int
    slot: int = 0
    slots: int = 1


class Gantt(msgspec.Struct, frozen=True):
    """One policy's drawing, its tooltips, and the number of bars that were left out."""

    drawing: str
    jobs: list[list[Any]]
    bars: int
    left_out: int


def spans_within(run: Run, window: Reach) -> list[Span]:
    """The spans that overlap the window."""
    spans = run.history.spans if run.history else []
    lo, hi = window.start_s, window.end_s
    return [span for span in spans if span.start_s < hi and span.end_s > lo and span.gpus]


def pick_nodes(runs: Sequence[Run], spans: Sequence[Sequence[Span]]) -> list[int]:
    """As many nodes as fit, evenly picked from those that hold one of the spans under any policy.

    The fullest ones would be a misleading choice: the gaps are of interest.
    """
    used = sorted({span.node for held in spans for span in held})
    if not used:
        return []
    gpus = max(run.node_gpus[node] for node in used for run in runs if node < len(run.node_gpus))
    count = min(len(used), NODES_MOST, max(GPUS_MOST // max(gpus, 1), 1))
    return [used[index * len(used) // count] for index in range(count)]


def draw_gantt(
    run: Run, spans: Sequence[Span], nodes: Sequence[int], window: Reach, *, most: int, base_s: float
) -> Gantt:
    """At most `most` bars, the longest ones; instants count from `base_s`."""
    vcs = vc_numbers(run)
    lanes = _lanes(run, nodes)
    frame = _frame(lanes)
    x = frame.across(window.start_s - base_s, window.end_s - base_s)
    bars = _bars(spans, lanes)
    drawn = sorted(bars, key=lambda bar: bar.span.start_s - bar.span.end_s)[:most]
    entries: dict[tuple[int, float, float], int] = {}
    parts = [_ground(run, lane, frame) for lane in lanes] + [_time_axis(frame, x)]
    by_node = {lane.node: lane for lane in lanes}
    for bar in drawn:
        span = bar.span
        entry = entries.setdefault((span.job, span.start_s, span.end_s), len(entries))
        parts.append(_draw(run, bar, by_node[span.node], x, base_s, entry, vcs))
    policy = clip(run.summary.policy, 60)
    text = f"Jobs on GPUs under {policy}: {format_count(len(drawn))} bars on {len(lanes)} nodes"
    drawing = picture(frame, "".join(parts), label=text, class_="gantt", data_gantt=True)
    jobs = [_told(run, job, start_s - base_s, end_s - base_s) for job, start_s, end_s in entries]
    return Gantt(drawing, jobs, len(drawn), len(bars) - len(drawn))


def vc_numbers(run: Run) -> dict[str, int]:
    """A number for each VC, in the order of their names: the same under every policy."""
    return {name: number for number, name in enumerate(sorted({row.vc for row in run.rows}))}


def _lanes(run: Run, nodes: Sequence[int]) -> list[Lane]:
    lanes, top = [], 4.0
    for node in nodes:
        if node >= len(run.node_gpus):
            continue
        gpus = max(run.node_gpus[node], 1)
        height = max(gpus * _GPU_PX, _NODE_PX)
        lanes.append(Lane(node, gpus, top, height / gpus))
        top += height + _GAP_PX
    return lanes


def _frame(lanes: Sequence[Lane]) -> Frame:
    bottom = 24.0
    floor = lanes[-1].top + lanes[-1].gpus * lanes[-1].gpu_px + 4.0 if lanes else 20.0
    return Frame(width=600, height=floor + bottom, left=74, right=10, top=2, bottom=bottom)


def _bars(spans: Sequence[Span], lanes: Sequence[Lane]) -> list[Bar]:
    by_node: dict[int, list[Span]] = {lane.node: [] for lane in lanes}
    for span in spans:
        if span.node in by_node:
            by_node[span.node].append(span)
    return [bar for held in by_node.values() for bar in _node_bars(held)]


def _node_bars(spans: list[Span]) -> list[Bar]:
    """Neighbouring GPUs of a job make one bar; if jobs share GPUs, each GPU is drawn separately."""
    spans.sort(key=lambda span: (span.start_s, span.job))
    slots: dict[int, list[float]] = {}
    placed: list[tuple[Span, int, int]] = []
    for span in spans:
        for gpu in _gpus(span.gpus):
            placed.append((span, gpu, _take_slot(slots.setdefault(gpu, []), span)))
    if all(len(ends) == 1 for ends in slots.values()):
        return [Bar(span, first, count) for span in spans for first, count in _stretches(span.gpus)]
    return [Bar(span, gpu, 1, slot, len(slots[gpu])) for span, gpu, slot in placed]


def _take_slot(ends: list[float], span: Span) -> int:
    for slot, end_s in enumerate(ends):
        if end_s <= span.start_s:
            ends[slot] = span.end_s
            return slot
    ends.append(span.end_s)
    return len(ends) - 1


def _gpus(mask: int) -> list[int]:
    return [first + offset for first, count in _stretches(mask) for offset in range(count)]


@cache
def _stretches(mask: int) -> tuple[tuple[int, int], ...]:
    """The runs of ones in a mask: (first, length)."""
    found, gpu = [], 0
    while mask >> gpu:
        if mask >> gpu & 1:
            count = 1
            while mask >> (gpu + count) & 1:
                count += 1
            found.append((gpu, count))
            gpu += count
        gpu += 1
    return tuple(found)


def _ground(run: Run, lane: Lane, frame: Frame) -> str:
    """The empty node and its name."""
    height = lane.gpus * lane.gpu_px
    name = run.node_names[lane.node]
    ground = rectangle(frame.left, lane.top, frame.width - frame.right - frame.left, height, "idle")
    return ground + words(
        frame.left - 7,
        lane.top + height / 2 + 4,
        clip(name, 10),
        anchor="end",
        note=name if len(name) > 10 else "",
    )


def _time_axis(frame: Frame, x: Scale) -> str:
    ticks, _ = time_ticks(x.lo, x.hi, most=8)
    return x_axis(frame, x, ticks, lambda tick: format_instant(tick, with_day=False))


def _draw(run: Run, bar: Bar, lane: Lane, x: Scale, base_s: float, entry: int, vcs: Mapping[str, int]) -> str:
    """Its classes contain the size, the VC and the job: the style sheet colours by one of them."""
    left, right = x.at(bar.span.start_s - base_s), x.at(bar.span.end_s - base_s)
    height = lane.gpu_px * bar.count / bar.slots
    top = lane.top + lane.gpu_px * bar.first + height * bar.slot
    size = next(index for index, (limit, _) in enumerate(SIZES) if run.rows[bar.span.job].gpus <= limit)
    gap = 0.5 if right - left > 2 else 0.0
    seam = 0.5 if height > 3 else 0.1
    mark = f' data-b="{entry}"'
    job = bar.span.job
    looks = f"job z{size} v{vcs[run.rows[job].vc] % HUES} j{job % HUES}"
    return rectangle(left, top, max(right - left - gap, 0.5), height - seam, looks, mark)


def _told(run: Run, job: int, start_s: float, end_s: float) -> list[Any]:
    row = run.rows[job]
    gpus = float(f"{row.gpus:.4g}")
    return [
        clip(row.job_id, 60),
        clip(row.vc, 60),
        gpus,
        format_instant(start_s),
        format_instant(end_s),
        round(end_s - start_s, 1),
    ]
