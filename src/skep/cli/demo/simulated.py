"""`skep demo --simulate`: a comparison of schedulers on a synthetic week, explained in a few lines, with its report."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skep.cli.demo.voice import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from skep.experiments.simulate import Experiment
    from skep.metrics.run import JobRow, Run

CLUSTER, GPUS = "16x8", 128
JOBS, LOAD, SEED = 2000, 0.9, 7

COMPARED = {
    "fifo": "first come, first served; a job that does not fit blocks",
    "fifo:walk=skip": "the same, but jobs that fit may pass",
    "yarn-cs": "a quota for every team, first come, first served within it",
    "tiresias-l": "least service so far goes first, preempting others",
    "srsf": "least work left goes first; it knows every duration",
}
"""Each policy with a one-line description."""


def simulate(html: Path) -> None:
    """Explain, run and write the report."""
    import gc

    from skep.cli.simulate import check_html, write_html

    gc.disable()  # as in simulate: short, and nearly nothing to collect
    check_html(html, force=False, replaces_own=True, hint="--html FILE names another place")
    experiment = make_experiment()
    tell(setting(experiment), "", "Five schedulers get the same jobs:")
    runs = [run_told(experiment, policy) for policy in COMPARED]
    show_table(runs)
    tell("", "What the numbers show:", *lessons(runs), "")
    write_html(runs, html, [experiment])
    tell(*next_lines(html))


def make_experiment() -> Experiment:
    from skep.clusters.read import read_cluster
    from skep.experiments.simulate import Experiment, Options
    from skep.traces.synth import synthesize

    trace = synthesize(jobs=JOBS, load=LOAD, seed=SEED, gpus=GPUS)
    trace.name = "A synthetic week"
    return Experiment(trace, read_cluster(CLUSTER), Options(keep_history=True))


def setting(experiment: Experiment) -> str:
    from skep.report.units import format_duration
    from skep.traces.stats import gpus_of

    jobs = experiment.trace.jobs
    single = sorted(job.work_s for job in jobs if gpus_of(job) == 1)
    most = max(gpus_of(job) for job in jobs)
    teams = len({job.spec.vc for job in jobs})
    return (
        f"A synthetic week on {len(experiment.cluster.nodes)} nodes with 8 GPUs each: {len(jobs):,} jobs of {teams} "
        f"teams, enough to keep {LOAD:.0%} of the cluster busy. {len(single) / len(jobs):.0%} of them want one GPU, "
        f"half of these for less than {format_duration(single[len(single) // 2])}; the others want up to {most:g} "
        "GPUs, some for days."
    )


def run_told(experiment: Experiment, policy: str) -> Run:
    """Printed before the run, so that the user sees progress."""
    click.echo(f"  {policy:<15} {COMPARED[policy]}")
    return experiment.run(policy)


def show_table(runs: list[Run]) -> None:
    from rich.console import Console

    from skep.report.table import comparison_tables

    Console().print(*comparison_tables(runs), sep="")
    tell("JCT: from submission to end. wait: the part of it without GPUs. held: until the very last job has ended.")


def lessons(runs: list[Run]) -> list[str]:
    """Which policy is best and why, which jobs wait and why: true for this week, as the tests check."""
    from skep.report.units import format_count, format_duration

    fifo, skip, _, tiresias, srsf = runs
    best_s, fifo_s, near_s = (average(run, lambda row: row.jct_s) for run in (srsf, fifo, tiresias))
    return [
        f"- Best is srsf: a job takes {format_duration(best_s)} on average, under fifo {format_duration(fifo_s)}, "
        f"{fifo_s / best_s:.2g} times as long. But srsf has to know how long every job will run.",
        f"- tiresias-l knows no durations and is within {near_s / best_s - 1:.0%} of that: it lets new jobs "
        f"preempt those with much service ({format_count(tiresias.summary.preemptions)} times; each goes on later "
        "where it was).",
        f"- Under fifo the small wait for the large: when the first in line needs more GPUs than are free, no job "
        f"behind it starts. Jobs of one GPU wait {format_duration(waited(fifo, is_small))} on average, while "
        f"{idle_while_waiting(fifo):.0f} of {fifo.gpu_total} GPUs are idle.",
        f"- Let them pass (walk=skip) and they wait {format_duration(waited(skip, is_small))}; now the large wait: "
        f"jobs of more than a node {format_duration(waited(skip, is_large))} instead of "
        f"{format_duration(waited(fifo, is_large))}.",
    ]


def is_small(row: JobRow) -> bool:
    return row.gpus == 1


def is_large(row: JobRow) -> bool:
    return row.gpus > 8


def waited(run: Run, kind: Callable[[JobRow], bool]) -> float:
    return average(run, lambda row: row.queue_s if kind(row) else None)


def average(run: Run, value: Callable[[JobRow], float | None]) -> float:
    values = [found for row in run.rows if (found := value(row)) is not None]
    return sum(values) / len(values)


def idle_while_waiting(run: Run) -> float:
    """Idle GPUs, on average over the time in which a job waits."""
    history = run.history
    assert history is not None
    idle = total_s = 0.0
    for at, (start_s, end_s) in enumerate(itertools.pairwise(history.at_s)):
        if history.pending_jobs[at]:
            idle += (run.gpu_total - history.busy_gpus[at]) * (end_s - start_s)
            total_s += end_s - start_s
    return idle / total_s if total_s else 0.0


def next_lines(html: Path) -> list[str]:
    return [
        f"The report is in {html}. Open it in a browser:",
        f"  {html.resolve().as_uri()}",
        "",
        "The same jobs as a file, and other schedulers on them:",
        f"  skep trace synth --jobs {JOBS} --load {LOAD:g} --gpus {GPUS} --seed {SEED} --out week.csv",
        f"  skep compare week.csv --cluster {CLUSTER} --policy fifo:walk=easy --policy las",
        "",
        "Your own history, what a scheduler does, and whether it does what it should:",
        "  skep compare YOUR-TRACE --cluster 64x8",
        "  skep policies tiresias-l",
        "  skep verify tiresias-l",
    ]
