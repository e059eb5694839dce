"""Checks of policies for clusters with GPUs of different speeds, and of auctions: AlloX, Themis, Gandiva_fair,
Sia."""

from __future__ import annotations

import math

from skep.core.model import GroupRef, JobSpec, gpu_shape
from skep.metrics.run import Run
from skep.policies.allocate.auction import Parcel, log_welfare, sell
from skep.policies.allocate.trading import trade
from skep.profiles.native import Factors, NativeProfile
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, at_most, near, same
from skep.verify.play import Case, Rows, compare, finishes, play, play_jobs, starts

TIMES = ((2, 6), (3, 4), (8, 20), (5, 5))
"""Seconds of each job on a fast and on a slow GPU."""


EQUAL: Rows = ((0, 1000, 1), (0, 1000, 1))
"""On one GPU: two equal jobs."""


def play_times(policy: str, cluster: str, times: tuple[tuple[int, int], ...]) -> Run:
    """Jobs of one GPU that are all there from the beginning."""
    models = {
        f"m{number}": Factors({"fast": 1.0, "slow": fast / slow}, {1: 1.0}, {}, {})
        for number, (fast, slow) in enumerate(times)
    }
    jobs = [
        TraceJob(0.0, float(fast), JobSpec(f"j{number}", (gpu_shape(1),), model=f"m{number}", expect_s=float(fast)))
        for number, (fast, _) in enumerate(times)
    ]
    profile = NativeProfile("fast", Factors({}, {1: 1.0}, {}, {}), models)
    return play_jobs(policy, cluster, jobs, speed=profile.speed)


def allox_sum() -> list[Finding]:
    ends = [end for end in finishes(play_times("allox", "1x1:fast+1x1:slow", TIMES)) if end is not None]
    return [same("sum of the completion times", 25.0, round(sum(ends), 6))]


def allox_waits() -> list[Finding]:
    run = play_times("allox", "1x1:fast+1x1:slow", ((10, 100), (10, 100), (10, 15)))
    return [
        same("starts", (0.0, 10.0, 0.0), starts(run)),
        same("ends", (10.0, 20.0, 15.0), finishes(run)),
    ]


def themis_payments() -> list[Finding]:
    values = [[10 / (2 + 8 / k) for k in range(1, 5)], [8 / (1 + 12 / k) for k in range(1, 5)]]
    bids = [[Parcel((0,), 1e-3), *(Parcel((k,), value) for k, value in enumerate(of, 1))] for of in values]
    sale = sell(bids, (4,))
    return [
        same("GPUs of both apps", [2, 2], sale.bundles),
        near("product of their values", 1.9048, math.exp(log_welfare(bids, sale.bundles)), within=1e-4),
        near("part that the first one keeps", 0.5714, sale.kept[0], within=1e-4),
        near("part that the second one keeps", 0.6667, sale.kept[1], within=1e-4),
    ]


def themis_groups() -> list[Finding]:
    """Two trials of one app against a job alone."""
    jobs = [
        TraceJob(0.0, 1000.0, JobSpec(name, (gpu_shape(1),), expect_s=1000.0, group=GroupRef("sweep", index=at)))
        for at, name in enumerate("ab")
    ]
    jobs.append(TraceJob(0.0, 1000.0, JobSpec("c", (gpu_shape(1),), expect_s=1000.0)))
    run = play_jobs("themis:lease=100", "1x2", jobs)
    held = [row.service_gpu_s for row in run.rows]
    return [
        same("GPU-seconds of each job", [1000.0, 1000.0, 1000.0], held),
        at_most("end of the job alone", 1300.0, finishes(run)[2] or 0.0),
    ]


def fair_gangs() -> list[Finding]:
    """Each job works for as long as it has its GPUs, so their ends say how the time was divided."""
    rows = [(0, 30_000, 1)] * 8 + [(0, 30_000, 8)]
    run = play("gandiva-fair", "1x8", rows, users=["A"] * 8 + ["B"])
    ends = [end for end in finishes(run) if end is not None]
    held = [row.service_gpu_s / 60 for row in run.rows]
    return [
        same("GPU quanta of A's eight jobs and of B's gang", (4000.0, 4000.0), (sum(held[:8]), held[8])),
        same("the first and the last end, after 999 and 1,000 quanta", (59_940.0, 60_000.0), (min(ends), max(ends))),
    ]


