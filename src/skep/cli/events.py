"""`skep events` and `skep usage`: what happened, and who used what."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import complete_jobs, connect, date, duration, output_option, server_option, show, table_of
from skep.cli.plain import clean, escape_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skep.client import Client

SHOWN = 50


@click.command()
@click.argument("job", required=False, default="", metavar="[JOB]", shell_complete=complete_jobs)
@click.option("-f", "--follow", is_flag=True, help="Continue with new events.")
@click.option(
    "-n", "--last", type=click.IntRange(0, 10_000), default=SHOWN, show_default=True, help="The number of last events."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="json: one object per line."
)
@server_option
def events(job: str, follow: bool, last: int, output: str, url: str) -> None:
    """Print what happened, in order: submissions, starts, exits, preemptions, changes by whom.

    \b
    Examples:
      skep events
      skep events 17 --last 5
      skep events -f -o json | jq .kind
    """
    with connect(url) as client:
        job_id = client.job(job)["id"] if job else ""
        past = client.last_events(max(last, 1), job_id)  # at least one, to continue after it
        for event in past if last else []:
            print_event(event, output)
        if follow:
            follow_events(client, job_id, past[-1]["seq"] if past else None, output)


def follow_events(client: Client, job_id: str, after: int | None, output: str) -> None:
    try:
        for event in client.follow_events(after, job_id):
            print_event(event, output)
    except KeyboardInterrupt:
        click.get_current_context().exit(130)


def print_event(event: dict[str, Any], output: str) -> None:
    if output == "json":
        import json

        click.echo(escape_json(json.dumps(event, ensure_ascii=False)))
        return
    who = f"  ({clean(event['who'])})" if event.get("who") else ""
    job = clean(" ".join(filter(None, [event.get("job_id"), event.get("name")])))
    text = clean(str(event.get("text") or ""))
    click.echo(f"{date(event['at_s'])}  {clean(event['kind']):<18} {job:<24} {text}{who}")


@click.command()
@click.option(
    "--by", type=click.Choice(["user", "vc", "job"]), default="user", show_default=True, help="A row for each."
)
@click.option("--since", type=duration, metavar="TIME", help="Only the last 12h, 7d, …  [default: everything]")
@click.option("--until", type=duration, metavar="TIME", help="Leave out the last 1d, …")
@click.option("--limits", is_flag=True, help="Limits of users and virtual clusters, and their use.")
@output_option
@server_option
def usage(by: str, since: float | None, until: float | None, limits: bool, output: str, url: str) -> None:
    """GPU-hours held, by user, virtual cluster or job.

    \b
    Examples:
      skep usage --since 7d
      skep usage --by vc --since 30d -o json
      skep usage --limits
    """
    now_s = time.time()
    since_s, until_s = (None if ago is None else now_s - ago for ago in (since, until))
    with connect(url) as client:
        if limits:
            show(client, client.limits, draw_limits, output=output, name="name")
            return
        show(client, lambda: client.usage(by, since_s=since_s, until_s=until_s), draw_usage, output=output, name=by)


def draw_limits(rows: list[dict[str, Any]]) -> RenderableType:
    """Only limits that are set; limits of one task have no use to show."""
    found = [
        (f"{row['kind']} {row['name'] or 'anonymous'}", limit, amount(row["used"].get(limit)), amount(most))
        for row in rows
        for limit, most in row["limits"].items()
        if most is not None
    ]
    return table_of(("WHOSE", "LIMIT", "USED", "AT MOST"), found, right=("USED", "AT MOST"))


def amount(value: float | None) -> str:
    return "" if value is None else f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def draw_usage(rows: list[dict[str, Any]]) -> RenderableType:
    """The largest first."""
    by = next((key for key in ("user", "vc", "job") if rows and key in rows[0]), "user")
    total = sum(row["gpu_hours"] for row in rows)
    found = [
        (row[by], row.get("jobs", ""), f"{row['gpu_hours']:,.2f}", f"{row['gpu_hours'] / total:.1%}" if total else "")
        for row in sorted(rows, key=lambda row: -row["gpu_hours"])
    ]
    return table_of((by.upper(), "JOBS", "GPU-HOURS", "SHARE"), found, right=("JOBS", "GPU-HOURS", "SHARE"))
