"""`skep trace`: show, convert, sample and generate traces.

Modules that cost start-up time are imported where they are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.say import warn_dropped

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from skep.traces.stats import StatsPart, TraceInfo
    from skep.traces.trace import Trace

_DAY_S = 86400


def _reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments of every command that reads a trace."""
    command = click.option(
        "--profile", type=click.Path(path_type=Path), help="Throughputs that time the steps of a Gavel trace."
    )(command)
    command = click.option(
        "--format", "format_", metavar="NAME", help="Format of TRACE; by default recognised by its content."
    )(command)
    return click.argument("path", metavar="TRACE", type=click.Path(path_type=Path))(command)


def _writing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that writes one."""
    command = click.option("--force", is_flag=True, help="Replace FILE if it exists.")(command)
    out = click.Path(path_type=Path)
    return click.option("--out", required=True, metavar="FILE", type=out, help="Native CSV to write.")(command)


@click.group()
def trace() -> None:
    """Look at traces, convert them, take samples, make new ones.

    A trace is a file with jobs: when each was submitted, how long it ran, how many GPUs it had. Skep reads
    its own CSV (native) and, as they were published, philly-json, philly-csv, helios, acme, alibaba-2023,
    alibaba-2020, gavel, tiresias, blox and what Slurm's sacct prints (slurm).

    \b
    Examples:
      skep trace info philly.csv --gpus 448
      skep trace synth --jobs 1000 --load 0.8 --out jobs.csv
    """


@trace.command()
@_reading
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of a cluster, to work out the load on it.")
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, help="The number of virtual clusters to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def info(path: Path, format_: str | None, profile: Path | None, gpus: int | None, top: int, as_json: bool) -> None:
    """Show what is in TRACE: jobs, sizes, durations, virtual clusters, load, and what it can serve.

    \b
    Examples:
      skep trace info jobs.csv
      skep trace info philly.csv --gpus 448
      skep trace info cluster_log.csv --format helios --json
    """
    from skep.traces.stats import describe

    found = describe(_read(path, format_, profile), gpus=gpus)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    else:
        _print_info(found, top)


@trace.command()
@_reading
@_writing
def convert(path: Path, format_: str | None, profile: Path | None, out: Path, force: bool) -> None:
    """Write TRACE, of any known format, as native CSV.

    \b
    Examples:
      skep trace convert cluster_job_log --out philly.csv
      skep trace convert a.trace --profile simulation_throughputs.json --out a.csv
    """
    _refuse_existing(out, force)
    _write(_read(path, format_, profile), out)


@trace.command("from-slurm")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@_writing
@click.option(
    "--vc",
    "vc_from",
    type=click.Choice(["account", "partition"]),
    default="account",
    show_default=True,
    help="The column that becomes the virtual cluster of a job.",
)
def from_slurm(path: Path, out: Path, force: bool, vc_from: str) -> None:
    """Write the history of a Slurm cluster, as sacct prints it, as native CSV.

    Jobs that never ran or still run, and the steps of jobs, are left out and counted. Set
    SLURM_TIME_FORMAT=%s for times that no change of the clocks can disturb.

    \b
    Examples:
      sacct --allusers --allocations --parsable2 --starttime 2026-01-01 \\
        --format JobID,Submit,Start,End,AllocTRES,User,Account,Partition > sacct.txt
      skep trace from-slurm sacct.txt --out jobs.csv
    """
    from skep.traces.read import read_slurm

    _refuse_existing(out, force)
    found = read_slurm(path, vc_from=vc_from)
    warn_dropped(found)
    _write(found, out)


@trace.command()
@_reading
@_writing
@click.option("--jobs", type=int, help="How many jobs to keep.  [default: all]")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another choice of jobs.")
@click.option("--from-day", type=float, help="Leave out jobs submitted before this day (the first is day 0).")
@click.option("--to-day", type=float, help="Leave out jobs submitted on this day or later.")
def sample(
    path: Path,
    format_: str | None,
    profile: Path | None,
    out: Path,
    force: bool,
    jobs: int | None,
    seed: int,
    from_day: float | None,
    to_day: float | None,
) -> None:
    """Write some jobs of TRACE as native CSV.

    --jobs keeps that many, chosen at random, at the times they had: days and bursts stay where they were, and
    the load falls in proportion. --from-day and --to-day keep the jobs of some days, and time starts anew at
    the first of them.

    \b
    Examples:
      skep trace sample philly.csv --jobs 5000 --seed 1 --out small.csv
      skep trace sample philly.csv --from-day 60 --to-day 67 --out week.csv
    """
    from skep.core.errors import InputError
    from skep.traces import sample as samples

    if jobs is None and from_day is None and to_day is None:
        raise InputError("nothing to do", hint="use --jobs, --from-day or --to-day")
    _refuse_existing(out, force)
    kept = _read(path, format_, profile)
    if from_day is not None or to_day is not None:
        to_s = float("inf") if to_day is None else to_day * _DAY_S
        kept = samples.window(kept, from_s=(from_day or 0.0) * _DAY_S, to_s=to_s)
    if jobs is not None:
        kept = samples.sample(kept, jobs=jobs, seed=seed)
    _write(kept, out)


@trace.command()
@_reading
@_writing
def anonymise(path: Path, format_: str | None, profile: Path | None, out: Path, force: bool) -> None:
    """Write TRACE without names, to share it.

    Jobs, users, virtual clusters, models, groups and labels get numbers in an order that is new every time, and time
    starts at 0. Sizes, durations and GPU types stay.

    \b
    Examples:
      skep trace anonymise sacct.txt --out shared.csv
    """
    import secrets

    from skep.traces.anonymise import anonymised

    _refuse_existing(out, force)
    _write(anonymised(_read(path, format_, profile), secrets.token_bytes(32)), out)


@trace.command()
@_writing
@click.option("--jobs", type=int, default=1000, show_default=True, help="Number of jobs.")
@click.option("--load", type=float, default=0.8, show_default=True, help="Share of the cluster they ask for.")
@click.option("--gpus", type=int, default=448, show_default=True, help="GPUs of the cluster.")
@click.option("--vcs", type=int, default=15, show_default=True, help="Number of virtual clusters.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another trace.")
@click.option("--profile", type=click.Path(path_type=Path), help="Gavel's throughputs: jobs like those of its traces.")
def synth(out: Path, force: bool, jobs: int, load: float, gpus: int, vcs: int, seed: int, profile: Path | None) -> None:
    """Make a trace whose sizes, durations and arrivals are like Philly's.

    The load decides over how much time the jobs are spread. The same options make the same file on any
    machine. With --profile the jobs are like those of Gavel's published traces: its models, 1 to 4 GPUs, up to
    about four hours of work, independent arrivals.

    \b
    Examples:
      skep trace synth --jobs 1000 --load 0.8 --seed 1 --out jobs.csv
      skep trace synth --jobs 80000 --load 0.9 --gpus 512 --vcs 4 --out big.csv
      skep trace synth --profile simulation_throughputs.json --gpus 36 --out gavel.csv
    """
    from skep.profiles.read import read_profile
    from skep.traces.synth import synthesize, synthesize_gavel

    _refuse_existing(out, force)
    if profile is None:
        made = synthesize(jobs=jobs, load=load, seed=seed, gpus=gpus, vcs=vcs)
    else:
        made = synthesize_gavel(read_profile(profile), jobs=jobs, load=load, seed=seed, gpus=gpus)
    _write(made, out)


def _read(path: Path, format_: str | None, profile: Path | None) -> Trace:
    from skep.profiles.read import read_profile
    from skep.traces.read import read_trace

    throughputs = None if profile is None else read_profile(profile)
    found = read_trace(path, format=format_, profile=throughputs)
    warn_dropped(found)
    return found


def _refuse_existing(out: Path, force: bool) -> None:
    """Checked before any work is done, so that an error is reported at once."""
    from skep.core.errors import InputError

    if out.is_dir():
        raise InputError(f"{out}: is a folder, expected a file to write")
    if out.exists() and not force:
        raise InputError(f"{out}: already exists", hint="replace it with --force")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder")


def _write(made: Trace, out: Path) -> None:
    from skep.traces.write import write_native

    write_native(made, out)
    click.echo(f"wrote {out}: {len(made.jobs):,} jobs", err=True)


def _print_info(found: TraceInfo, top: int) -> None:
    from rich.console import Console

    console = Console()
    console.print(_facts_table(found))
    if found.duration_s:
        console.print(_durations_table(found))
    console.print(_parts_table("gpus", found.sizes, found))
    if len(found.vcs) > 1:
        console.print(_parts_table("vc", found.vcs[:top], found))
        if len(found.vcs) > top:
            console.print(f"… and {len(found.vcs) - top} more virtual clusters (--top)")
    console.print(_uses_table(found))


def _table(*columns: str) -> Table:
    """Names left-aligned, numbers right-aligned, no frame, so that other tools can cut it."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=any(columns), header_style="bold")
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at else "left", no_wrap=True)
    return table


