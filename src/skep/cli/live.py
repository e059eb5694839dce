"""The common part of all commands that use a server: finding it, naming jobs, printing answers."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skep.cli.plain import clean, clean_lines, escape_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from skep.client import Client

Command = TypeVar("Command", bound=Callable[..., Any])

WATCH_S = 2.0
PIPE_WIDTH = 1000
COLOURS = {
    **{"running": "green", "succeeded": "blue", "failed": "red", "stopped": "magenta", "pending": "yellow"},
    **{"launching": "cyan", "suspended": "cyan", "stopping": "cyan", "up": "green", "drained": "yellow", "lost": "red"},
}
PROGRESS_KEYS = ("step", "steps", "checkpoint_step", "left", "done", "at_s")
"""The keys that every job reports, besides its own series."""
UNITS_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def duration(text: str) -> float:
    """An option's type: `90`, `90s`, `15m`, `2h`, `1.5d` → seconds."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?([a-z]*)", text.strip())
    if found is None or found[2] not in UNITS_S:
        raise click.BadParameter(f"'{text}' is not a duration; expected something like 90s, 15m, 2h or 7d")
    return float(found[1]) * UNITS_S[found[2]]


def priority_number(text: str) -> int:
    """An option's type: a number or its name."""
    from skep.core.model import PRIORITIES

    if text in PRIORITIES:
        return PRIORITIES[text]
    try:
        return int(text)
    except ValueError:
        names = ", ".join(PRIORITIES)
        raise click.BadParameter(f"'{text}' is not a priority; expected a number or one of {names}") from None


def complete_with(ask: Callable[[Client], Iterable[str]]) -> Callable[..., list[str]]:
    """For shell completion: names that a server knows. Silent without a server."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from skep.core.errors import SkepError

        try:
            with connect(ctx.params.get("url") or "") as client:
                return [name for name in ask(client) if name.startswith(incomplete)]
        except SkepError:
            return []

    return complete


def references(*, has_ended: bool) -> Callable[[Client], Iterable[str]]:
    """By what the latest jobs can be called: their ids and their names."""

    def ask(client: Client) -> Iterable[str]:
        jobs = client.page(all="true" if has_ended else "")[0]
        return dict.fromkeys([*(job["id"] for job in jobs), *(job["name"] for job in jobs)])

    return ask


complete_jobs = complete_with(references(has_ended=True))
complete_open_jobs = complete_with(references(has_ended=False))
complete_nodes = complete_with(lambda client: (node["name"] for node in client.nodes()))
complete_vcs = complete_with(lambda client: (vc["name"] for vc in client.vcs()))


def complete_policies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from skep.policies.registry import policies

    return [name for name in policies() if name.startswith(incomplete)]


def server_option(command: Command) -> Command:
    text = "Address of the server.  [default: SKEP_URL or http://127.0.0.1:7437]"
    return click.option("--url", default="", metavar="URL", help=text)(command)


def output_option(command: Command) -> Command:
    formats = click.Choice(["table", "json", "yaml", "name"])
    return click.option("-o", "--output", type=formats, default="table", help="How to print it.  [default: table]")(
        command
    )


def watch_option(command: Command) -> Command:
    return click.option("-w", "--watch", is_flag=True, help=f"Refresh every {WATCH_S:g} s.")(command)


def job_argument(command: Command) -> Command:
    return click.argument("job", metavar="JOB", shell_complete=complete_jobs)(command)


INHERITED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")
"""The variables that decide which programs are found: a command should mean the same in the job as in this shell."""


def inherited() -> dict[str, str]:
    import os

    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def default_vc(url: str) -> str:
    """The VC of the profile, if the profile is for this server."""
    from skep.client.profile import find_url, read_profile

    profile = read_profile()
    return profile.vc if profile.vc and find_url(url) == profile.url else ""


def connect(url: str) -> Client:
    from skep.client import Client

    return Client(url)


def say(text: str) -> None:
    """Messages go to stderr: stdout is for data."""
    print(clean_lines(text), file=sys.stderr, flush=True)


def print_data(data: Any, output: str, name: str = "id") -> None:
    """As JSON, as YAML, or names alone, one per line."""
    if output == "json":
        import json

        click.echo(escape_json(json.dumps(data, indent=2, ensure_ascii=False)))
    elif output == "yaml":
        import yaml

        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        if not text.replace("\n", "").isprintable():  # with everything beyond ASCII escaped it means the same
            text = yaml.safe_dump(data, sort_keys=False)
        click.echo(text, nl=False)
    else:
        for row in data if isinstance(data, list) else [data]:
            click.echo(clean(str(row[name])))


def present(ask: Callable[[], Any], draw: Callable[[Any], RenderableType], output: str, name: str = "id") -> None:
    """Request once, then draw or print."""
    data = ask()
    if output == "table":
        console().print(draw(data), soft_wrap=False)
    else:
        print_data(data, output, name)


def watch(ask: Callable[[], Any], draw: Callable[[Any], RenderableType], client: Client) -> None:
    """Repeat until Ctrl-C; wait for a server that restarts."""
    from rich.live import Live

    screen = console()
    found = draw(ask())
    try:
        if not sys.stdout.isatty():  # one below the other, for a file or another program
            while True:
                screen.print(found)
                sys.stdout.flush()
                time.sleep(WATCH_S)
                found = draw(client.patiently(ask))
        with Live(found, console=screen, screen=True, auto_refresh=False) as shown:
            while True:
                shown.refresh()
                time.sleep(WATCH_S)
                shown.update(draw(client.patiently(ask)))
    except KeyboardInterrupt:
        return


def check_watch(is_watched: bool, output: str) -> None:
    if is_watched and output != "table":
        raise click.UsageError("--watch draws a table; it cannot be combined with -o")


def show(
    client: Client,
    ask: Callable[[], Any],
    draw: Callable[[Any], RenderableType],
    *,
    output: str,
    is_watched: bool = False,
    name: str = "id",
) -> None:
    check_watch(is_watched, output)
    if is_watched:
        watch(ask, draw, client)
    else:
        present(ask, draw, output, name)


def console() -> Console:
    from rich.console import Console

    # A file or a pipe has no width: nothing must be broken or cut there.
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> Table:
    """Plain columns, which other tools can cut. On a narrow screen the widest columns are shortened, not the first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        # Only columns that may wrap are narrowed, widest first; their cells are still cut.
        table.add_column(
            Text(column, no_wrap=True),
            justify="right" if column in right else "left",
            overflow="ellipsis",
            no_wrap=column == columns[0],
        )
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    return table


