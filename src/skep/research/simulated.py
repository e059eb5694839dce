"""Simulations from Python, without temporary files: what `skep simulate` and `skep compare` do."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from skep.core.errors import InputError, did_you_mean
from skep.experiments.parallel import Failure, PlannedRun, attempt, run_parallel, tasks_of
from skep.experiments.setup import check_options, make_experiment
from skep.experiments.simulate import Experiment, Options
from skep.metrics.run import Run
from skep.policies.own import name_class
from skep.policies.shared.vc import CELLS
from skep.profiles.read import read_profile
from skep.research.frames import rows_of
from skep.research.runs import ComparedRuns, SimulatedRun
from skep.traces.read import read_source, read_trace
from skep.traces.table import NOTHING_RENAMED, Source
from skep.traces.trace import Trace

Traced = str | Path | Trace | Iterable[Mapping[str, Any]]
"""A file, a trace, a data frame, or rows by column."""
Named = str | type
"""A policy as on the command line (`tiresias-l:queues=3250`, `./mine.py:Mine`), or a class: an order or a planner."""


def trace(
    source: Traced,
    *,
    format: str | None = None,
    rename: Mapping[str, str] = NOTHING_RENAMED,
    profile: str | Path | None = None,
) -> Trace:
    """The jobs of a file in any known format, of a data frame, or of rows: `{"job_id": …, "submit_s": …, …}`.

    `rename`: names of columns in the source → columns of Skep's format. `profile` turns the steps of a Gavel trace into
    seconds.
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | Path):
        throughputs = None if profile is None else read_profile(profile)
        return read_trace(source, format=format, profile=throughputs, renamed=rename)
    return read_source(Source("rows", csv_text(rows_of(source)), rename), format="native")


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """One reader, and so one set of checks and messages, serves files and rows."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([cell_text(row.get(name)) for name in columns])
    return text.getvalue()


def cell_text(value: object) -> str:
    """Frames have NaN where there is no value."""
    is_nothing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if is_nothing else "true" if value is True else "false" if value is False else str(value)


class RunOptions(TypedDict, total=False):
    """Those of `skep simulate`."""

    restart_s: float
    checkpoint_s: float
    round_s: float
    round_finish: Literal["exact", "boundary"]
    failures: str
    estimate_error: float


def simulate(
    trace: Traced,
    *,
    cluster: str,
    policy: Named,
    profile: str | Path | None = None,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> SimulatedRun:
    """Run a trace on a cluster under one policy. The first error is raised."""
    experiment = experiments_of(trace, [cluster], [policy], profile, [seed], options)[0]
    spec = spec_of(policy)
    return SimulatedRun(experiment, spec, experiment.run(spec))


def compare(
    trace: Traced,
    *,
    cluster: str | Sequence[str],
    policies: Sequence[Named],
    profile: str | Path | None = None,
    seeds: Sequence[int] = (0,),
    parallel: int = 1,
    **options: Unpack[RunOptions],
) -> ComparedRuns:
    """Run a trace under every policy, on every cluster, with every seed; `parallel` runs at the same time.

    A policy that fails does not cost the others: `failed` has its error."""
    clusters = [cluster] if isinstance(cluster, str) else list(cluster)
    if not (clusters and policies and seeds and parallel >= 1):
        raise InputError("compare needs a cluster, a policy, a seed, and parallel of at least 1")
    experiments = experiments_of(trace, clusters, policies, profile, seeds, options)
    tasks = tasks_of(experiments, [spec_of(policy) for policy in policies])
    results = run_parallel(tasks, parallel) if parallel > 1 else [attempt(task.label, task.run) for task in tasks]
    runs = {task.label: SimulatedRun(task.experiment, task.policy, run) for task, run in pairs(tasks, results)}
    return ComparedRuns(runs, {result.label: result.error for result in results if isinstance(result, Failure)})


def pairs(tasks: Sequence[PlannedRun], results: Sequence[Run | Failure]) -> list[tuple[PlannedRun, Run]]:
    return [(task, run) for task, run in zip(tasks, results, strict=True) if isinstance(run, Run)]


def experiments_of(
    source: Traced,
    clusters: Sequence[str],
    policies: Sequence[Named],
    profile: str | Path | None,
    seeds: Sequence[int],
    given: RunOptions,
) -> list[Experiment]:
    """One for each cluster and seed; the trace and the profile are read once."""
    jobs = trace(source, profile=profile)
    speeds = None if profile is None else read_profile(profile)
    specs = [spec_of(policy) for policy in policies]
    options = [check_options(options_of(given, seed), specs, named=str) for seed in seeds]
    return [make_experiment(jobs, cluster, each, speeds, CELLS, named=str) for cluster in clusters for each in options]


def options_of(given: RunOptions, seed: int) -> Options:
    others: dict[str, Any] = dict(given)
    finish = others.pop("round_finish", "exact")
    unknown = sorted(others.keys() - RunOptions.__annotations__.keys())
    if unknown:
        raise InputError(
            f"unknown option {unknown[0]}" + did_you_mean(unknown[0], RunOptions.__annotations__, start=", ")
        )
    if finish not in ("exact", "boundary"):
        raise InputError(f"round_finish is '{finish}', expected exact or boundary")
    return Options(seed=seed, finish_at_boundary=finish == "boundary", **others)


def spec_of(policy: Named) -> str:
    return policy if isinstance(policy, str) else name_class(policy)
