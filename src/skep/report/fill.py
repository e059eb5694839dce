"""Placements that filled a cluster, side by side: tables for the terminal and a page with charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from skep.metrics.filled import Filled, Point
from skep.report.html import Data, figure, page
from skep.report.markup import Head, TableCell, TextLine, clip, data_table, escape, series_class, tag
from skep.report.sections import legend, section
from skep.report.svg import Frame, line_path, path, picture, x_axis, y_axis
from skep.report.units import NOTHING, format_count

if TYPE_CHECKING:
    from rich.table import Table

_FRAME = Frame(width=540, height=300, left=44, right=12, top=10, bottom=26)
_ROWS_MOST = 15
_APART = 2.0
"""Placements whose curves differ by this many points have separated."""


class Mean(msgspec.Struct, frozen=True):
    """One placement over all its seeds."""

    place: str
    seeds: int
    allocated: float
    lowest: float
    highest: float
    unallocated_gpus: float
    fragments: float | None
    dropped: float
    pods: float
    curve: list[Point]


def means(results: Sequence[Filled]) -> list[Mean]:
    """In the order in which the placements were named."""
    by_place: dict[str, list[Filled]] = {}
    for result in results:
        by_place.setdefault(result.place, []).append(result)
    return [_mean_of(place, found) for place, found in by_place.items()]


def _mean_of(place: str, results: list[Filled]) -> Mean:
    percents = [result.allocated_percent for result in results]
    fragments = [result.fragment_percent for result in results if result.fragment_percent is not None]
    curves = zip(*(result.curve for result in results), strict=True)
    return Mean(
        place=place,
        seeds=len(results),
        allocated=_average(percents),
        lowest=min(percents),
        highest=max(percents),
        unallocated_gpus=_average([result.unallocated_gpus for result in results]),
        fragments=_average(fragments) if fragments else None,
        dropped=_average([result.dropped for result in results]),
        pods=_average([result.pods for result in results]),
        curve=[_mean_point(points) for points in curves],
    )


def _mean_point(points: Sequence[Point]) -> Point:
    return Point(
        points[0].demand_percent,
        _average([point.allocated_percent for point in points]),
        _average([point.fragment_percent for point in points]),
    )


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percent(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}%"


def _range(mean: Mean) -> str:
    return f"{mean.lowest:.2f} to {mean.highest:.2f}"


def _best(found: Sequence[Mean]) -> float:
    return max(round(mean.allocated, 2) for mean in found)


# The terminal -----------------------------------------------------------------------------------------------------


def fill_table(results: Sequence[Filled]) -> Table:
    """A row per placement; the one that allocates most is bold."""
    from rich import box
    from rich.table import Table

    found = means(results)
    has_seeds = any(mean.seeds > 1 for mean in found)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 1), pad_edge=False)
    table.add_column("place")
    for heading in ("allocated", *(["by seed"] if has_seeds else []), "unallocated GPUs", "fragments", "dropped pods"):
        table.add_column(heading, justify="right", no_wrap=True)
    for mean in found:
        table.add_row(
            mean.place,
            _percent(mean.allocated, 2),
            *([_range(mean)] if has_seeds else []),
            f"{mean.unallocated_gpus:,.1f}",
            _percent(mean.fragments),
            f"{mean.dropped:,.0f} of {mean.pods:,.0f}",
            style="bold" if len(found) > 1 and round(mean.allocated, 2) == _best(found) else "",
        )
    table.caption = "fragments: the part of the unallocated GPUs that typical pods cannot use"
    table.caption_justify = "left"
    return table


def curve_table(results: Sequence[Filled]) -> Table:
    """GPUs allocated, in percent, at each level of demand."""
    from rich import box
    from rich.table import Table

    found = means(results)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 1), pad_edge=False)
    table.add_column("demand", justify="right")
    for mean in found:
        table.add_column(mean.place, justify="right", no_wrap=True)
    for at in _shown(len(found[0].curve)):
        cells = [f"{mean.curve[at].allocated_percent:.1f}" for mean in found]
        table.add_row(f"{found[0].curve[at].demand_percent:.0f}%", *cells)
    table.caption = "GPUs allocated, in percent of the cluster's, by demand"
    table.caption_justify = "left"
    return table


def _shown(points: int) -> list[int]:
    """The last point, and evenly spaced others before it, except the first, where the demand is 0."""
    step = math.ceil((points - 1) / _ROWS_MOST)
    return list(range(points - 1, 0, -step))[::-1]


# The page ---------------------------------------------------------------------------------------------------------


def render_fill(
    results: Sequence[Filled], *, title: str, facts: Sequence[tuple[str, str]] = (), command: str = ""
) -> str:
    """One self-contained page."""
    found = means(results)
    data: Data = {"policies": [mean.place for mean in found], "charts": {}, "gantts": []}
    body = _masthead(found, title, facts)
    body += section("placements", "Placements", _page_table(found), note=_note(found))
    body += legend([mean.place for mean in found], what="Placements")
    body += _charts(found, data)
    body += tag("footer", "Written by skep" + (f": {tag('code', escape(clip(command, 2000)))}" if command else "."))
    return page(title, body, data)


def _masthead(found: Sequence[Mean], title: str, facts: Sequence[tuple[str, str]]) -> str:
    best = max(found, key=lambda mean: mean.allocated)
    name = tag("strong", escape(best.place))
    verdict = f"{name} leaves {best.unallocated_gpus:,.0f} GPUs unallocated."
    others = sorted((mean for mean in found if mean is not best), key=lambda mean: -mean.allocated)
    if others:
        verdict = (
            f"{name} leaves the fewest GPUs unallocated: {best.unallocated_gpus:,.0f}. The next, "
            f"{tag('strong', escape(others[0].place))}, leaves {others[0].unallocated_gpus:,.0f}."
        )
    listed = "".join(tag("div", tag("dt", what) + tag("dd", escape(value), title=value)) for what, value in facts)
    body = tag("h1", escape(title)) + tag("p", verdict, class_="verdict") + tag("dl", listed, class_="facts")
    return tag("header", body, class_="masthead")


def _note(found: Sequence[Mean]) -> str:
    seeds = f" Means of {found[0].seeds} seeds." if found[0].seeds > 1 else ""
    return "Fragments are the part of the unallocated GPUs that typical pods of the list cannot use." + seeds


def _page_table(found: Sequence[Mean]) -> str:
    has_seeds = found[0].seeds > 1
    heads = [Head("placement", is_text=True), Head("allocated", note="GPUs, in percent of the cluster's")]
    heads += [Head("by seed", note="The lowest and the highest")] if has_seeds else []
    heads += [
        Head("unallocated GPUs"),
        Head("fragments"),
        Head("dropped pods", note="They did not fit when they arrived"),
    ]
    lines = []
    for index, mean in enumerate(found):
        is_best = len(found) > 1 and round(mean.allocated, 2) == _best(found)
        cells = [TableCell(_percent(mean.allocated, 2), mean.allocated, is_best)]
        cells += [TableCell(_range(mean), mean.lowest)] if has_seeds else []
        cells += [
            TableCell(f"{mean.unallocated_gpus:,.1f}", mean.unallocated_gpus),
            TableCell(_percent(mean.fragments), mean.fragments),
            TableCell(f"{format_count(round(mean.dropped))} of {format_count(round(mean.pods))}", mean.dropped),
        ]
        lines.append(TextLine(mean.place, cells, series=index))
    return data_table(heads, lines, caption="Placements compared")


def _charts(found: Sequence[Mean], data: Data) -> str:
    start = _parted(found)
    near = "from where the placements part" if start else "of the cluster's GPUs"
    figures = [
        _chart("allocated", "Allocated GPUs", near, found, data, lambda point: point.allocated_percent, start),
        _chart("fragments", "Fragments", "of the cluster's GPUs", found, data, lambda point: point.fragment_percent, 0),
    ]
    note = "By the requested GPUs, both in percent of the cluster's."
    return section("demand", "Over demand", tag("div", "".join(figures), class_="pair"), note=note)


def _parted(found: Sequence[Mean]) -> int:
    """The last point before the curves separate; 0 if they never do, or do at once."""
    for at, points in enumerate(zip(*(mean.curve for mean in found), strict=True)):
        percents = [point.allocated_percent for point in points]
        if max(percents) - min(percents) > _APART:
            return max(at - 1, 0)
    return 0


def _chart(
    name: str,
    caption: str,
    note: str,
    found: Sequence[Mean],
    data: Data,
    value: Callable[[Point], float],
    start: int,
) -> str:
    curves = [[(point.demand_percent, value(point)) for point in mean.curve[start:]] for mean in found]
    lowest = min(y for curve in curves for _, y in curve) if start else 0.0
    y_ticks = round_ticks(lowest, max(y for curve in curves for _, y in curve))
    x_ticks = round_ticks(curves[0][0][0], curves[0][-1][0])
    x = _FRAME.across(curves[0][0][0], curves[0][-1][0])
    y = _FRAME.upward(y_ticks[0], y_ticks[-1])
    body = y_axis(_FRAME, y, y_ticks, lambda tick: f"{tick:g}%")
    body += x_axis(_FRAME, x, [tick for tick in x_ticks if x.lo <= tick <= x.hi], lambda tick: f"{tick:g}%")
    for series, curve in enumerate(curves):
        points = [(x.at(demand), y.at(percent)) for demand, percent in curve]
        body += path(line_path(points), f"line {series_class(series)}", data_p=series)
    ends = "; ".join(f"{mean.place} {curve[-1][1]:.1f}%" for mean, curve in zip(found, curves, strict=True))
    data["charts"][name] = {
        "kind": "demand",
        "x": [x.start, x.end],
        "y": [_FRAME.top, _FRAME.height - _FRAME.bottom],
        "domain": [x.lo, x.hi],
        "series": [[[round(at, 2) for at, _ in curve], [round(of, 3) for _, of in curve]] for curve in curves],
    }
    label = f"{caption} by demand, in the end: {ends}"
    return figure(escape(caption), picture(_FRAME, body, label=label, data_chart=name), note=note)


def round_ticks(lo: float, hi: float, *, most: int = 7) -> list[float]:
    """Round steps from at or below `lo` to at or above `hi`."""
    raw = max(hi - lo, 1e-6) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= raw * 0.999)
    first, last = math.floor(lo / step + 1e-9), math.ceil(hi / step - 1e-9)
    return [round(step * number, 9) for number in range(first, max(last, first + 1) + 1)]