def cell(value: object) -> Any:
    """`Text`, not str: brackets in a name are not markup, and control characters do not reach the terminal."""
    from rich.text import Text

    text = clean("" if value is None else str(value))
    return Text(text, style=COLOURS.get(text.split(" ", 1)[0], ""), no_wrap=True)


def progress_of(values: dict[str, Any]) -> str:
    """`step 115 of 500, loss 0.0086, 19.9 samples/s`, then other reported numbers."""
    numbers = {name: value for name, value in values.items() if isinstance(value, (int, float)) and value is not True}
    said = []
    if "step" in numbers:
        said.append(f"step {numbers['step']:,}" + (f" of {numbers['steps']:,}" if numbers.get("steps") else ""))
    rates = {"steps_per_s": "steps/s", "samples_per_s": "samples/s"}
    own = [name for name in numbers if name not in (*PROGRESS_KEYS, *rates)]
    said += [f"{name} {numbers[name]:.4g}" for name in own]
    said += [f"{numbers[name]:.3g} {unit}" for name, unit in rates.items() if name in numbers]
    if numbers.get("checkpoint_step"):
        said.append(f"checkpoint at step {numbers['checkpoint_step']:,}")
    return ", ".join(said)


def last_words(job: dict[str, Any]) -> str:
    """Why a job has ended: how it failed; else its reason, or the exit code of its last attempt."""
    history = [each for each in job.get("history") or [] if each.get("code") is not None]
    # If tasks start one by one the reason is that of a task which was stopped because another had failed.
    failures = [each for each in history if job["state"] == "failed" and each.get("outcome") == "failed"]
    reason = clean(str(job.get("reason") or ""))
    if job["state"] == "succeeded" or not history or (reason and not failures):
        return reason
    last = (failures or history)[-1]
    told = [f"exit code {last['code']}" if last["code"] >= 0 else "", last["phrase"], last["advice"]]
    return clean("; ".join(part for part in told if part and part != job["state"]))


def clock(seconds: float | None) -> str:
    """As in squeue: 4:07, 1:23:45, 2-03:00:00."""
    if seconds is None:
        return ""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def date(at_s: float | None) -> str:
    """Local time; the day is left out when it is today."""
    if at_s is None:
        return ""
    then = time.localtime(at_s)
    is_today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", then)


def many(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
