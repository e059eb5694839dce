"""`skep studies`: comparisons that the server runs, on a trace or on its own history."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import complete_policies, connect, date, output_option, server_option, show, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType

UNDER_WAY = ("queued", "running")
LOOK_S = 0.5


@click.group(invoke_without_command=True)
@output_option
@server_option
@click.pass_context
def studies(ctx: click.Context, output: str, url: str) -> None:
    """List the studies of the server, or run one: several policies on one trace, in the background.

    \b
    Examples:
      skep studies
      skep studies run --policy fifo --policy srtf                   # on the jobs this server has run
      skep studies run trace.csv --cluster 16x8 --policy fifo --policy las
      skep studies report 1f0c9a2e --html report.html
    """
    if ctx.invoked_subcommand is None:
        with connect(url) as client:
            show(client, client.studies, draw, output=output)


@studies.command()
@click.argument("trace", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="P",
    help="May be repeated.  [with --seeds, default: all that the trace can serve]",
    shell_complete=complete_policies,
)
@click.option("--cluster", default="", metavar="SPEC", help="Such as 16x8.  [default: the cluster of the server]")
@click.option("--name", default="", help="Its name.")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--seeds", "repetitions", default=0, metavar="N", help="Run on N bootstraps of the trace, as `skep study` does."
)
@click.option(
    "--estimate-error", default=0.0, metavar="E", help="Error of the durations that policies see.  [default: 0]"
)
@click.option("-d", "--detach", is_flag=True, help="Do not wait for it.")
@server_option
def run(trace: Path | None, policies: tuple[str, ...], detach: bool, url: str, **fields: Any) -> None:
    """Compare policies on TRACE, or without one on the jobs that this server has run."""
    from skep.core.errors import SkepError

    with connect(url) as client:
        source = client.upload_trace(trace)["id"] if trace is not None else "history"
        study = client.start_study(policies, trace=source, **fields)
        while not detach and study["state"] in UNDER_WAY:
            time.sleep(LOOK_S)
            study = client.study(study["id"])
    click.echo(f"{study['id']} {study['state']}")
    if study["state"] == "failed":
        raise SkepError(study["error"])


@studies.command()
@click.argument("study")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write it here.  [default: STUDY.html]")
@server_option
def report(study: str, html: Path | None, url: str) -> None:
    """Write the report of STUDY to a file."""
    from skep.files.text import write_aside

    with connect(url) as client:
        text = client.study_report(study)
    target = html or Path(f"{study}.html")
    write_aside(target, text)
    click.echo(f"report: {target}")


@studies.command()
@click.argument("study")
@server_option
def cancel(study: str, url: str) -> None:
    """Stop STUDY."""
    with connect(url) as client:
        click.echo(f"{study} {client.cancel_study(study)['state']}")


@studies.command()
@click.argument("study")
@server_option
def remove(study: str, url: str) -> None:
    """Remove STUDY and its report; one that runs is stopped."""
    with connect(url) as client:
        client.remove_study(study)
    click.echo(f"{study} removed")


def draw(found: list[dict[str, Any]]) -> RenderableType:
    if not found:
        from rich.text import Text

        return Text("no studies")
    rows = [
        (
            *(each["id"], each["name"], each["user"], each["state"]),
            f"{each['progress']:.0%}",
            date(each["created_s"]),
            ", ".join(each["policies"]),
        )
        for each in found
    ]
    return table_of(("ID", "NAME", "USER", "STATE", "DONE", "CREATED", "POLICIES"), rows, right=("DONE",))
