"""The results of a study as rows: of its files, of frames, and of the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skep.experiments.output import cell
from skep.experiments.study.analyse import Side
from skep.experiments.study.choose import GROUPS
from skep.experiments.study.outcome import MEASURES
from skep.experiments.study.study import Study
from skep.experiments.study.words import NAMES, advice_text
from skep.files.text import write_aside
from skep.policies.registry import shown_needs
from skep.report.columns import Column
from skep.report.table import ORACLE_CAPTION, ORACLE_MARK
from skep.report.units import format_number

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, object]
BRIEF = (
    *("jct_avg_s", "jct_p99_s", "first_wait_avg_s", "queue_avg_s", "slowdown_avg", "makespan_s", "utilization", "busy"),
    *("fre", "ftf_avg", "jain", "deadline_misses", "preemptions", "resizes"),
)
"""The columns in the terminal."""
HEADS = {
    "jct_avg_s": "JCT\navg",
    "jct_p99_s": "JCT\np99",
    "first_wait_avg_s": "1st\nwait",
    "queue_avg_s": "all\nwait",
    "slowdown_avg": "slow-\ndown",
    "makespan_s": "make-\nspan",
    "utilization": "\nheld",
    "busy": "\nbusy",
    "fre": "use-\nful",
    "ftf_avg": "\nρ",
    "jain": "\nJain",
    "deadline_misses": "\nlate",
    "preemptions": "pre-\nempted",
    "resizes": "re-\nsized",
}


def run_rows(study: Study) -> list[Row]:
    """One for each run."""
    return [
        {"policy": each.policy, "cluster": each.cluster, "repetition": each.repetition, "oracle": each.oracle}
        | {key: each.values.get(key) for key in MEASURES}
        for each in study.outcomes
        if not each.error
    ]


def summary_rows(study: Study) -> list[Row]:
    """One for each policy and cluster: the value of each measure, and the ends of its interval."""
    rows = []
    for side in study.sides:
        row: Row = {
            "policy": side.policy,
            "cluster": side.cluster,
            "assumes": shown_needs(side.needs),
            "oracle": side.oracle,
        }
        for key in MEASURES:
            found = side.interval(key)
            for name, end in ((key, "value"), (f"{key}_low", "low"), (f"{key}_high", "high")):
                row[name] = None if found is None else round(getattr(found, end), 6)
        rows.append(row)
    return rows


def tested_rows(study: Study) -> list[Row]:
    """Every policy that could be used against the best one on its cluster."""
    return [
        {
            "cluster": found.cluster,
            "measure": found.measure.key,
            "best": found.best.policy,
            "policy": rival.side.policy,
            "effect": round(rival.test.effect, 6),
            "low": round(rival.test.low, 6),
            "high": round(rival.test.high, 6),
            "p": float(f"{rival.chance:.4g}"),
            "is_worse": rival.is_worse,
        }
        for found in study.recommendations
        if found.best is not None
        for rival in found.rivals
    ]


def timing_rows(study: Study) -> list[Row]:
    """Measured times, which differ from one machine and moment to the next."""
    return [
        {
            "policy": each.policy,
            "cluster": each.cluster,
            "repetition": each.repetition,
            "decision_ms": round(each.decision_ms, 4),
        }
        for each in study.outcomes
        if not each.error
    ]


def decision_ms(side: Side) -> float:
    return sum(each.decision_ms for each in side.outcomes) / len(side.outcomes)


def csv_of(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def write_study(study: Study, folder: Path) -> None:
    """Beside the journal. All but timings.csv are the same bytes whenever the same study is made."""
    write_aside(folder / "runs.csv", csv_of(run_rows(study)))
    write_aside(folder / "summary.csv", csv_of(summary_rows(study)))
    write_aside(folder / "tests.csv", csv_of(tested_rows(study)))
    write_aside(folder / "timings.csv", csv_of(timing_rows(study)))
    write_aside(folder / "recommendation.txt", advice_text(study))


def measures_of(sides: Sequence[Side]) -> list[Column]:
    """Without those that are zero for all."""
    return [column for key, column in MEASURES.items() if not column.is_rare or any(side.value(key) for side in sides)]


def study_table(study: Study, cluster: str) -> Table:
    """A row per policy, below what it assumes; the recommended one is bold."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    sides = study.on(cluster)
    found = next(each for each in study.recommendations if each.cluster == cluster)
    columns = [column for column in measures_of(sides) if column.key in BRIEF]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, title=f"{study.trace.name} on {cluster}")
    table.title_justify = table.caption_justify = "left"
    table.add_column("\npolicy, by what it assumes", overflow="fold", min_width=16)
    table.add_column(f"{NAMES[found.measure.key]}\n95% interval", justify="right", no_wrap=True)
    for column in columns:
        table.add_column(HEADS[column.key], justify="right", no_wrap=True)
    table.add_column("deci-\nsion", justify="right", no_wrap=True)
    for group in GROUPS:
        members = [side for side in sides if side.group == group]
        if members:
            table.add_row(Text(group, style="dim italic"))
        for side in members:
            style = "bold" if found.choice is side and not side.oracle else ""
            name = f"  {side.policy}{ORACLE_MARK if side.oracle else ''}"
            cells = [Text(column.show(side.value(column.key)), style=style) for column in columns]
            table.add_row(
                Text(name, style=style),
                Text(range_of(side, found.measure)),
                *cells,
                Text(f"{format_number(decision_ms(side))} ms"),
            )
    table.caption = "\n".join(
        [
            study.method,
            *([f"{ORACLE_MARK.strip()} {ORACLE_CAPTION}"] if any(side.oracle for side in sides) else []),
        ]
    )
    return table


def range_of(side: Side, column: Column) -> str:
    """The ends of its interval."""
    found = side.interval(column.key)
    if found is None or found.low == found.high:
        return ""
    return f"{column.show(max(found.low, 0.0))} - {column.show(found.high)}"
