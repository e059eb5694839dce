"""Gandiva's shapes on generated workloads: `python -m bench.sharing_results sweeps` (or `packing`) prints a table of
docs/sharing-results.md.

Sweeps: how long until every trial of a sweep has started, with and without turns. Packing: useful work of a GPU where
many jobs use less than half of it.
"""

from __future__ import annotations

import argparse
import statistics

from skep.clusters import read_cluster
from skep.core.chance import draw
from skep.core.model import JobSpec, gpu_shape
from skep.experiments.simulate import Experiment, Options
from skep.metrics.run import Run
from skep.profiles.native import read_native
from skep.traces.trace import Trace, TraceJob

SEEDS = (1, 2, 3)
CLUSTER = "4x4:v100"
PROFILE = """
models:
  light: {use: {sm: 0.4}}
  heavy: {use: {sm: 0.9}}
  full: {use: {sm: 1.0}}
"""
SWEEPS = ("fifo:walk=skip", "gandiva:slices=false", "gandiva", "gandiva:height=4")
PACKS = ("fifo:walk=skip", "gandiva:slices=false", "gandiva:pack=false", "gandiva")


def uniform(low: float, high: float, *what: int) -> float:
    return low + (high - low) * (draw(*what) % 100_000) / 100_000


def sweeps(seed: int) -> Trace:
    """Forty sweeps, one in 40 minutes on average, of 8 to 24 trials of one GPU that take 10 to 60 minutes each."""
    jobs = []
    at_s = 0.0
    for sweep in range(40):
        at_s += uniform(0.0, 4800.0, seed, sweep, 1)
        for trial in range(8 + draw(seed, sweep, 2) % 17):
            work_s = uniform(600.0, 3600.0, seed, sweep, trial, 3)
            jobs.append(TraceJob(at_s, work_s, JobSpec(f"{sweep}-{trial}", (gpu_shape(1),), model="full")))
    return Trace("sweeps", "made", jobs)


def mixed(seed: int) -> Trace:
    """400 jobs of one or two GPUs, two thirds of which use 40 percent of a GPU, more than the cluster can run."""
    jobs = []
    for number in range(400):
        size = 1 + (draw(seed, number, 1) % 4 == 0)
        model = "heavy" if draw(seed, number, 2) % 3 == 0 else "light"
        work_s = uniform(1800.0, 14400.0, seed, number, 3)
        at_s = uniform(0.0, 180_000.0, seed, number, 4)
        jobs.append(TraceJob(at_s, work_s, JobSpec(str(number), (gpu_shape(size),), model=model)))
    return Trace("mixed", "made", sorted(jobs, key=lambda job: job.submit_s))


def play(trace: Trace, policy: str) -> Run:
    speed = read_native(PROFILE, "profile").speed
    return Experiment(trace, read_cluster(CLUSTER), Options(restart_s=30.0), speed).run(policy)


def sweep_row(policy: str, seed: int) -> list[float]:
    """Minutes until a sweep has started as a whole: mean and worst; then mean time to completion."""
    run = play(sweeps(seed), policy)
    last: dict[str, float] = {}
    for row in run.rows:
        assert row.start_s is not None
        name = row.job_id.split("-")[0]
        last[name] = max(last.get(name, 0.0), row.start_s - row.submit_s)
    waits = [wait_s / 60 for wait_s in last.values()]
    assert run.summary.jct_avg_s is not None
    return [statistics.mean(waits), max(waits), run.summary.jct_avg_s / 60]


def pack_row(policy: str, seed: int) -> list[float]:
    """Useful work in percent of the GPU time until the last job ended; mean time to completion; makespan in hours."""
    run = play(mixed(seed), policy)
    summary = run.summary
    work = sum(job.work_s * job.spec.shapes[0].gpus for job in mixed(seed).jobs)
    assert summary.jct_avg_s is not None
    assert summary.makespan_s is not None
    return [100 * work / (16 * summary.makespan_s), summary.jct_avg_s / 60, summary.makespan_s / 3600]


def table(heads: list[str], rows: dict[str, list[list[float]]]) -> str:
    lines = ["| policy | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for policy, seeds in rows.items():
        cells = [" / ".join(f"{values[column]:.1f}" for values in seeds) for column in range(len(heads))]
        lines.append(f"| `{policy}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sharing_results", description=__doc__.split("\n", 1)[0])
    parser.add_argument("table", choices=("sweeps", "packing"))
    if parser.parse_args().table == "sweeps":
        heads = ["all started, mean (min)", "all started, worst (min)", "completion, mean (min)"]
        print(table(heads, {policy: [sweep_row(policy, seed) for seed in SEEDS] for policy in SWEEPS}))
    else:
        heads = ["useful work (%)", "completion, mean (min)", "makespan (h)"]
        print(table(heads, {policy: [pack_row(policy, seed) for seed in SEEDS] for policy in PACKS}))


if __name__ == "__main__":
    main()