def fair_trade() -> list[Finding]:
    speed_ups = {"A": 1.2, "B": 5.0}
    fast, slow = trade({"A": 2.0, "B": 2.0}, {"A": 6.0, "B": 6.0}, speed_ups, price=2.0)
    worth = [fast[user] * speed_ups[user] + slow[user] for user in "AB"]
    return [near("A, 8.4 before", 10.0, worth[0]), near("B, 16 before", 22.0, worth[1])]


def sia_choice() -> list[Finding]:
    """Two jobs in configurations of 1, 2 and 4 GPUs."""
    import numpy as np

    from skep.policies.sia.choice import Configurations, choose  # numpy

    waiting = 1.1
    values = np.array([[1, 1.9, 3.4], [1, 1.4, 1.6]])
    columns = Configurations(np.zeros(3, dtype=np.int64), np.array([1, 2, 4]), np.array([4]))
    found = choose(waiting - values**-0.5, columns, 2 * waiting)
    return [
        same("GPUs of both", [2, 2], columns.gpus[found.columns].tolist()),
        near("the sum", 1.57063, 2 * waiting - found.profit, within=1e-5),
    ]


def sia_types() -> list[Finding]:
    run = play_times("sia:restart=0", "1x1:fast+1x1:slow", ((10, 12), (10, 30)))
    return [same("ends", (12.0, 10.0), finishes(run))]


CHECKS = (
    Check(
        name="sia-choice",
        policy="sia",
        title="The configurations whose values to the power -0.5 add up to the least",
        source="Jayaram Subramanya et al. (Sia), SOSP 2023, by hand: on 4 GPUs the values 1, 1.9, 3.4 and 1, 1.4, 1.6 "
        "give 1.571 for two GPUs each, 1.642 for all to the first job, 1.726 for two and one",
        ask=sia_choice,
    ),
    Check(
        name="sia-types",
        policy="sia",
        title="Jobs of one size choose the GPU type: the fast one goes to the job that gains more by it",
        source="Jayaram Subramanya et al. (Sia), SOSP 2023, by hand: 10 s against 12 s, and 10 s against 30 s",
        ask=sia_types,
    ),
    Check(
        name="allox-sum",
        policy="allox",
        title="Four jobs on a fast and a slow GPU: no schedule has a smaller sum of completion times",
        source="Le et al. (AlloX), EuroSys 2020: 2, 3, 8, 5 s on the fast and 6, 4, 20, 5 s on the slow GPU; all "
        "schedules tried by hand: 25 s",
        ask=allox_sum,
    ),
    Check(
        name="allox-waits",
        policy="allox",
        title="A job waits for the fast GPU although the slow one is free",
        source="by hand: two jobs take 10 s on the fast and 100 s on the slow GPU, the third 10 and 15 s; the second "
        "ends at 20 after the first, the third at 15 on the slow one",
        ask=allox_waits,
    ),
    Check(
        name="themis-payments",
        policy="themis",
        title="Two apps bid for four GPUs: each gets two and keeps a part",
        source="Mahajan et al. (Themis), NSDI 2020, by hand for rho (2 + 8/k)/10 and (1 + 12/k)/8: alone they would "
        "have values of 2.5 and 2, together 1.667 and 1.143",
        ask=themis_payments,
    ),
    Check(
        name="themis-leases",
        policy="themis",
        title="Two equal jobs on one GPU: the one that is treated worse gets each lease",
        source="by hand: the job that waited for a lease of 100 s has the worse rho, so they take turns",
        ask=compare(
            Case("themis:lease=100", "1x1", EQUAL, {"starts": (0, 100), "ends": (1900, 2000), "preemptions": (9, 9)})
        ),
    ),
    Check(
        name="themis-groups",
        policy="themis",
        title="Jobs of one group are one app: a job alone is not behind both",
        source="by hand: two apps on two GPUs, so the job alone has about one GPU, not two thirds of one (1,500 s)",
        ask=themis_groups,
    ),
    Check(
        name="gandiva-fair-gangs",
        policy="gandiva-fair",
        title="Eight jobs of one user and a gang of eight GPUs of another have the same GPU time",
        source="Chaudhary et al. (Gandiva_fair), EuroSys 2020, by hand: equal tickets, so the eight jobs and the gang "
        "alternate; 1,000 quanta of a minute on 8 GPUs are 4,000 GPU quanta for each user",
        ask=fair_gangs,
    ),
    Check(
        name="gandiva-fair-trade",
        policy="gandiva-fair",
        title="A trade of fast for slow GPUs makes both users faster",
        source="by hand: 4 fast and 12 slow GPUs, speed-ups 1.2 and 5, price 2: A gives 2 fast GPUs for 4 slow ones",
        ask=fair_trade,
    ),
)
