"""Checks of policies for clusters with GPUs of different speeds: AlloX."""

from __future__ import annotations

from skep.core.model import JobSpec, gpu_shape
from skep.metrics.run import Run
from skep.profiles.native import Factors, NativeProfile
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, same
from skep.verify.play import finishes, play_jobs, starts

TIMES = ((2, 6), (3, 4), (8, 20), (5, 5))
"""Seconds of each job on a fast and on a slow GPU."""


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


CHECKS = (
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
)
