"""The comparison of policies as tables in the terminal: what jobs saw, and what the cluster did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from skep.metrics.run import Run
from skep.metrics.student import half_width
from skep.report.columns import FIRST_WAIT, WAITING, Column, best_of_rivals, columns_for
from skep.report.units import format_count, format_duration, format_number, format_percent

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["comparison_tables", "format_count", "format_duration", "format_number", "format_percent"]


ORACLE_MARK = " †"
ORACLE_CAPTION = "knows durations, which no real cluster does: a bound, not a rival"

OF_JOBS = ("Jobs", "JCT", "Waiting")
"""The groups of columns in the first table."""


def with_interval(values: Sequence[float | None], show: Callable[[float | None], str]) -> str:
    """Their mean, and half of its interval as a part of it."""
    known = [value for value in values if value is not None]
    if not known:
        return show(None)
    mean = sum(known) / len(known)
    half = half_width(known)
    return show(mean) + (f" ±{format_percent(half / mean)}" if half and mean else "")


def comparison_tables(runs: Sequence[Run]) -> list[Table]:
    """A row per policy, the best of each column bold."""
    return _tables([[run] for run in runs])


def means_tables(runs: Sequence[Run]) -> list[Table]:
    """A row per policy and cluster: the mean over the seeds, with its interval."""
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.summary.policy, run.summary.cluster), []).append(run)
    tables = _tables(list(cells.values()), has_clusters=len({cluster for _, cluster in cells}) > 1)
    seeds = max(len(row) for row in cells.values())
    if seeds > 1:
        interval = f"means over {seeds} seeds; ± is half of the 95% confidence interval, as a part of the mean"
        tables[1].caption = f"{interval}\n{tables[1].caption}"
    return tables


def _tables(rows: Sequence[Sequence[Run]], *, has_clusters: bool = False) -> list[Table]:
    """Two tables, because a terminal has no room for all columns in one; each row has runs of one policy."""
    runs = [run for row in rows for run in row]
    columns = [column for column in columns_for(runs) if column.brief]
    of_jobs = [column for column in columns if column.group in OF_JOBS]
    others = [column for column in columns if column not in of_jobs]
    tables = [_table(rows, part, has_clusters=has_clusters) for part in (of_jobs, others)]
    tables[0].caption = f"wait: {WAITING}\n1st: {FIRST_WAIT}"
    tables[1].caption = "\n".join(["held, busy, useful: parts of all GPU time there was", *captions(runs)])
    for table in tables:
        table.caption_justify = "left"
    return tables


def captions(runs: Sequence[Run]) -> list[str]:
    """What a reader must know about some of these runs."""
    found = [f"{ORACLE_MARK.strip()} {ORACLE_CAPTION}"] if any(run.is_oracle for run in runs) else []
    return found + [faster_note(run) for run in runs[:1] if run.summary.measured_jobs]


def faster_note(run: Run) -> str:
    """Marks runs in which shares can make jobs faster than they were."""
    jobs = format_count(run.summary.measured_jobs)
    return f"{jobs} jobs with measured_milli may run faster than recorded, where they get more of a GPU"


def _table(rows: Sequence[Sequence[Run]], columns: Sequence[Column], *, has_clusters: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    is_single = all(len(row) == 1 for row in rows) and not has_clusters
    best = [best_of_rivals([row[0] for row in rows], column) if is_single else set() for column in columns]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column("\npolicy", overflow="fold", min_width=10)
    if has_clusters:
        table.add_column("\ncluster", overflow="fold")
    for column in columns:
        heading = column.brief if "\n" in column.brief else f"\n{column.brief}"
        table.add_column(heading, justify="right", no_wrap=True)
    for index, row in enumerate(rows):
        # `Text`, not str: brackets in the name of a policy are not markup.
        cells = [
            Text(
                with_interval([column.value(run) for run in row], column.show), style="bold" if index in winners else ""
            )
            for column, winners in zip(columns, best, strict=True)
        ]
        name = row[0].summary.policy + (ORACLE_MARK if any(run.is_oracle for run in row) else "")
        table.add_row(Text(name), *([Text(row[0].summary.cluster)] if has_clusters else []), *cells)
    return table
