"""How much do made traces resemble Philly's? The table of docs/reference/traces.md.

    python -m bench.made_traces                   marginals, persistence, VCs: a minute
    python -m bench.made_traces --waiting         and average waiting under three policies on 56x8: some minutes
    python -m bench.made_traces philly.csv        the same with Philly's file elsewhere than in ../shared/data

Each figure of the made traces is the smallest and the largest of five seeds, at Philly's number of jobs and load.
Exit code 1 if the waiting of a made trace differs from Philly's by more than a factor of 2.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from skep.clusters.read import read_cluster
from skep.experiments.simulate import Experiment
from skep.traces.read import read_trace
from skep.traces.stats import describe, gpu_hours_of, gpus_of, offered_load
from skep.traces.synth import GPUS, synthesize
from skep.traces.trace import Trace

PHILLY = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "philly" / "philly.csv"
SEEDS = range(10, 15)
POLICIES = ("fifo:walk=skip", "srsf", "tiresias-l")
FACTOR_MAX = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.made_traces", description=__doc__.split("\n", 1)[0])
    parser.add_argument("philly", nargs="?", type=Path, default=PHILLY)
    parser.add_argument("--waiting", action="store_true", help="also simulate all of them")
    given = parser.parse_args()
    if not given.philly.is_file():
        print(f"{given.philly} is not there: nothing to compare with")
        return 0
    philly = read_trace(given.philly)
    load = offered_load(philly, gpus=GPUS) or 1.0
    made = [synthesize(jobs=len(philly.jobs), load=load, seed=seed) for seed in SEEDS]
    print("| | Philly | synthetic |\n|---|---|---|")
    for name, figure in FIGURES.items():
        print(f"| {name} | {show(figure(philly))} | {span([figure(trace) for trace in made])} |", flush=True)
    return 0 if not given.waiting else compare_waiting(philly, made)


def compare_waiting(philly: Trace, made: Sequence[Trace]) -> int:
    is_near = True
    for policy in POLICIES:
        wanted = waiting(philly, policy)
        found = [waiting(trace, policy) for trace in made]
        is_near &= all(1 / FACTOR_MAX <= value / wanted <= FACTOR_MAX for value in found)
        print(f"| average waiting, `{policy}` (s) | {show(wanted)} | {span(found)} |", flush=True)
    return 0 if is_near else 1


def waiting(trace: Trace, policy: str) -> float:
    return Experiment(trace, read_cluster("56x8")).run(policy).summary.queue_avg_s or 0.0


def show(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def span(values: Sequence[float]) -> str:
    return f"{show(min(values))} to {show(max(values))}"


def durations(share: str) -> Callable[[Trace], float]:
    return lambda trace: describe(trace).duration_s[share]


def jobs_of_size(gpus: int) -> Callable[[Trace], float]:
    return lambda trace: 100 * sum(gpus_of(job) == gpus for job in trace.jobs) / len(trace.jobs)


def time_of_size(gpus: int) -> Callable[[Trace], float]:
    def found(trace: Trace) -> float:
        part = sum(gpu_hours_of(job) for job in trace.jobs if gpus_of(job) == gpus)
        return 100 * part / sum(map(gpu_hours_of, trace.jobs))

    return found


def counts(trace: Trace, step_s: float) -> list[int]:
    start_s = trace.jobs[0].submit_s
    found = Counter(int((job.submit_s - start_s) // step_s) for job in trace.jobs)
    return [found[at] for at in range(max(found) + 1)]


def burstiness(step_s: float) -> Callable[[Trace], float]:
    def found(trace: Trace) -> float:
        values = counts(trace, step_s)
        return statistics.pvariance(values) / statistics.mean(values)

    return found


def persistence(lag_h: int) -> Callable[[Trace], float]:
    """Correlation of the logarithm of one hour's submissions with those of the hour `lag_h` later."""

    def found(trace: Trace) -> float:
        values = [math.log1p(count) for count in counts(trace, 3600)]
        return statistics.correlation(values[:-lag_h], values[lag_h:])

    return found


def gaps(share: float) -> Callable[[Trace], float]:
    def found(trace: Trace) -> float:
        between = sorted(after.submit_s - before.submit_s for before, after in pairwise(trace.jobs))
        return between[int(share * len(between))]

    return found


def vc_share(rank: int, *, by_time: bool) -> Callable[[Trace], float]:
    def found(trace: Trace) -> float:
        parts: Counter[str] = Counter()
        for job in trace.jobs:
            parts[job.spec.vc] += gpu_hours_of(job) if by_time else 1  # type: ignore[assignment]
        ranked = sorted(parts.values(), reverse=True)
        return 100 * ranked[rank] / sum(ranked)

    return found


def in_sweeps(trace: Trace) -> float:
    """Share of jobs that follow another one of their VC within a minute."""
    last: dict[str, float] = {}
    found = 0
    for job in trace.jobs:
        found += job.submit_s - last.get(job.spec.vc, -math.inf) <= 60
        last[job.spec.vc] = job.submit_s
    return 100 * found / len(trace.jobs)


def busiest_weeks(trace: Trace) -> float:
    """Load of the busiest eight weeks in a row: what a queue remembers."""
    week_s = 7 * 86400
    start_s = trace.jobs[0].submit_s
    hours: Counter[int] = Counter()
    for job in trace.jobs:
        hours[int((job.submit_s - start_s) // week_s)] += gpu_hours_of(job)  # type: ignore[assignment]
    weeks = [hours[at] for at in range(max(hours) + 1)]
    return max(sum(weeks[at : at + 8]) for at in range(max(len(weeks) - 7, 1))) / (GPUS * 8 * week_s / 3600)


FIGURES: dict[str, Callable[[Trace], float]] = {
    **{f"duration {share} (s)": durations(share) for share in ("p10", "p25", "p50", "p75", "p90", "p99", "mean")},
    **{f"jobs with {gpus} GPU{'s' * (gpus > 1)} (%)": jobs_of_size(gpus) for gpus in (1, 2, 4, 8, 16)},
    **{f"GPU time of jobs with {gpus} GPU{'s' * (gpus > 1)} (%)": time_of_size(gpus) for gpus in (1, 4, 8, 16)},
    "GPU hours": lambda trace: sum(map(gpu_hours_of, trace.jobs)),
    "jobs per minute, variance ÷ mean": burstiness(60),
    "jobs per hour, variance ÷ mean": burstiness(3600),
    "jobs per day, variance ÷ mean": burstiness(86400),
    "most jobs in a minute": lambda trace: max(counts(trace, 60)),
    "most jobs in an hour": lambda trace: max(counts(trace, 3600)),
    "time to the next job p50 (s)": gaps(0.5),
    "time to the next job p90 (s)": gaps(0.9),
    "time to the next job p99 (s)": gaps(0.99),
    "jobs within 60 s after another of their VC (%)": in_sweeps,
    **{f"autocorrelation of hourly log counts, {lag} h": persistence(lag) for lag in (1, 24, 48, 168)},
    "load of the busiest eight weeks": busiest_weeks,
    **{f"VC {rank + 1} by jobs, share of jobs (%)": vc_share(rank, by_time=False) for rank in (0, 1, 4, 8)},
    **{f"VC {rank + 1} by GPU time, share of it (%)": vc_share(rank, by_time=True) for rank in (0, 1, 4, 8)},
}

if __name__ == "__main__":
    sys.exit(main())
