"""`skep simulate` and `skep compare`."""

from __future__ import annotations

import functools
import gc
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from traceback import print_exception
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import complete_policies
from skep.cli.say import say_note, warn, warn_dropped
from skep.core.errors import InputError, did_you_mean
from skep.metrics.run import Run

if TYPE_CHECKING:
    from skep.experiments.parallel import Failure, PlannedRun
    from skep.experiments.simulate import Experiment, Options
    from skep.profiles.profile import Profile
    from skep.traces.trace import Trace

COMPARED = ("fifo", "fifo:walk=skip", "yarn-cs", "tiresias-l", "srsf")
"""The policies of `compare` by default: the simplest, what production uses, and what the literature offers."""


COMPARE_HTML = Path("compare.html")


WORLD = (
    click.option("--format", "format_", metavar="NAME", help="Format of TRACE, when it is not recognised."),
    click.option(
        "--map",
        "map_",
        multiple=True,
        metavar="COLUMN=NAME",
        help="A column of Skep's format and its name in TRACE: submit_s=Submit; may be repeated.",
    ),
    click.option("--restart-s", default=30.0, show_default=True, help="Cost of every start but the first."),
    click.option("--checkpoint-s", default=600.0, show_default=True, help="Progress a failure can lose."),
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
    click.option("--solve-s", default=0.0, metavar="S", help="How long the solvers of policies take."),
    click.option("--round-s", default=0.0, metavar="S", help="Decide only every S seconds."),
    click.option(
        "--round-finish",
        type=click.Choice(["exact", "boundary"]),
        default="exact",
        show_default=True,
        help="When a job that ends inside a round is counted as finished.",
    ),
    click.option(
        "--weights",
        default="",
        metavar="users.a=2,vcs.b=3",
        help="Weights of users and virtual clusters, for policies that share between them.",
    ),
    click.option("--vc-map", default="", metavar="a=b,…", help="Rename virtual clusters of the trace."),
    click.option("--private", is_flag=True, help="Give each virtual cluster hardware of its own."),
    click.option("--by-number", is_flag=True, help="Share by numbers of GPUs only, not by cells."),
)
"""What every command has that simulates a trace: how to read it, and what the simulated world is like."""

OPTIONS = (
    click.argument("trace", metavar="TRACE"),
    click.option(
        "--cluster",
        "clusters",
        required=True,
        multiple=True,
        metavar="SPEC",
        help="64x8:v100+16x4:p100, or a file; may be repeated.",
    ),
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
    *WORLD,
    click.option(
        "--seed",
        "seeds",
        multiple=True,
        type=int,
        default=(0,),
        help="For failures, estimates, random placement; may be repeated: the table then has means and "
        "intervals.  [default: 0]",
    ),
    click.option("--parallel", default=1, show_default=True, metavar="N", help="Runs at the same time."),
    click.option("--traceback", is_flag=True, help="Show all of the error of a policy that fails."),
)
"""The options that both commands have."""


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def with_options(*options: Decorator) -> Decorator:
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


