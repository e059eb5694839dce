"""`skep history` and `skep decisions`: the cluster over time, and the reasons of the policy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import (
    complete_jobs,
    complete_vcs,
    connect,
    date,
    duration,
    output_option,
    server_option,
    show,
    table_of,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

BAR = " ▏▎▍▌▋▊▉"
ROWS = 24
SERIES = ("used", "lent", "bad", "queue")


@click.command()
@click.option("--since", type=duration, default="24h", show_default=True, help="How far back: 90m, 12h, 7d.")
@click.option("--step", type=duration, help="Seconds per row.  [default: about 24 rows]")
@click.option(
    "--vc", "vc_name", default="", metavar="NAME", help="Only this virtual cluster.", shell_complete=complete_vcs
)
@output_option
@server_option
def history(since: float, step: float | None, vc_name: str, output: str, url: str) -> None:
    """Show GPUs used, lent and bad, and the jobs that waited, as means over steps of time.

    \b
    Examples:
      skep history
      skep history --since 7d
      skep history --vc research -o json
    """
    now_s = time.time()
    with connect(url) as client:

        def ask() -> dict[str, Any]:
            found = client.history(since_s=now_s - since, step_s=step or since / ROWS, by_vc=bool(vc_name))
            return of_vc(found, vc_name) if vc_name else found

        show(client, ask, draw_history, output=output, name="step_s")


def of_vc(found: dict[str, Any], name: str) -> dict[str, Any]:
    from skep.core.errors import NotFound

    vc = next((each for each in found["vcs"] if each["name"] == name), None)
    if vc is None:
        known = ", ".join(each["name"] for each in found["vcs"])
        raise NotFound(f"no VC {name} in this time", hint=f"there are {known}" if known else "`skep vc` lists them")
    empty = [None] * len(found["t"])
    return {**found, **vc, "lent": vc["borrowed"], "bad": empty, "vcs": [vc]}


def draw_history(found: dict[str, Any]) -> RenderableType:
    rows = []
    for at, start_s in enumerate(found["t"]):
        used, total = found["used"][at], found["gpus"][at]
        if used is not None:
            rows.append((date(start_s), *(amount(found[name][at]) for name in SERIES), bar(used, total)))
    if not rows:
        from rich.text import Text

        return Text("there are no samples of this time")
    return table_of(("TIME", "USED", "LENT", "BAD", "QUEUE", "USE"), rows, right=("USED", "LENT", "BAD", "QUEUE"))


def amount(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}".removesuffix(".0")


def bar(used: float, total: float | None) -> str:
    """Twenty cells, the last one in eighths."""
    share = min(used / total, 1.0) if total else 0.0
    eighths = round(share * 20 * 8)
    return "█" * (eighths // 8) + BAR[eighths % 8].strip()


@click.command()
@click.argument("job", required=False, default="", metavar="[JOB]", shell_complete=complete_jobs)
@click.option(
    "-n", "--last", type=click.IntRange(1, 1000), default=30, show_default=True, help="The number of decisions."
)
@output_option
@server_option
def decisions(job: str, last: int, output: str, url: str) -> None:
    """Print what the policy decided and why, the newest first: starts, preemptions, moves, resizes, rejections.

    \b
    Examples:
      skep decisions
      skep decisions 17
      skep decisions -n 200 -o json
    """
    with connect(url) as client:
        ask = lambda: client.decisions(last, job=job)["decisions"]  # noqa: E731
        show(client, ask, draw_decisions, output=output, name="job")


def draw_decisions(found: list[dict[str, Any]]) -> RenderableType:
    if not found:
        from rich.text import Text

        return Text("nothing was decided yet")
    rows = [
        (
            date(each["at_s"]),
            each["job"],
            each["name"],
            each["kind"],
            each["reason"],
            "; ".join(each["because"]),
        )
        for each in found
    ]
    return table_of(("TIME", "JOB", "NAME", "WHAT", "WHY", "AFTER"), rows)
