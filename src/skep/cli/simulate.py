"""`skep simulate` and `skep compare`."""

from __future__ import annotations

import gc
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import complete_policies
from skep.cli.say import warn, warn_dropped
from skep.core.errors import InputError

if TYPE_CHECKING:
    from skep.experiments.simulate import Experiment
    from skep.metrics.run import Run
    from skep.profiles.profile import Profile
    from skep.traces.trace import Trace

COMPARED = ("fifo", "fifo:walk=skip", "yarn-cs", "tiresias-l", "srsf")
"""The policies of `compare` by default: the simplest, what production uses, and what the literature offers."""


COMPARE_HTML = Path("compare.html")


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that both commands have."""
    for option in reversed(
        [
            click.argument("trace", metavar="TRACE"),
            click.option("--cluster", required=True, metavar="SPEC", help="64x8:v100+16x4:p100, or a file."),
            click.option(
                "--policy",
                "policies",
                multiple=True,
                metavar="P",
                help="NAME:key=value,…; may be repeated.",
                shell_complete=complete_policies,
            ),
            click.option(
                "--out",
                type=click.Path(path_type=Path),
                metavar="DIR",
                help="Write jobs.csv and summary.json.",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print the summaries as one JSON list."),
            click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the report."),
            click.option("--force", is_flag=True, help="Replace what --out or --html name."),
            click.option("--format", "format_", metavar="NAME", help="Format of TRACE, when it is not recognised."),
            click.option("--restart-s", default=30.0, show_default=True, help="Cost of every start but the first."),
            click.option("--checkpoint-s", default=600.0, show_default=True, help="Progress a failure can lose."),
            click.option("--seed", default=0, show_default=True, help="For failures, estimates, random placement."),
            click.option(
                "--estimate-error",
                default=0.0,
                metavar="E",
                help="Give policies durations with an error factor of exp(E·z), z standard normal.  [default: 0, "
                "the true ones]",
            ),
            click.option("--profile", metavar="FILE", help="Speeds by GPU type, scale, locality and sharing."),
            click.option(
                "--failures",
                default="",
                metavar="SPEC",
                help="mtbf=S,repair=S, or a CSV of node,down_s,up_s.",
            ),
            click.option("--round-s", default=0.0, metavar="S", help="Decide only every S seconds."),
            click.option(
                "--round-finish",
                type=click.Choice(["exact", "boundary"]),
                default="exact",
                show_default=True,
                help="When a job that ends inside a round is counted as finished.",
            ),
            click.option("--vc-map", default="", metavar="a=b,…", help="Rename virtual clusters of the trace."),
            click.option("--private", is_flag=True, help="Give each virtual cluster hardware of its own."),
            click.option("--by-number", is_flag=True, help="Share by numbers of GPUs only, not by cells."),
            click.option("--parallel", default=1, show_default=True, metavar="N", help="Policies at the same time."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@run_options
def simulate(**given: Any) -> None:
    """Run TRACE on a cluster under one or more policies.

    Jobs, summary and report are the same for every policy, so that runs can be compared; the scheduler is the one
    that would run real jobs.

    \b
    Examples:
      skep simulate jobs.csv --cluster 64x8 --policy fifo --policy srsf
      skep simulate jobs.csv --cluster 64x8 --policy tiresias-l:queues=3250+7200 --out results
      skep simulate jobs.csv --cluster 8x4:v100+8x4:k80 --policy las --profile throughputs.json --json
      skep simulate jobs.csv --cluster 64x8 --policy ./mine.py:Mine
    """
    if not given["policies"]:
        raise InputError("no --policy is given", hint="for example --policy fifo; `skep policies` lists them")
    perform(given)


@click.command()
@run_options
def compare(**given: Any) -> None:
    """Run TRACE under several policies and write one page that compares them.

    Without --policy a default selection is compared; without --html the page is written to compare.html.

    \b
    Examples:
      skep compare jobs.csv --cluster 64x8
      skep compare jobs.csv --cluster 64x8 --policy fifo --policy yarn-cs:quotas=usage --html report.html
    """
    given["policies"] = given["policies"] or COMPARED
    if given["html"] is None and not given["as_json"]:
        given["html"] = COMPARE_HTML
    perform(given)


def perform(given: dict[str, Any]) -> None:
    """Check everything that can be checked, run, and write only when all results exist."""
    # Reference counting frees nearly everything; a collector that visits a hundred thousand jobs only costs time. The
    # last collection, when the process ends, visits nothing that is frozen.
    gc.disable()
    from skep.experiments.output import check_out

    policies = list(given["policies"])
    experiment = make_experiment(given)
    for policy in policies:
        experiment.planner(policy)
    if given["out"] is not None:
        check_out(given["out"], force=given["force"])
    if given["html"] is not None:
        check_html(given["html"], force=given["force"], replaces_own=given["html"] == COMPARE_HTML)
    if given["parallel"] < 1:
        raise InputError(f"--parallel is {given['parallel']}, expected 1 or more")
    runs = run_all(experiment, policies, given["parallel"])
    warn_about(runs)
    if given["out"] is not None:
        from skep.experiments.output import write_runs

        write_runs(runs, given["out"], force=given["force"])
    if given["html"] is not None:
        write_html(runs, given["html"], experiment)
    say(runs, given)
    gc.freeze()


def make_experiment(given: dict[str, Any]) -> Experiment:
    from skep.experiments.sharing import check_vcs, hardware_cluster, read_shared
    from skep.experiments.simulate import Experiment, Options
    from skep.policies.registry import ROUND_MIN_S
    from skep.traces.read import read_trace

    options = Options(
        restart_s=seconds("--restart-s", given["restart_s"]),
        checkpoint_s=seconds("--checkpoint-s", given["checkpoint_s"]),
        seed=given["seed"],
        round_s=seconds("--round-s", given["round_s"]),
        finish_at_boundary=given["round_finish"] == "boundary",
        failures=given["failures"],
        keep_history=given["html"] is not None,
        estimate_error=estimate_error(given["estimate_error"]),
    )
    if 0 < options.round_s < ROUND_MIN_S:
        raise InputError(f"--round-s is {options.round_s:g}, expected at least {ROUND_MIN_S:g} s")
    in_rounds = options.round_s or any("round_s=" in policy for policy in given["policies"])
    if options.finish_at_boundary and not in_rounds:
        raise InputError("--round-finish boundary needs --round-s")
    profile = None
    if given["profile"]:
        from skep.profiles.read import read_profile

        profile = read_profile(given["profile"])
    cluster, layout = read_shared(given["cluster"])
    sharing = sharing_of(given)
    if layout is not None and sharing == "private":
        cluster = hardware_cluster(layout, sharing)
    if layout is None and sharing != "cells":
        raise InputError(f"{given['cluster']} has no virtual clusters", hint="--private and --by-number need some")
    if options.failures:
        from skep.engines.sim.outages import parse_failures

        parse_failures(options.failures, cluster, seed=options.seed)
    trace = read_trace(Path(given["trace"]), format=given["format_"], profile=profile)
    warn_dropped(trace)
    rename_vcs(trace, given["vc_map"])
    if profile is not None:
        warn_unknown_models(trace, profile, given["profile"])
    if layout is not None:
        check_vcs(trace, layout)
    speed = profile.speed if profile is not None else None
    return Experiment(trace, cluster, options, speed, layout, sharing)


def warn_unknown_models(trace: Trace, profile: Profile, file: str) -> None:
    """A profile of other models would have no effect, without being noticed."""
    wanted = {job.spec.model for job in trace.jobs if job.spec.model}
    known = profile.models()
    if known and not wanted & known:
        have = f"the trace has {', '.join(sorted(wanted)[:5])}" if wanted else "its jobs name none"
        warn(
            f"{file} names none of the models of {trace.name} ({have}; the profile has {', '.join(sorted(known)[:5])})"
        )


def sharing_of(given: dict[str, Any]) -> str:
    if given["private"] and given["by_number"]:
        raise InputError("--private and --by-number exclude each other")
    return "private" if given["private"] else "numbers" if given["by_number"] else "cells"


def estimate_error(value: float) -> float:
    from skep.experiments.owners import ERROR_MAX

    if not 0 <= value <= ERROR_MAX:
        raise InputError(f"--estimate-error is {value}, expected 0 to {ERROR_MAX:g}", hint="0.3 is usual")
    return value


def seconds(name: str, value: float) -> float:
    if not 0 <= value < 1e12:
        raise InputError(f"{name} is {value}, expected a number of seconds >= 0")
    return value


def rename_vcs(trace: Trace, text: str) -> None:
    import msgspec

    if not text:
        return
    names: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        old, equals, new = part.partition("=")
        if not equals or not new:
            raise InputError(f"--vc-map: '{part}' is not old=new")
        names[old] = new
    known = {job.spec.vc for job in trace.jobs}
    for old in names:
        if old not in known:
            raise InputError(f"--vc-map: the trace has no VC '{old}'", hint=f"it has {', '.join(sorted(known)[:20])}")
    if names:
        replace = msgspec.structs.replace
        trace.jobs = [
            replace(job, spec=replace(job.spec, vc=names[job.spec.vc])) if job.spec.vc in names else job
            for job in trace.jobs
        ]


def run_all(experiment: Experiment, policies: list[str], parallel: int) -> list[Run]:
    if parallel > 1 and len(policies) > 1:
        from skep.cli.progress import ProgressBar
        from skep.experiments.parallel import run_parallel

        with ProgressBar("policies", len(policies)) as progress:
            return run_parallel(experiment, policies, parallel, progress)
    return [run_one(experiment, policy) for policy in policies]


def run_one(experiment: Experiment, policy: str) -> Run:
    if not sys.stderr.isatty():
        return experiment.run(policy)
    from skep.cli.progress import ProgressBar

    with ProgressBar(policy, len(experiment.trace.jobs)) as progress:
        return experiment.run(policy, progress)


def warn_about(runs: list[Run]) -> None:
    """Jobs are never dropped silently."""
    for run in runs:
        summary = run.summary
        if summary.unrunnable:
            job, reason = next(iter(run.unrunnable.items()))
            more = f" (and {summary.unrunnable - 1:,} more)" if summary.unrunnable > 1 else ""
            warn(f"{summary.policy}: job {job} can never run: {reason}{more}")
        if summary.unfinished:
            warn(f"{summary.policy}: {summary.unfinished:,} of {summary.jobs:,} jobs did not finish")


def check_html(file: Path, *, force: bool, replaces_own: bool = False, hint: str = "--force replaces it") -> None:
    """A file that the user named is replaced only with `--force`; a default one is replaced if it is a report."""
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} is not a folder", hint="create it first")
    if file.is_dir():
        raise InputError(f"{file} is a folder, expected a file name")
    if not os.access(file.parent, os.W_OK):
        raise InputError(f"{file} cannot be written: its folder is read-only", hint="--html FILE names another place")
    is_ours = replaces_own and file.exists() and b'content="skep"' in file.read_bytes()[:2000]
    if file.exists() and not force and not is_ours:
        raise InputError(f"{file} exists" + (" and is not a report of ours" if replaces_own else ""), hint=hint)


def write_html(runs: list[Run], file: Path, experiment: Experiment) -> None:
    from skep.files.text import write_aside
    from skep.report.html import render_report

    title = f"{experiment.trace.name} on {experiment.cluster.name}"
    command = shlex.join(["skep", *sys.argv[1:]])
    write_aside(file, render_report(runs, title=title, facts=report_facts(experiment), command=command))


def report_facts(experiment: Experiment) -> list[tuple[str, str]]:
    """The settings of the runs of a report."""
    from datetime import UTC, datetime
    from importlib.metadata import version

    from skep.traces.stats import offered_load

    options = experiment.options
    load = offered_load(experiment.trace, gpus=experiment.cluster.gpu_total) if experiment.cluster.gpu_total else None
    return [
        ("Load", "" if load is None else f"{load:.2f}"),
        ("Restart", f"{options.restart_s:g} s"),
        ("Estimates", f"error {options.estimate_error:g}" if options.estimate_error else ""),
        ("Checkpoints", f"every {options.checkpoint_s:g} s" if options.failures else ""),
        ("Failures", options.failures),
        ("Rounds", f"{options.round_s:g} s" if options.round_s else ""),
        ("Made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("Skep", version("skep")),
    ]


def say(runs: list[Run], given: dict[str, Any]) -> None:
    from skep.experiments.output import summary_dict

    if given["as_json"]:
        print(json.dumps([summary_dict(run) for run in runs], indent=2))
        return
    from rich.console import Console

    from skep.report.table import comparison_table

    # In a pipe a wide table is better than one that is cut at 80 columns.
    Console(width=None if sys.stdout.isatty() else 140).print(comparison_table(runs))
    if given["out"] is not None:
        print(f"jobs.csv and summary.json of each policy are in {given['out']}")
    if given["html"] is not None:
        print(f"report: {given['html']}")
