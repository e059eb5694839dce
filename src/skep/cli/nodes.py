"""`skep nodes`, `vc`, `drain` and `undrain`: the hardware and its owners; and the drawing of `skep cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import (
    cell,
    complete_nodes,
    connect,
    many,
    output_option,
    say,
    server_option,
    show,
    table_of,
    watch_option,
)
from skep.cli.plain import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

USED, FREE, GONE = "█", "░", "×"
BAR_MAX = 64


@click.command()
@output_option
@watch_option
@server_option
def nodes(output: str, watch: bool, url: str) -> None:
    """List the nodes: state, GPUs used and free, jobs.

    \b
    Examples:
      skep nodes
      skep nodes -o json
    """
    with connect(url) as client:
        show(client, client.nodes, draw_nodes, output=output, is_watched=watch, name="name")


def draw_nodes(found: list[dict[str, Any]]) -> RenderableType:
    columns = ("NODE", "STATE", "TYPE", "GPUS", "USED", "JOBS")
    rows = [
        (node["name"], node["state"], node["gpu_type"], node["gpus"], node["used"], " ".join(jobs_on(node)))
        for node in found
    ]
    return table_of(columns, rows, right=("GPUS", "USED"))


def jobs_on(node: dict[str, Any]) -> list[str]:
    """Each job once; the server lists it for every GPU."""
    return list(dict.fromkeys(job for jobs in node["jobs"] for job in jobs))


@click.command()
@output_option
@watch_option
@server_option
def vc(output: str, watch: bool, url: str) -> None:
    """List the virtual clusters: what each owns, uses, borrows, and has waiting.

    \b
    Example:
      skep vc
    """
    with connect(url) as client:
        show(client, client.vcs, draw_vcs, output=output, is_watched=watch, name="name")


def draw_vcs(found: list[dict[str, Any]]) -> RenderableType:
    columns = ("VC", "GPUS", "USED", "BORROWED", "PENDING")
    keys = ("gpus", "used", "borrowed", "pending")
    return table_of(columns, [(row["name"], *(f"{row[key]:g}" for key in keys)) for row in found], right=columns[1:])


def draw_cluster(found: dict[str, Any]) -> RenderableType:
    """A line per node with a mark per GPU, then the virtual clusters."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for node in found["nodes"]:
        table.add_row(cell(node["name"]), gpu_bar(node), cell(node_note(node)))
    parts: list[Any] = [Text(headline(found), style="bold"), table]
    return Group(*parts, *([Text(""), draw_vcs(found["vcs"])] if len(found["vcs"]) > 1 else []))


def headline(found: dict[str, Any]) -> str:
    nodes, gpus = many(len(found["nodes"]), "node"), many(found["gpus"], "GPU")
    share = f" ({found['used'] / found['gpus']:.0%})" if found["gpus"] else ""
    return f"{clean(found['name'])}: {nodes}, {found['used']:,} of {gpus} used{share}, policy {found['policy']}"


def gpu_bar(node: dict[str, Any]) -> Any:
    """`██░█`, a mark for each GPU; a node with more GPUs than fit is drawn to scale."""
    from rich.text import Text

    if node["state"] == "lost":
        return Text(GONE * min(node["gpus"], BAR_MAX), style="red")
    marks = "".join(USED if jobs else FREE for jobs in node["jobs"])
    if len(marks) > BAR_MAX:
        used = round(node["used"] * BAR_MAX / node["gpus"])
        marks = USED * used + FREE * (BAR_MAX - used)
    return Text(marks, style="green")


def node_note(node: dict[str, Any]) -> str:
    free = {"up": f"{node['gpus'] - node['used']} free", "drained": "drained", "lost": "lost"}[node["state"]]
    jobs = jobs_on(node)
    return f"{free}, {'jobs' if len(jobs) > 1 else 'job'} {' '.join(jobs)}" if jobs else free


@click.command()
@click.argument("names", metavar="NODE...", nargs=-1, required=True, shell_complete=complete_nodes)
@server_option
def drain(names: tuple[str, ...], url: str) -> None:
    """Start no new jobs on nodes; running jobs continue.

    \b
    Example:
      skep drain n3
    """
    with connect(url) as client:
        for name in names:
            client.set_node(name, "drained")
            jobs = next((jobs_on(node) for node in client.nodes() if node["name"] == name), [])
            say(f"{name} is drained" + (f"; still running there: {' '.join(jobs)}" if jobs else ""))


@click.command()
@click.argument("names", metavar="NODE...", nargs=-1, required=True, shell_complete=complete_nodes)
@server_option
def undrain(names: tuple[str, ...], url: str) -> None:
    """Use drained nodes again.

    \b
    Example:
      skep undrain n3
    """
    with connect(url) as client:
        for name in names:
            client.set_node(name, "up")
            say(f"{name} is up")
