"""The comparison of policies as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skep.metrics.run import Run
from skep.report.columns import best_of, columns_for
from skep.report.units import format_count, format_duration, format_number, format_percent

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["comparison_table", "format_count", "format_duration", "format_number", "format_percent"]


ORACLE_MARK = " †"
ORACLE_CAPTION = "knows durations, which no real cluster does"


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
