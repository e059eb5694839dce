"""Shapes of schedulers for mixed clusters on generated workloads: `python -m bench.mixed_results allox` (or `themis`,
`fair`, `gavel`) prints a table of docs/mixed-results.md."""

from __future__ import annotations

import argparse
import contextlib

from skep.clusters import read_cluster
from skep.core.chance import draw
from skep.core.events import Event
from skep.core.model import JobSpec, gpu_shape
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.simulate import Experiment, Options
from skep.profiles.native import read_native
from skep.service.loop import run
from skep.traces.trace import Trace, TraceJob

SEEDS = (1, 2, 3)
CLUSTER = "2x4:v100+2x4:p100+2x4:k80"
PROFILE = """
reference: v100
models:
  resnet: {types: {v100: 1.0, p100: 0.4, k80: 0.15}, sharing: {resnet: 0.45, lm: 0.6}}
  lm: {types: {v100: 1.0, p100: 0.8, k80: 0.6}, sharing: {resnet: 0.65, lm: 0.55}}
"""
HOURS = 12
FAIR_CLUSTER = "1x4:v100+3x4:k80"


def jobs_of(seed: int) -> Trace:
    """150 jobs of four users, of one, two or four GPUs, half an hour to four hours, more than the cluster can run."""
    jobs = []
    for number in range(150):
        size = (1, 1, 2, 4)[draw(seed, number, 1) % 4]
        work_s = 1800.0 + draw(seed, number, 2) % 12_600
        at_s = float(draw(seed, number, 3) % 72_000)
        model = ("resnet", "lm")[draw(seed, number, 4) % 2]
        user = f"u{draw(seed, number, 5) % 4}"
        spec = JobSpec(str(number), (gpu_shape(size),), user=user, model=model, expect_s=work_s)
        jobs.append(TraceJob(at_s, work_s, spec))
    return Trace("mixed", "made", sorted(jobs, key=lambda job: job.submit_s))


def summary_cells(policy: str) -> list[str]:
    """Mean completion in minutes, the worst finish-time fairness and the makespan in minutes, for each seed."""
    speed = read_native(PROFILE, "profile").speed
    runs = [
        Experiment(jobs_of(seed), read_cluster(CLUSTER), Options(restart_s=30.0), speed).run(policy) for seed in SEEDS
    ]
    means = [(each.summary.jct_avg_s or 0.0) / 60 for each in runs]
    worst = [each.summary.ftf_max or 0.0 for each in runs]
    ends = [(each.summary.makespan_s or 0.0) / 60 for each in runs]
    return [" / ".join(f"{each:.{digits}f}" for each in of) for of, digits in ((means, 1), (worst, 2), (ends, 0))]


class HorizonReached(Exception):
    """The time for which work is counted is over."""


def backlog(seed: int) -> list[TraceJob]:
    """Four users with ten jobs each that never end; two of them gain little from a fast GPU."""
    jobs = []
    for user in range(4):
        for number in range(10):
            size = (1, 1, 2)[draw(seed, user, number) % 3]
            model = "lm" if user < 2 else "resnet"
            spec = JobSpec(f"{user}-{number}", (gpu_shape(size),), user=f"u{user}", model=model)
            jobs.append(TraceJob(0.0, 1e9, spec))
    return jobs


def work_by_user(policy: str, seed: int) -> list[float]:
    """Work of each user in all hours, relative to an equal part of every type."""
    profile = read_native(PROFILE, "profile")
    jobs = backlog(seed)
    experiment = Experiment(
        Trace("backlog", "made", jobs), read_cluster(FAIR_CLUSTER), Options(restart_s=30.0), profile.speed
    )
    state = State(experiment.cluster.blank(), experiment.measured())
    scheduler = Scheduler(state, experiment.planner(policy))
    engine = Simulator(experiment.jobs(policy), state.cluster, speed=profile.speed(state.cluster), restart_s=30.0)
    end_s = HOURS * 3600.0

    def look(at_s: float, events: list[Event]) -> None:
        if at_s >= end_s:
            raise HorizonReached

    with contextlib.suppress(HorizonReached):
        run(scheduler, engine, look)
    found = []
    for user in range(4):
        types = profile.by_model["lm" if user < 2 else "resnet"].types
        fair = sum(pool.total / 4 * types[pool.gpu_type] for pool in state.cluster.pools) * end_s
        mine = [job for job in state.jobs.values() if job.spec.user == f"u{user}"]
        found.append(sum(job.work_at(end_s) * job.gpus for job in mine) / fair)
    return found


def fair_cells(policy: str) -> list[str]:
    shares = [work_by_user(policy, seed) for seed in SEEDS]
    cells = [" / ".join(f"{each[user]:.2f}" for each in shares) for user in range(4)]
    return [*cells, " / ".join(f"{sum(each) / 4:.2f}" for each in shares)]


TABLES = {
    "allox": (["completion, mean (min)"], ("drf", "allox", "sjf:walk=skip"), lambda policy: summary_cells(policy)[:1]),
    "themis": (
        ["worst finish-time fairness"],
        ("tiresias-l", "themis", "drf"),
        lambda policy: summary_cells(policy)[1:2],
    ),
    "gavel": (
        ["completion, mean (min)", "makespan (min)"],
        ("gavel-las:aware=false", "gavel-las", "gavel-las:share=true"),
        lambda policy: [summary_cells(policy)[each] for each in (0, 2)],
    ),
    "fair": (
        ["user 0 (lm)", "user 1 (lm)", "user 2 (resnet)", "user 3 (resnet)", "mean"],
        ("gandiva-fair:trade=false", "gandiva-fair"),
        fair_cells,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=sorted(TABLES))
    columns, policies, cells = TABLES[parser.parse_args().table]
    print("| policy |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for policy in policies:
        print(f"| `{policy}` |", " | ".join(cells(policy)), "|")


if __name__ == "__main__":
    main()
