"""`skep fork`: when will the jobs of a server start and end?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import complete_policies, date, duration, many, output_option, present, say, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skep.experiments.fork import Forecast

COLUMNS = ("JOB", "NAME", "USER", "VC", "GPUS", "STATE", "START", "END", "ESTIMATE", "NOTE")


@click.command()
@click.argument("source", metavar="[DATA|FILE]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--policy",
    default="",
    metavar="P",
    help="Simulate with this policy instead.  [default: the one in use]",
    shell_complete=complete_policies,
)
@click.option("--until", type=duration, metavar="TIME", help="How far ahead: 90m, 12h, 7d.  [default: to the end]")
@click.option("--restart-s", type=click.FloatRange(0), default=30.0, show_default=True, help="Cost of a restart.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write jobs.csv and summary.json.")
@output_option
def fork(
    source: Path | None, policy: str, until: float | None, restart_s: float, out: Path | None, output: str
) -> None:
    """Predict when the jobs of a server start and end, by simulating onwards from its present state.

    DATA is the data folder of a server, running or not (default: ~/.local/share/skep), FILE a backup of one. Its store
    is copied and nothing in it is changed; a running server does not notice. The simulation begins now if the server
    runs, else at the last event in the store.

    How long a job takes follows from the steps or epochs that it has reported; else it is what its owner expects
    (expect_s, --expect), else the mean of finished jobs of the same user and size, of the user, of the size, or of all.
    A job without any of these is assumed to run forever. A running job continues at its measured speed; elsewhere jobs
    run as fast as jobs of the same model reported, else in proportion to their GPUs. Future submissions, node failures
    and the limits of users are not simulated.

    \b
    Examples:
      skep fork
      skep fork data --policy srtf
      skep fork /backups/skep-monday.db --until 12h -o json
    """
    import math

    from skep.experiments.fork import forecast, write_forecast
    from skep.experiments.output import check_out
    from skep.files.running import default_data, is_locked
    from skep.service.copy import read_copy

    if out is not None:
        check_out(out, force=None)
    where = (source or default_data()).expanduser()
    kept = read_copy(where)
    now_s = time.time() if is_locked(where) else 0.0
    within_s = math.inf if until is None else until
    found = forecast(kept, policy=policy, now_s=now_s, within_s=within_s, restart_s=restart_s)
    if out is not None:
        write_forecast(found, out)
    present(lambda: rows_of(found), draw, output)
    say(facts(found))


def rows_of(found: Forecast) -> list[dict[str, Any]]:
    import msgspec

    return [msgspec.to_builtins(job) for job in found.jobs]


def draw(rows: list[dict[str, Any]]) -> RenderableType:
    cells = [
        (
            *(row[name] for name in ("id", "name", "user", "vc")),
            f"{row['gpus']:g}",
            row["state"],
            date(row["start_s"]),
            date(row["end_s"]),
            row["estimate"],
            row["note"],
        )
        for row in rows
    ]
    return table_of(COLUMNS, cells, right=("GPUS",))


def facts(found: Forecast) -> str:
    """A description of the table, and how reliable it is."""
    said = f"from {date(found.at_s)} under {found.policy}: {many(len(found.jobs), 'open job')}"
    if found.unknown:
        said += f", {found.unknown:,} without an estimate (no expect_s, or it has passed; no finished job took longer)"
    return said
