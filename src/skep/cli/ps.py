"""`skep ps`: the queue, with the columns of squeue."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from skep.cli.eta import eta_cell, made_ago
from skep.cli.live import (
    check_watch,
    clock,
    complete_vcs,
    connect,
    console,
    output_option,
    print_data,
    progress_of,
    say,
    server_option,
    table_of,
    watch_option,
)
from skep.cli.plain import clean
from skep.cli.say import warn

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skep.client import Client, Job

STATES = ("pending", "launching", "running", "suspended", "stopping", "succeeded", "failed", "stopped")
COLUMNS: tuple[str, ...] = ("ID", "NAME", "USER", "VC", "STATE", "GPUS", "PRIORITY", "TIME", "NODES(REASON)")
PAGE = 100
MOST = 1_000_000


@click.command()
@click.option("-a", "--all", "is_all", is_flag=True, help="Also jobs that have ended.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only this state; may be repeated.")
@click.option("--vc", default="", help="Only this virtual cluster.", shell_complete=complete_vcs)
@click.option("-u", "--user", default="", help="Only jobs of this user.")
@click.option("--mine", is_flag=True, help="Only your jobs.")
@click.option("--group", default="", help="Only this job group (a sweep).")
@click.option("--tag", default="", help="Only jobs with this tag.")
@click.option("--name", default="", help="Only jobs of this name.")
@click.option("-n", "--limit", type=click.IntRange(1, MOST), help=f"The most jobs to list.  [default: {PAGE}]")
@output_option
@watch_option
@server_option
def ps(output: str, watch: bool, url: str, is_all: bool, mine: bool, limit: int | None, **where: Any) -> None:
    """List the jobs that have not ended, the newest first; stderr names the server that was asked.

    TIME is how long a job has run, all its attempts together. -o json and -o yaml print
    whole objects, -o name the ids alone, all of them unless --limit is given.
    FORECAST, if there is one, is the next start of a job that waits and the end of one that
    runs: the median, and in brackets what holds in four of five cases (`skep forecast`).

    \b
    Examples:
      skep ps
      skep ps --all --mine
      skep ps --state pending --vc research
      skep ps --group sweep-1 -o name | xargs skep stop
    """
    from skep.cli.live import watch as keep_showing

    check_watch(watch, output)
    if mine and where["user"]:
        raise click.UsageError("--mine and --user exclude each other")
    flags = {"all": "true" if is_all else "", "mine": "true" if mine else ""}
    where = {"state": where.pop("states"), **flags, **where}
    with connect(url) as client:
        most = limit or (PAGE if output == "table" else MOST)
        if watch:
            keep_showing(lambda: fetch(client, where, most), lambda found: captioned(draw(found), client.url), client)
        elif output == "table":
            found = fetch(client, where, most)
            console().print(draw(found))
            say(f"server: {client.url}{made_ago(found[0], time.time())}")
            for problem in client.problems:
                warn(clean(problem))
        else:
            print_data(fetch(client, where, most)[0], output)


def fetch(client: Client, where: dict[str, Any], most: int) -> tuple[list[Job], bool]:
    """All pages that are needed, and whether there are more."""
    jobs: list[Job] = []
    cursor = ""
    while True:
        found, cursor = client.page(limit=min(most - len(jobs), PAGE * 10), cursor=cursor, **where)
        jobs += found
        if not cursor or len(jobs) >= most:
            return jobs, bool(cursor)


def captioned(drawn: RenderableType, url: str) -> RenderableType:
    """With the server's address below it on a terminal; another program gets the table alone."""
    from rich.console import Group
    from rich.text import Text

    return Group(drawn, Text(f"server: {url}", style="dim")) if sys.stdout.isatty() else drawn


def draw(found: tuple[list[Job], bool]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    jobs, has_more = found
    if not jobs:
        return Text("no jobs")
    now_s = time.time()
    foreseen = [eta_cell(job, now_s) for job in jobs]
    columns, rows = COLUMNS, [row(job) for job in jobs]
    if any(foreseen):  # before the last column, which is the widest
        columns = (*COLUMNS[:-1], "FORECAST", COLUMNS[-1])
        rows = [(*cells[:-1], said, cells[-1]) for cells, said in zip(rows, foreseen, strict=True)]
    table = table_of(columns, rows, right=("GPUS", "PRIORITY", "TIME"))
    if not has_more:
        return table
    return Group(table, Text(f"… more: --limit {len(jobs) * 10} shows them, filters reduce them", style="dim"))


def row(job: Job) -> tuple[object, ...]:
    from skep.core.model import PRIORITIES

    names = {number: name for name, number in PRIORITIES.items()}
    priority = names.get(job["priority"], job["priority"])
    gpus = f"{job['gpus']:g}"
    told = (job[key] for key in ("id", "name", "user", "vc", "state"))
    return (*told, gpus, priority, clock(job["ran_s"]), where_of(job))


def where_of(job: Job) -> str:
    """The nodes of a job; if it has none, the reason in brackets."""
    if job["state"] in ("running", "launching", "suspended", "stopping") and job.get("nodes"):
        progress = progress_of(job.get("progress") or {}) if job["state"] == "running" else ""
        return ",".join(job["nodes"]) + (f": {progress}" if progress else "")
    return f"({job['reason']})" if job.get("reason") else ""
