"""`skep fill`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skep.cli.say import warn_dropped
from skep.core.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from skep.experiments.fill import Filling
    from skep.metrics.filled import Filled

COMPARED = ("fgd", "best-fit", "dot-product", "gpu-packing", "gpu-clustering", "random")
"""Without --place: those that FGD's authors compared."""


def complete_places(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from skep.policies.place import PLACES

    return [CompletionItem(name) for name in PLACES if name.startswith(incomplete)]


@click.command()
@click.argument("pods", metavar="PODS")
@click.option("--cluster", required=True, metavar="SPEC", help="64x8:v100+16x4:p100, or a file.")
@click.option(
    "--place",
    "places",
    multiple=True,
    metavar="P",
    help=f"A placement, see `place` in `skep policies fifo`; may be repeated.  [default: {', '.join(COMPARED)}]",
    shell_complete=complete_places,
)
@click.option(
    "--demand",
    default=1.3,
    show_default=True,
    metavar="D",
    help="Total requested GPUs, as a multiple of the cluster's.",
)
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=int,
    default=(42,),
    help="Order of pods and nodes; may be repeated.  [default: 42]",
)
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with charts.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON list.")
@click.option("--force", is_flag=True, help="Replace what --html names.")
@click.option("--format", "format_", metavar="NAME", help="Format of PODS, when it is not recognised.")
def fill(
    pods: str,
    cluster: str,
    places: tuple[str, ...],
    demand: float,
    seeds: tuple[int, ...],
    html: Path | None,
    as_json: bool,
    force: bool,
    format_: str | None,
) -> None:
    """Fill a cluster with the jobs of PODS, to see which placement wastes least.

    PODS is a trace of any format; its times do not matter. The jobs arrive one after another, in an order shuffled by
    the seed, and stay. When the list is used up, further ones are drawn from it, until the GPUs asked for reach the
    demand. A job that does not fit when it arrives is dropped. One that is no larger than a node goes to one node. Of
    equally good nodes the first is taken, in an order that is shuffled by the seed too.

    Fragments are idle GPUs that typical jobs of the list cannot use (Weng et al., ATC 2023).

    \b
    Examples:
      skep fill jobs.csv --cluster 64x8
      skep fill jobs.csv --cluster 64x8 --place fgd --place best-fit --seed 1 --seed 2 --seed 3
      skep fill openb_pod_list_default.csv --cluster openb_node_list_gpu_node.csv --html fill.html
      skep fill jobs.csv --cluster 64x8 --place consolidate --demand 1.0 --json
    """
    from skep.clusters.read import read_cluster
    from skep.experiments.fill import Filling
    from skep.traces.read import read_trace

    chosen = known_places(places or COMPARED)
    if html is not None:
        from skep.cli.simulate import check_html

        check_html(html, force=force)
    there = read_cluster(cluster)
    trace = read_trace(Path(pods), format=format_, keeps_unscheduled=True)
    warn_dropped(trace)
    filling = Filling(trace, there, demand)
    results = run_all(filling, chosen, list(dict.fromkeys(seeds)))
    if html is not None:
        write_html(results, html, f"{trace.name} on {there.name}", len(trace.jobs))
    say(results, as_json=as_json, html=html)


def known_places(places: tuple[str, ...]) -> list[str]:
    from skep.policies.place import PLACES

    for place in places:
        if place not in PLACES:
            hint = did_you_mean(place, PLACES, most=3) or f"known placements: {', '.join(PLACES)}"
            raise InputError(f"there is no placement '{place}'", hint=hint)
    return list(dict.fromkeys(places))


def run_all(filling: Filling, places: list[str], seeds: list[int]) -> list[Filled]:
    from skep.cli.progress import ProgressBar

    each = filling.pods_expected
    runs = [(place, seed) for place in places for seed in seeds]
    with ProgressBar("filling", each * len(runs)) as progress:
        return [
            filling.run(place, seed, lambda done, before=number * each: progress(before + done))  # type: ignore[misc]
            for number, (place, seed) in enumerate(runs)
        ]


def write_html(results: list[Filled], file: Path, title: str, pods: int) -> None:
    from datetime import UTC, datetime
    from importlib.metadata import version

    from skep.files.text import write_aside
    from skep.report.fill import render_fill

    facts = [
        ("GPUs", f"{results[0].gpus:,}"),
        ("Pods of the list", f"{pods:,}"),
        ("Demand", f"{results[0].demand:.0%}"),
        ("Seeds", ", ".join(dict.fromkeys(str(result.seed) for result in results))),
        ("Made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("Skep", version("skep")),
    ]
    write_aside(file, render_fill(results, title=title, facts=facts, command=shlex.join(["skep", *sys.argv[1:]])))


def say(results: list[Filled], *, as_json: bool, html: Path | None) -> None:
    if as_json:
        print(json.dumps([rounded(result) for result in results], indent=2))
        return
    from rich.console import Console

    from skep.report.fill import curve_table, fill_table

    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(fill_table(results))
    console.print(curve_table(results))
    if html is not None:
        print(f"report: {html}")


def rounded(result: Filled) -> dict[str, object]:
    import msgspec

    def brief(value: object) -> object:
        if isinstance(value, list):
            return [brief(each) for each in value]
        if isinstance(value, dict):
            return {key: brief(each) for key, each in value.items()}
        return round(value, 6) if isinstance(value, float) else value

    return {key: brief(value) for key, value in msgspec.to_builtins(result).items()}
