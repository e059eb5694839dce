"""`skep search`: trials of one job, and which of them is the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import connect, output_option, present, print_data, say, server_option, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = ("NAME", "USER", "STATE", "RULE", "ENDED", "PAUSED", "GPU-HOURS", "BEST")


@click.group()
def search() -> None:
    """Look at searches: trials of one job, of which a rule lets the best run on.

    A job file with `search` submits one (`skep submit`); the guide "Search" shows how.

    \b
    Examples:
      skep search ls
      skep search show tune
      skep search best tune
    """


@search.command("ls")
@output_option
@server_option
def list_(output: str, url: str) -> None:
    """List the searches, the latest first.

    \b
    Examples:
      skep search ls
    """
    with connect(url) as client:
        present(client.searches, draw_searches, output, "name")


@search.command("show")
@click.argument("name")
@output_option
@server_option
def show_(name: str, output: str, url: str) -> None:
    """Show the trials of search NAME, the best first, and why each was paused or stopped.

    \b
    Examples:
      skep search show tune
      skep search show tune -o json
    """
    with connect(url) as client:
        present(lambda: client.search(name), draw_search, output, "name")


@search.command()
@click.argument("name")
@output_option
@server_option
def best(name: str, output: str, url: str) -> None:
    """Print the best trial of search NAME so far, with its parameters.

    \b
    Examples:
      skep search best tune
      skep search best tune -o json
    """
    from skep.core.errors import NotFound

    with connect(url) as client:
        found = client.search(name)
    trial = next((each for each in found["trials"] if each["is_best"]), None)
    if trial is None:
        problem = f"no trial of search {name} has reported {found['metric']}"
        raise NotFound(problem, hint=f"`skep search show {name}` lists them")
    if output != "table":
        print_data(trial, output)
        return
    chosen = " ".join(f"{key}={value}" for key, value in trial["parameters"].items())
    click.echo(f"job {trial['id']}: {found['metric']} {shown(trial['value'])} at step {shown(trial['step'])}, {chosen}")


@search.command()
@click.argument("name")
@server_option
def stop(name: str, url: str) -> None:
    """End search NAME: trials that have not ended are stopped. Their checkpoints stay.

    \b
    Examples:
      skep search stop tune
    """
    with connect(url) as client:
        client.stop_search(name)
    say(f"search {name} was stopped")


def draw_searches(found: list[dict[str, Any]]) -> RenderableType:
    rows = [
        (
            *(each["name"], each["user"], each["state"], each["rule"], f"{each['ended']}/{each['trials']}"),
            *(each["paused"], f"{each['spent_gpu_hours']:.2f}"),
            f"{each['best_value']:.6g} (job {each['best']})" if each["best"] else "",
        )
        for each in found
    ]
    return table_of(COLUMNS, rows, right=("ENDED", "PAUSED", "GPU-HOURS"))


def draw_search(found: dict[str, Any]) -> RenderableType:
    keys = list(dict.fromkeys(key for trial in found["trials"] for key in trial["parameters"]))
    rows = [
        (
            *(trial["id"], "best" if trial["is_best"] else trial["state"], shown(trial["step"]), shown(trial["value"])),
            *(trial["parameters"].get(key, "") for key in keys),
            trial["why"],
        )
        for trial in in_rank(found)
    ]
    say(head_of(found))
    return table_of(("JOB", "STATE", "STEP", found["metric"], *keys, "WHY"), rows, right=("STEP", found["metric"]))


def head_of(found: dict[str, Any]) -> str:
    limits = [f"{found['spent_gpu_hours']:.2f} GPU-hours used"]
    if found["gpu_hours"]:
        limits[0] += f" of {found['gpu_hours']:g}"
    if found["deadline_s"]:
        limits.append(f"deadline {found['deadline_s']:g} s after its start")
    rule = "" if found["rule"] == "none" else f", rule {found['rule']}"
    why = f"; {found['reason']}" if found["reason"] else ""
    return (
        f"search {found['name']}: {found['state']}, {found['metric']} {found['mode']}{rule}; {', '.join(limits)}{why}"
    )


def in_rank(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The best first, then those without a value."""
    sign = 1 if found["mode"] == "min" else -1
    known = [each for each in found["trials"] if each["value"] is not None]
    unknown = [each for each in found["trials"] if each["value"] is None]
    return [*sorted(known, key=lambda each: sign * each["value"]), *unknown]


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
