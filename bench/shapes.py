"""Do AntMan and Lucid show the shapes of their papers, and does Singularity keep its promises? Generated workloads.

    python -m bench.shapes             # these tables of docs/sharing-results.md, three seeds
    python -m bench.shapes antman      # one of them
    python -m bench.shapes --seeds 1

AntMan: jobs of one to eight GPUs are guaranteed and use a part of each GPU; as many jobs of one GPU are opportunistic.
Lucid: users submit the same models again and again, four in ten jobs are debug runs; a restart costs 60 s.
Singularity: jobs of three tiers ask for one and a half times the cluster; a restart costs 30 s.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterable
from statistics import fmean

import msgspec

from skep.clusters.read import read_cluster
from skep.core.cluster import Cluster
from skep.core.job import JobState
from skep.core.model import JobSpec, gpu_shape
from skep.core.share import Share
from skep.experiments.simulate import Experiment, Options
from skep.metrics.run import JobRow
from skep.profiles.native import read_native
from skep.profiles.speed import Speed
from skep.traces.trace import Trace, TraceJob
from skep.verify.play import play_jobs
from skep.verify.tiers import DEMAND, PROMISED, RESTART_S, hourly, overload

USES = {"nlp": 0.35, "vision": 0.55, "speech": 0.7, "large": 0.95}
"""The part of a GPU's compute that each model uses."""
LEFT = {"tiny": 0.97, "small": 0.9, "medium": 0.87, "large": 0.6}
"""What is left of the speed of each model beside another job."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many workloads of each kind")
    parser.add_argument("tables", nargs="*", help="antman, lucid, singularity, price (default: all)")
    given = parser.parse_args()
    for number, name in enumerate(given.tables or TABLES):
        print("\n" * (number > 0), end="")
        TABLES[name](range(given.seeds))


def antman(seeds: Iterable[int]) -> None:
    uses = ", ".join(f"{model}: {{use: {{sm: {use}}}}}" for model, use in USES.items())
    speed = read_native(f"models: {{{uses}}}", "profile").speed
    policies = {"guests only on idle GPUs": "antman:per_gpu=0", "antman": "antman"}
    print("| seed | policy | compute in use % | slowdown of guaranteed jobs, mean / worst | mean JCT of guests, h |")
    print("|---|---|---|---|---|")
    for seed in seeds:
        jobs = classes(random.Random(seed))
        work = {job.spec.id: job.work_s for job in jobs}
        compute = sum(job.work_s * job.spec.shapes[0].gpus * USES[job.spec.model] for job in jobs)
        for name, policy in policies.items():
            rows = run(policy, "8x8", jobs, speed, restart_s=0.0)
            owners = [row for row in rows if row.job_id.startswith("own")]
            slow = [row.run_s / work[row.job_id] for row in owners]
            guests = [row.jct_s or 0.0 for row in rows if row.job_id.startswith("guest")]
            end_s = max(row.finish_s or 0.0 for row in rows)
            used = compute / (64 * end_s)
            shown = f"{fmean(slow):.3f} / {max(slow):.3f}"
            print(f"| {seed} | {name} | {used * 100:.1f} | {shown} | {fmean(guests) / 3600:.2f} |")


def classes(draw: random.Random) -> list[TraceJob]:
    jobs = []
    at_s = 0.0
    for number in range(600):
        at_s += draw.expovariate(1 / 45.0)
        model = draw.choice(list(USES))
        is_guest = number % 2 == 1
        gpus = 1 if is_guest else draw.choice([1, 1, 2, 4, 8])
        share = Share(claim="opportunistic" if is_guest else "guaranteed")
        name = f"{'guest' if is_guest else 'own'}-{number}"
        work_s = min(max(draw.lognormvariate(7.8, 0.8), 60.0), 14_400.0)
        jobs.append(TraceJob(at_s, work_s, JobSpec(name, (gpu_shape(gpus),), model=model, share=share)))
    return jobs


def lucid(seeds: Iterable[int]) -> None:
    models = ", ".join(
        f"{model}: {{sharing: {{{', '.join(f'{other}: {left}' for other in LEFT)}}}}}" for model, left in LEFT.items()
    )
    speed = read_native(f"models: {{{models}}}", "profile").speed
    policies = ("fifo", "tiresias-l", "qssf", "lucid:share=false", "lucid")
    print("| cluster | load | seed | " + " | ".join(policies) + " | tiresias-l ÷ lucid |")
    print("|---" * (len(policies) + 4) + "|")
    for where, gpus, load in (("32x8", 256, 0.8), ("32x8", 256, 1.0), ("32x8", 256, 1.2), ("8x8", 64, 1.2)):
        for seed in seeds:
            jobs = recurring(random.Random(seed), gpus=gpus, load=load)
            runs = [run(policy, where, jobs, speed, restart_s=60.0) for policy in policies]
            means = [fmean(row.jct_s or 0.0 for row in rows) for rows in runs]
            shown = " | ".join(f"{mean / 3600:.2f}" for mean in means)
            print(f"| {where} | {load:g} | {seed} | {shown} | {means[1] / means[-1]:.2f} |")


def recurring(draw: random.Random, *, gpus: int, load: float) -> list[TraceJob]:
    """Jobs of a user and model take about equally long, but for debug runs. They ask for `load` times what so many
    GPUs have while jobs arrive."""
    usual = {(user, model): draw.lognormvariate(8.3, 1.2) for user in range(20) for model in LEFT}
    jobs = []
    at_s = 0.0
    for number in range(8 * gpus):
        at_s += draw.expovariate(1.0)
        user, model = draw.choice(list(usual))
        is_debug = draw.random() < 0.4
        work_s = draw.uniform(10.0, 75.0) if is_debug else usual[user, model] * draw.lognormvariate(0.0, 0.3)
        shape = gpu_shape(draw.choice([1, 1, 1, 2, 4, 8]))
        spec = JobSpec(f"job-{number}", (shape,), user=f"user-{user}", model=model)
        jobs.append(TraceJob(at_s, min(work_s, 86_400.0), spec))
    asked = sum(job.work_s * job.spec.shapes[0].gpus for job in jobs)
    scale = asked / (gpus * load * at_s)
    return [msgspec.structs.replace(job, submit_s=job.submit_s * scale) for job in jobs]


def singularity(seeds: Iterable[int]) -> None:
    print("| seed | tier | taken of | full hours | lowest part of an hour | mean | mean completion, h |")
    print("|---" * 7 + "|")
    for seed in seeds:
        jobs = overload(seed)
        run = play_jobs("singularity", "8x8", jobs, restart_s=RESTART_S)
        for tier in DEMAND:
            rows = [at for at, job in enumerate(jobs) if job.spec.share is not None and job.spec.share.tier == tier]
            taken = [at for at in rows if run.rows[at].state == JobState.SUCCEEDED]
            hours = [got for at in taken for got in hourly(run, at, RESTART_S)]
            jct_h = fmean((run.rows[at].jct_s or 0.0) / 3600 for at in taken)
            shown = f"{len(hours):,} | {min(hours):.3f} | {fmean(hours):.3f} | {jct_h:.2f}"
            print(f"| {seed} | {tier} | {len(taken)} of {len(rows)} | {shown} |")


def price(seeds: Iterable[int]) -> None:
    """What promises cost: hours below the promise of those that `singularity` takes, changes, and basic jobs."""
    print("| seed | policy | hours below the promise % | preemptions | moves | resizes | mean completion of basic, h |")
    print("|---" * 7 + "|")
    for seed in seeds:
        jobs = overload(seed)
        tiers = [job.spec.id.partition("-")[0] for job in jobs]
        taken: set[int] = set()  # those that keep their promise are asked of the other policies too
        for policy in ("singularity", "singularity:lend=3600", "fifo:walk=skip"):
            run = play_jobs(policy, "8x8", jobs, restart_s=RESTART_S)
            ended = {at for at, row in enumerate(run.rows) if row.state == JobState.SUCCEEDED}
            taken = taken or ended
            owners = [at for at in sorted(taken & ended) if tiers[at] in PROMISED]
            below = [got < PROMISED[tiers[at]] for at in owners for got in hourly(run, at, RESTART_S)]
            basic_h = fmean((run.rows[at].jct_s or 0.0) / 3600 for at in ended if tiers[at] == "basic")
            summary = run.summary
            changes = f"{summary.preemptions:,} | {summary.migrations:,} | {summary.resizes:,}"
            print(f"| {seed} | `{policy}` | {100 * fmean(below):.0f} | {changes} | {basic_h:.1f} |")


def run(
    policy: str, where: str, jobs: list[TraceJob], speed: Callable[[Cluster], Speed], *, restart_s: float
) -> list[JobRow]:
    options = Options(restart_s=restart_s)
    return list(Experiment(Trace("shapes", "table", jobs), read_cluster(where), options, speed).run(policy).rows)


TABLES = {"antman": antman, "lucid": lucid, "singularity": singularity, "price": price}

if __name__ == "__main__":
    main()
