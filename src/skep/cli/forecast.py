"""`skep forecast`: when jobs will start and end, and how often such forecasts have held."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from skep.cli.eta import SOURCES, age, span
from skep.cli.live import complete_vcs, connect, date, many, output_option, present, say, server_option, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = ("ID", "NAME", "USER", "VC", "STATE", "GPUS", "START", "END", "LENGTH")
JUDGED = ("WHAT", "LENGTHS FROM", "FORECASTS", "HELD", "MEDIAN ERROR")


@click.command()
@click.option("--vc", default="", help="Only this virtual cluster.", shell_complete=complete_vcs)
@click.option("--mine", is_flag=True, help="Only your jobs.")
@click.option("--calibration", is_flag=True, help="How often earlier forecasts held, by the source of lengths.")
@output_option
@server_option
def forecast(vc: str, mine: bool, calibration: bool, output: str, url: str) -> None:
    """Show when the open jobs will start and end: medians, and in brackets what holds in four of five cases.

    The server simulates onwards from its present state with the policy in use, many times, up to 24 hours ahead. LENGTH
    is where the length of a job comes from: its reported progress, its owner's estimate (--expect) corrected by how
    wrong earlier ones were, similar jobs that have ended, or nothing (poorly known).

    Jobs that will be submitted later, node failures and the limits of users are not simulated: on a busy cluster jobs
    may start later than this. --calibration shows how often forecasts have held here so far; 80 % is right.

    \b
    Examples:
      skep forecast
      skep forecast --mine -o json
      skep forecast --calibration
    """
    with connect(url) as client:
        made = client.forecast()
        if calibration:
            present(lambda: made["judged"], draw_judged, output, name="what")
        else:
            where = {"vc": vc, "mine": "true" if mine else ""}
            jobs = [job for job in client.jobs(**where) if job["eta"]]
            present(lambda: jobs[::-1], draw, output)
    now_s = time.time()
    say(
        f"made {date(made['made_s'])} ({age(made, now_s)}) under {made['policy']} from "
        f"{many(made['samples'], 'sample')} in {made['cpu_s']:.1f} s of CPU time; no job is submitted in it"
    )


def draw(jobs: list[dict[str, Any]]) -> RenderableType:
    now_s = time.time()
    return table_of(COLUMNS, (row(job, now_s) for job in jobs), right=("GPUS",))


def row(job: dict[str, Any], now_s: float) -> tuple[object, ...]:
    eta = job["eta"]
    start = span(eta["start"], eta, now_s) if eta["start"] else ""
    told = (job[key] for key in ("id", "name", "user", "vc", "state"))
    return (*told, f"{job['gpus']:g}", start, span(eta["end"], eta, now_s), SOURCES[eta["lengths"]])


def draw_judged(judged: list[dict[str, Any]]) -> RenderableType:
    rows = [
        (
            each["what"],
            each["lengths"],
            each["count"],
            f"{each['held'] / each['count']:.0%}",
            "" if each["error"] is None else f"{each['error']:.0%}",
        )
        for each in judged
    ]
    return table_of(JUDGED, rows, right=JUDGED[2:])
