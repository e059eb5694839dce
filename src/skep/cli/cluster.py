"""`skep cluster`: the present cluster; checking its file, and applying a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import connect, output_option, server_option, show, watch_option
from skep.cli.plain import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from skep.clusters.fit import FitAccount
    from skep.core.cells.layout import CellSpec, Layout

WIDTH = 160


@click.group(invoke_without_command=True)
@output_option
@watch_option
@server_option
@click.pass_context
def cluster(ctx: click.Context, output: str, watch: bool, url: str) -> None:
    """Draw the cluster as it is now: nodes, GPUs used and free, virtual clusters. Check and apply cluster files.

    A cluster file is YAML of Skep's own, HiveD's configuration, or Alibaba's node list; a short spec (64x8,
    32x8:v100+16x4:p100) can be used instead of a file.

    \b
    Examples:
      skep cluster --watch
      skep cluster check lab.yaml
      skep cluster apply lab.yaml
    """
    if ctx.invoked_subcommand is None:
        from skep.cli.nodes import draw_cluster

        with connect(url) as client:
            show(client, client.cluster, draw_cluster, output=output, is_watched=watch, name="name")


@cluster.command()
@click.argument("file", metavar="FILE")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@server_option
@click.pass_context
def apply(ctx: click.Context, file: str, yes: bool, url: str) -> None:
    """Change cells and virtual clusters to those of FILE while jobs run: shows what will change, and asks first.

    \b
    Examples:
      skep cluster apply lab.yaml
      skep cluster apply lab.yaml --yes
    """
    name, text = cluster_text(file)
    assert ctx.parent is not None
    with connect(url or ctx.parent.params["url"]) as client:
        changes = client.preview_cluster(text, name)
        for change in changes:
            click.echo(f"- {clean(change)}")
        if not changes:
            click.echo("nothing changes")
            return
        if not yes:
            click.confirm("Apply this?", abort=True, err=True)
        client.apply_cluster(text, name)
    click.echo("applied")


def cluster_text(file: str) -> tuple[str, str]:
    """Its name and text, checked here first, so that an error names the file as the user typed it."""
    import re
    from pathlib import Path

    from skep.clusters.read import describe_layout

    refuse_policies(file, describe_layout(file).layout)
    path = Path(file)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", path.name).lstrip("._-")[-100:] or "cluster.yaml"
    return name, path.read_text("utf-8") if path.is_file() else file


@cluster.command()
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def check(file: str, as_json: bool) -> None:
    """Check FILE: draw its cells, what each virtual cluster (VC) owns of them, and which have no owner.

    The first fault is named with its line and field, and the exit code is 2.

    \b
    Examples:
      skep cluster check lab.yaml
      skep cluster check hivedscheduler.yaml --json
      skep cluster check 64x8:v100
    """
    from skep.cli.say import warn
    from skep.clusters.fit import accounts
    from skep.clusters.read import describe_layout

    layout, notes = describe_layout(file)
    refuse_policies(file, layout)
    books = list(accounts(layout).values())
    if as_json:
        import json

        click.echo(json.dumps({**plain(layout, books), "notes": notes}, indent=2))
        return
    draw(layout, books)
    for note in notes:
        warn(note)


def refuse_policies(file: str, layout: Layout) -> None:
    if any(vc.policy for vc in layout.vcs.values()):
        from skep.core.cells.hardware import cluster_of
        from skep.core.errors import InputError
        from skep.policies.registry import Setting
        from skep.policies.shared.build import check_policies

        try:
            check_policies(layout, Setting(cluster_of(layout)))
        except InputError as error:
            raise InputError(f"{file}: {error}", hint=error.hint) from None


def draw(layout: Layout, books: list[FitAccount]) -> None:
    import sys

    from rich.console import Console

    from skep.report.cell_tree import cell_tree

    found = plain(layout, books)
    click.echo(f"{layout.name}: {amount(found['nodes'], 'node')}, {amount(found['gpus'], 'GPU')}\n")
    for line in cell_tree(layout):
        click.echo(line)
    # A file or a pipe has no width: names must not be broken there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    if layout.vcs:
        console.print()
        console.print(shares_table(found["vcs"]))
        console.print(left_table(found["chains"]))
    else:
        click.echo("\nno virtual clusters: all users share all GPUs")


def amount(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def shares_table(vcs: Sequence[dict[str, Any]]) -> Table:
    table = new_table("VC", "chain", "cell type", "cells", "gpus", "pinned")
    for vc in vcs:
        for row in [*vc["cells"], *vc["pinned"]] or [{"count": 0, "gpus": 0}]:
            pinned = f"{row['name']} ({row['address']})" if row.get("name", "") != row.get("address", "") else ""
            shown = pinned or row.get("name", "")
            chain, kind = row.get("chain", "nothing of its own"), row.get("type", "")
            add_row(table, vc["name"], chain, kind, f"{row.get('count', 1):,}", f"{row['gpus']:,}", shown)
    return table


def left_table(chains: Sequence[dict[str, Any]]) -> Table:
    """Cells without an owner, as large as possible."""
    table = new_table("without an owner", "cell type", "cells", "gpus")
    for chain in chains:
        left = [level for level in reversed(chain["levels"]) if level["left"]]
        for level in left:
            add_row(table, chain["chain"], level["type"], f"{level['left']:,}", f"{level['left'] * level['gpus']:,}")
        if not left:
            add_row(table, chain["chain"], "nothing", "0", "0")
    return table


def new_table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in ("cells", "gpus") else "left", overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    from rich.text import Text

    # `Text`, not str: brackets in a name are not markup.
    table.add_row(*(Text(cell) for cell in cells))


def plain(layout: Layout, books: list[FitAccount]) -> dict[str, Any]:
    """Everything in the form of the JSON output."""
    sizes = {kind.name: size for book in books for kind, size in zip(book.types, book.sizes, strict=True)}
    pins = {cell.pinned: (top.type, cell) for top in layout.cells for cell in walk(top) if cell.pinned}
    return {
        "name": layout.name,
        "nodes": len({cell.node for top in layout.cells for cell in walk(top) if cell.node}),
        "gpus": sum(book.total[0] for book in books),
        "chains": [{"chain": book.chain, "levels": plain_levels(book)} for book in books],
        "vcs": [plain_vc(layout, name, sizes, pins) for name in layout.vcs],
    }


def plain_levels(book: FitAccount) -> list[dict[str, Any]]:
    left = book.left()
    return [
        {
            "level": at + 1,
            "type": kind.name,
            "is_node": kind.is_node,
            "gpus": book.sizes[at],
            "cells": book.total[at],
            "granted": book.granted[at],
            "pinned": book.pinned[at],
            "left": left[at],
        }
        for at, kind in enumerate(book.types)
    ]


def plain_vc(layout: Layout, name: str, sizes: dict[str, int], pins: dict[str, tuple[str, CellSpec]]) -> dict[str, Any]:
    vc = layout.vcs[name]
    cells: list[dict[str, Any]] = [
        {"chain": grant.chain, "type": grant.type, "count": grant.count, "gpus": grant.count * sizes[grant.type]}
        for grant in vc.grants
    ]
    pinned: list[dict[str, Any]] = [
        {"name": pin, "address": cell.address, "chain": chain, "type": cell.type, "gpus": sizes[cell.type]}
        for pin, (chain, cell) in ((pin, pins[pin]) for pin in vc.pinned)
    ]
    gpus = sum(row["gpus"] for row in [*cells, *pinned])
    return {"name": name, "policy": vc.policy, "gpus": gpus, "cells": cells, "pinned": pinned}


def walk(cell: CellSpec) -> Iterator[CellSpec]:
    yield cell
    for child in cell.children:
        yield from walk(child)