def _facts_table(found: TraceInfo) -> Table:
    table = _table("trace", f"{found.name} ({found.format})")
    table.add_row("jobs", f"{found.jobs:,}")
    counts = {
        "without GPUs": found.cpu_only_jobs,
        "sharing a GPU": found.shared_gpu_jobs,
        "never ending": found.endless_jobs,
        "users": found.users,
        "models": found.models,
        "rows dropped": sum(found.dropped.values()),
    }
    for name, count in counts.items():
        if count:
            table.add_row(name, f"{count:,}")
    table.add_row("span", _time(found.span_s))
    table.add_row("gpu-hours", f"{found.gpu_hours:,.0f}")
    if found.gpus is not None:
        load = "all jobs arrive at once" if found.load is None else f"{found.load:.3f}"
        table.add_row(f"load on {found.gpus:,} GPUs", load)
    return table


def _durations_table(found: TraceInfo) -> Table:
    table = _table("\nduration", "\n")
    for name, value in found.duration_s.items():
        table.add_row(name, _time(value))
    return table


def _parts_table(title: str, parts: list[StatsPart], found: TraceInfo) -> Table:
    table = _table(f"\n{title}", "\njobs", "\n", "\ngpu-hours", "\n")
    for part in parts:
        table.add_row(
            part.name,
            f"{part.jobs:,}",
            _percent(part.jobs, found.jobs),
            f"{part.gpu_hours:,.0f}",
            _percent(part.gpu_hours, found.gpu_hours),
        )
    return table


def _uses_table(found: TraceInfo) -> Table:
    """What the trace can be used for, then what it cannot and why."""
    table = _table("\ncan serve", "\njobs")
    table.add_row("waiting, completion times, utilisation", f"{found.jobs:,}")
    for use in found.uses:
        if use.is_served:
            table.add_row(use.name, f"{use.jobs:,}")
    for use in found.uses:
        if not use.is_served:
            table.add_row(f"not: {use.name}", f"needs {use.needs}", style="dim")
    return table


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _time(seconds: float) -> str:
    """In the largest unit in which it is above 1."""
    for unit, name in ((_DAY_S, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"