@click.command()
@with_options(*OPTIONS)
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
      skep simulate jobs.csv --cluster 32x8 --cluster 64x8 --policy srsf --estimate-error 0.3 --seed 1 --seed 2 --seed 3
    """
    if not given["policies"]:
        raise InputError("no --policy is given", hint="for example --policy fifo; `skep policies` lists them")
    perform(given)


@click.command()
@with_options(*OPTIONS)
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
    from skep.experiments.parallel import tasks_of

    experiments = make_experiments(given)
    tasks = tasks_of(experiments, list(given["policies"]))
    for task in tasks:
        task.experiment.planner(task.policy)
    if given["out"] is not None:
        check_out(given["out"], force=given["force"])
    if given["html"] is not None:
        check_html(given["html"], force=given["force"], replaces_own=given["html"] == COMPARE_HTML)
    if given["parallel"] < 1:
        raise InputError(f"--parallel is {given['parallel']}, expected 1 or more")
    results = run_all(tasks, given["parallel"])
    say_limits(tasks, given)
    finished = [(task.label, run) for task, run in zip(tasks, results, strict=True) if isinstance(run, Run)]
    if finished:
        write_and_say(finished, experiments, given)
    report_failures([result for result in results if not isinstance(result, Run)], given)
    gc.freeze()


def write_and_say(finished: list[tuple[str, Run]], experiments: list[Experiment], given: dict[str, Any]) -> None:
    runs = [run for _, run in finished]
    warn_about(runs)
    if given["out"] is not None:
        from skep.experiments.output import write_runs

        write_runs(finished, given["out"], force=given["force"])
    if given["html"] is not None:
        write_html([run.named(label) for label, run in finished], given["html"], experiments)
    say(runs, given, is_repeated=len(experiments) > 1)


def report_failures(failures: list[Failure], given: dict[str, Any]) -> None:
    """A line for each run that failed; the last one decides how the command ends."""
    for failure in failures:
        if given["traceback"]:
            print_exception(failure.error.__cause__ or failure.error)
        elif failure is not failures[-1]:
            print(f"error: {failure.label}: {failure.error}", file=sys.stderr)
    if failures:
        raise failures[-1].error


def make_experiments(given: dict[str, Any]) -> list[Experiment]:
    """One for each cluster and seed; the trace is read once."""
    from skep.experiments.setup import make_experiment

    trace, profile = read_inputs(given)
    seeds = list(dict.fromkeys(given["seeds"]))
    clusters = list(dict.fromkeys(given["clusters"]))
    sharing = sharing_of(given)
    return [
        make_experiment(trace, cluster, options_of(given, seed), profile, sharing, flag)
        for cluster in clusters
        for seed in seeds
    ]


def read_inputs(given: dict[str, Any]) -> tuple[Trace, Profile | None]:
    from skep.experiments.setup import with_vcs
    from skep.traces.read import read_trace

    profile = None
    if given["profile"]:
        from skep.profiles.read import read_profile

        profile = read_profile(given["profile"])
    trace = read_trace(
        Path(given["trace"]), format=given["format_"], profile=profile, renamed=renamed_of(given["map_"])
    )
    warn_dropped(trace)
    trace = with_vcs(trace, vc_names(given["vc_map"]), "--vc-map")
    if profile is not None:
        warn_unknown_models(trace, profile, given["profile"])
    return trace, profile


def options_of(given: dict[str, Any], seed: int) -> Options:
    from skep.core.weights import read_weights
    from skep.experiments.setup import check_options
    from skep.experiments.simulate import Options

    options = Options(
        restart_s=given["restart_s"],
        checkpoint_s=given["checkpoint_s"],
        seed=seed,
        round_s=given["round_s"],
        finish_at_boundary=given["round_finish"] == "boundary",
        failures=given["failures"],
        solve_s=given["solve_s"],
        keep_history=given["html"] is not None,
        weights=read_weights(given["weights"]),
        estimate_error=given["estimate_error"],
    )
    return check_options(options, given["policies"], flag)


def flag(field: str) -> str:
    return "--" + field.replace("_", "-")


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


def renamed_of(given: tuple[str, ...]) -> dict[str, str]:
    """`submit_s=Submit`: columns of Skep's format by their names in the file."""
    from skep.traces.native import OPTIONAL, REQUIRED

    renamed: dict[str, str] = {}
    for text in given:
        ours, equals, theirs = text.partition("=")
        if not equals or not theirs:
            raise InputError(f"--map: '{text}' is not COLUMN=NAME", hint="for example --map submit_s=Submit")
        if ours not in REQUIRED + OPTIONAL:
            known = REQUIRED + OPTIONAL
            raise InputError(f"--map: '{ours}' is not a column of a trace" + did_you_mean(ours, known, start=", "))
        if theirs in renamed or ours in renamed.values():
            raise InputError(f"--map: '{text}' names a column twice")
        renamed[theirs] = ours
    return renamed


def vc_names(text: str) -> dict[str, str]:
    names: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        old, equals, new = part.partition("=")
        if not equals or not new:
            raise InputError(f"--vc-map: '{part}' is not old=new")
        names[old] = new
    return names


def run_all(tasks: list[PlannedRun], parallel: int) -> list[Run | Failure]:
    from skep.experiments.parallel import attempt, run_parallel

    if parallel > 1 and len(tasks) > 1:
        from skep.cli.progress import ProgressBar

        with ProgressBar("runs", len(tasks)) as progress:
            return run_parallel(tasks, parallel, progress)
    return [attempt(task.label, functools.partial(run_one, task)) for task in tasks]


def run_one(task: PlannedRun) -> Run:
    experiment = task.experiment
    if not sys.stderr.isatty():
        return task.run()
    from skep.cli.progress import ProgressBar

    with ProgressBar(task.label, len(experiment.trace.jobs)) as progress:
        return experiment.run(task.policy, progress)


def say_limits(tasks: list[PlannedRun], given: dict[str, Any]) -> None:
    """What these runs cannot show."""
    from skep.policies.registry import idle_on

    trace = tasks[0].experiment.trace
    specs = [job.spec for job in trace.jobs]
    for policy in dict.fromkeys(task.policy for task in tasks):
        if why := idle_on(policy, specs):
            say_note(f"{policy}: {why}")
    bounded = [spec for spec in specs if spec.min_gpus is not None or spec.max_gpus is not None]
    elastic = sum(spec.gpu_range is not None for spec in bounded)
    if elastic and not given["profile"]:
        say_note(f"{elastic:,} elastic jobs and no --profile: their speed is taken to grow linearly with their GPUs")


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
        if run.unanswered:
            what = f"{summary.policy}: no answer of the solver to {run.unanswered:,} questions"
            warn(f"{what} ({run.solver_error}); the answer before stayed in force")


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


def write_html(runs: list[Run], file: Path, experiments: list[Experiment]) -> None:
    from skep.files.text import write_aside
    from skep.report.html import render_report

    clusters = dict.fromkeys(each.cluster.name for each in experiments)
    title = f"{experiments[0].trace.name} on {', '.join(clusters)}"
    command = shlex.join(["skep", *sys.argv[1:]])
    write_aside(file, render_report(runs, title=title, facts=report_facts(experiments[0]), command=command))


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


def say(runs: list[Run], given: dict[str, Any], *, is_repeated: bool) -> None:
    from skep.experiments.output import summary_dict

    if given["as_json"]:
        print(json.dumps([summary_dict(run) for run in runs], indent=2))
        return
    from rich.console import Console

    from skep.report.table import comparison_tables, means_tables

    # In a pipe a wide table is better than one that is cut at 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(*(means_tables(runs) if is_repeated else comparison_tables(runs)), sep="")
    if given["out"] is not None:
        print(f"jobs.csv and summary.json of each policy are in {given['out']}")
    if given["html"] is not None:
        print(f"report: {given['html']}")
