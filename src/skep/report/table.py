"""The comparison of policies as a table in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import stdev
from typing import TYPE_CHECKING

from skep.metrics.run import Run
from skep.report.columns import best_of, columns_for
from skep.report.units import format_count, format_duration, format_number, format_percent

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["comparison_table", "format_count", "format_duration", "format_number", "format_percent"]


ORACLE_MARK = " †"
ORACLE_CAPTION = "knows durations, which no real cluster does"


T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for a two-sided interval of 95 %, by degrees of freedom from 1 on; beyond them the normal one."""


def half_width(values: Sequence[float]) -> float:
    """Of the 95 % confidence interval of their mean; 0 for a single value."""
    count = len(values)
    if count < 2:
        return 0.0
    factor = T95[count - 2] if count - 2 < len(T95) else 1.96
    return factor * stdev(values) / math.sqrt(count)


def means_table(runs: Sequence[Run]) -> Table:
    """A row per policy and cluster: the mean over the seeds, with its interval."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.summary.policy, run.summary.cluster), []).append(run)
    has_clusters = len({cluster for _, cluster in cells}) > 1
    columns = [column for column in columns_for(runs) if column.brief]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column("\npolicy", overflow="fold", min_width=10)
    if has_clusters:
        table.add_column("\ncluster", overflow="fold")
    for column in columns:
        heading = column.brief if "\n" in column.brief else f"\n{column.brief}"
        table.add_column(heading, justify="right", no_wrap=True)
    for (policy, cluster), found in cells.items():
        name = policy + (ORACLE_MARK if any(run.is_oracle for run in found) else "")
        shown = [with_interval([column.value(run) for run in found], column.show) for column in columns]
        table.add_row(Text(name), *([Text(cluster)] if has_clusters else []), *shown)
    seeds = max(len(found) for found in cells.values())
    interval = f"means over {seeds} seeds; ± is half of the 95% confidence interval, as a part of the mean"
    oracle = f"{ORACLE_MARK.strip()} {ORACLE_CAPTION}" if any(run.is_oracle for run in runs) else ""
    table.caption = "\n".join(filter(None, [interval if seeds > 1 else "", oracle]))
    table.caption_justify = "left"
    return table


def with_interval(values: Sequence[float | None], show: Callable[[float | None], str]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return show(None)
    mean = sum(known) / len(known)
    half = half_width(known)
    return show(mean) + (f" ±{format_percent(half / mean)}" if half and mean else "")


def comparison_table(runs: Sequence[Run]) -> Table:
    """A row per policy, the best of each column bold."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns = [column for column in columns_for(runs) if column.brief]
    best = [best_of([column.value(run) for run in runs], column.better, column.show) for column in columns]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column("\npolicy", overflow="fold", min_width=10)
    for column in columns:
        heading = column.brief if "\n" in column.brief else f"\n{column.brief}"
        table.add_column(heading, justify="right", no_wrap=True)
    for index, run in enumerate(runs):
        # `Text`, not str: brackets in the name of a policy are not markup.
        cells = [
            Text(column.show(column.value(run)), style="bold" if index in winners else "")
            for column, winners in zip(columns, best, strict=True)
        ]
        table.add_row(Text(run.summary.policy + (ORACLE_MARK if run.is_oracle else "")), *cells)
    if any(run.is_oracle for run in runs):
        table.caption = f"{ORACLE_MARK.strip()} {ORACLE_CAPTION}"
        table.caption_justify = "left"
    return table
