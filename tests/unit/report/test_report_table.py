"""The comparison in the terminal."""

from __future__ import annotations

import subprocess
import sys

from report_runs import make_row, make_run, waiting_row
from rich.console import Console

from skep.metrics.run import Run
from skep.report.table import comparison_tables


def shown(runs: list[Run], *, width: int = 160) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(*comparison_tables(runs))
    return capture.get()


def test_a_row_per_policy_in_human_units() -> None:
    slow = make_run([make_row()], policy="fifo")
    quick = make_run([make_row(jct_s=1800.0, queue_s=0.0)], policy="sjf")
    lines = [line.split()[:4] for line in shown([slow, quick]).splitlines()]
    assert [line for line in lines if line and line[0] in ("fifo", "sjf")][:2] == [
        ["fifo", "1", "1", "h"],
        ["sjf", "1", "30", "min"],
    ]


def test_the_best_of_each_column_is_bold() -> None:
    slow = make_run([make_row()], policy="fifo")
    quick = make_run([make_row(jct_s=1800.0)], policy="sjf")
    table, _ = comparison_tables([slow, quick])
    average = next(column for column in table.columns if column.header == "JCT\navg")
    assert [str(cell.style) for cell in average.cells] == ["", "bold"]


def test_a_single_policy_has_nothing_bold() -> None:
    tables = comparison_tables([make_run([make_row()])])
    assert not any(cell.style for table in tables for column in table.columns for cell in column.cells)


def test_names_are_not_markup() -> None:
    assert "mine[bold]:a=[/]" in shown([make_run([make_row()], policy="mine[bold]:a=[/]")])


def test_unfinished_jobs_get_a_column_only_when_there_are_some() -> None:
    headings = [
        [column.header for column in comparison_tables([make_run(rows)])[0].columns]
        for rows in ([make_row()], [make_row(), waiting_row("job-2")])
    ]
    assert ["not\ndone" in heading for heading in headings] == [False, True]


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    long = make_run([make_row(jct_s=597.0, queue_s=591.0)], policy="tiresias-l:queues=3250+7200,place=best-fit")
    text = shown([make_run([make_row()]), long], width=80)
    assert "…" not in " ".join(text.split())
    assert "9.9 min" in " ".join(text.split())


def test_the_tables_have_the_waiting_the_three_gpu_times_and_say_which_is_meant() -> None:
    of_jobs, of_cluster = comparison_tables([make_run([make_row()])])
    assert {"wait\np50", "wait\np90", "1st\np90"} <= {column.header for column in of_jobs.columns}
    assert {"\nheld", "\nbusy", "use-\nful"} <= {column.header for column in of_cluster.columns}
    assert "wait: time without GPUs from submission to end" in str(of_jobs.caption)
    assert "1st: time from submission to the first start" in str(of_jobs.caption)


def test_a_trace_that_lets_jobs_run_faster_than_recorded_is_marked() -> None:
    text = shown([make_run([make_row()], measured_jobs=3)])
    assert "3 jobs with measured_milli may run faster than recorded" in " ".join(text.split())
    assert "faster" not in shown([make_run([make_row()])])


def test_importing_the_room_loads_nothing() -> None:
    """`rich` costs start-up time that `skep --help` should not pay."""
    code = "import sys, skep.report, skep.report.table; sys.exit('rich.table' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
