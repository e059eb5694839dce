"""Checks of policies that share the time of GPU types: Gavel."""

from __future__ import annotations

from skep.core.model import JobSpec, gpu_shape
from skep.policies.gavel.problem import ShareProblem, ShareRow
from skep.profiles.native import Factors, NativeProfile
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, near, same
from skep.verify.mixed import play_times
from skep.verify.play import finishes, play_jobs

SPEEDS = ((40.0, 10.0), (12.0, 4.0), (100.0, 50.0))
"""Steps per second of three jobs on two types."""
SOURCE = "Narayanan et al. (Gavel), OSDI 2020"


def ask(objective: str, speeds: tuple[tuple[float, ...], ...], left: tuple[float, ...] = ()) -> list[tuple[float, ...]]:
    """The shares of jobs of one GPU on types with one GPU each."""
    from skep.policies.gavel.solve import solve  # numpy

    rows = [ShareRow(1.0, 1.0, 1, of, left_s=(left or (0.0,) * len(speeds))[at]) for at, of in enumerate(speeds)]
    return solve(ShareProblem(objective, (1.0,) * len(speeds[0]), rows, {})).rows


def done(speeds: tuple[tuple[float, ...], ...], shares: list[tuple[float, ...]]) -> list[float]:
    return [sum(a * b for a, b in zip(of, share, strict=True)) for of, share in zip(speeds, shares, strict=True)]


def las_level() -> list[Finding]:
    speeds = done(SPEEDS, ask("las", SPEEDS))
    least = min(speed / (sum(of) / 2) for speed, of in zip(speeds, SPEEDS, strict=True))
    two = done(SPEEDS[:2], ask("las", SPEEDS[:2]))
    both = min(speed / (sum(of) / 2) for speed, of in zip(two, SPEEDS[:2], strict=True))
    return [
        near("smallest speed, relative to an equal split", 8 / 11, least, within=1e-5),
        near("of the first two jobs alone", 1.0, both, within=1e-5),
    ]


def makespan_length() -> list[Finding]:
    left = (72_000.0, 36_000.0)
    speeds = done(SPEEDS[:2], ask("makespan", SPEEDS[:2], left))
    ends = max(steps / speed for steps, speed in zip(left, speeds, strict=True))
    return [near("seconds to the end of both", 41_400 / 11, ends, within=1e-5)]


def las_runs() -> list[Finding]:
    """The job that gains most from the fast GPU has it, the other one runs on the slow one all the time."""
    run = play_times("gavel-las", "1x1:fast+1x1:slow", ((3600, 36_000), (3600, 3600)))
    return [same("ends", (3600.0, 3600.0), finishes(run))]


def pair_runs() -> list[Finding]:
    """Each keeps 0.6 of its speed beside the other, which is more than half of the time alone."""
    models = {"m": Factors({"fast": 1.0}, {1: 1.0}, {}, {"m": 0.6})}
    profile = NativeProfile("fast", Factors({}, {1: 1.0}, {}, {}), models)
    jobs = [TraceJob(0.0, 3600.0, JobSpec(name, (gpu_shape(1),), model="m", expect_s=3600.0)) for name in "ab"]
    run = play_jobs("gavel-las:share=true", "1x1:fast", jobs, speed=profile.speed)
    return [same("ends", (6000.0, 6000.0), finishes(run))]


NONE = (0.0, 0.0)


def picks(
    objective: str,
    *,
    left_s: tuple[float, float] = NONE,
    age_s: tuple[float, float] = NONE,
    alone_s: tuple[float, float] = NONE,
    due_s: tuple[float, float] = NONE,
) -> list[tuple[float, ...]]:
    """The shares of two jobs of one GPU each on one GPU."""
    from skep.policies.gavel.solve import solve

    rows = [
        ShareRow(
            1.0, 1.0, 1, (1.0,), left_s=left_s[at], age_s=age_s[at], alone_s=alone_s[at], due_s=due_s[at], place=at
        )
        for at in range(2)
    ]
    return solve(ShareProblem(objective, (1.0,), rows, {}, costs=(1.0,))).rows


def ftf_ratio() -> list[Finding]:
    """A job that is late by as much as it would take alone gets more."""
    late, early = picks("ftf", left_s=(100.0, 100.0), age_s=(0.0, 200.0), alone_s=(0.0, 100.0))
    ratios = [100 / late[0] / 200, (200 + 100 / early[0]) / 300]
    return [near("ratio of both jobs", ratios[0], ratios[1], within=1e-4)]


def fifo_first() -> list[Finding]:
    return [near("share of the first job", 1.0, picks("fifo")[0][0], within=1e-4)]


def sjf_shortest() -> list[Finding]:
    return [near("share of the shorter job", 1.0, picks("sjf", left_s=(500.0, 100.0))[1][0], within=1e-4)]


def throughput_sum() -> list[Finding]:
    speeds = ((4.0, 1.0), (4.0, 3.0))
    shares = ask("throughput", speeds)
    return [
        near("share of the first job on the first type", 1.0, shares[0][0], within=1e-4),
        near("share of the second one on the other", 1.0, shares[1][1], within=1e-4),
    ]


def cost_cheapest() -> list[Finding]:
    from skep.policies.gavel.solve import solve

    rows = [ShareRow(1.0, 1.0, 1, (2.0, 1.0))]
    dear = solve(ShareProblem("cost", (1.0, 1.0), rows, {}, costs=(4.0, 1.0))).rows[0]
    return [near("share on the slow type, at a quarter of the price", 1.0, dear[1], within=1e-4)]


def slo_met() -> list[Finding]:
    shares = picks("cost-slo", left_s=(100.0, 100.0), due_s=(0.0, 200.0))
    return [same("the job with a deadline in 200 s gets half of the time or more", True, shares[1][0] >= 0.4999)]


def entities_share() -> list[Finding]:
    from skep.policies.gavel.solve import solve

    rows = [ShareRow(1.0, 1.0, 1, (1.0,), place=at, entity=name) for at, name in enumerate("aab")]
    shares = solve(ShareProblem("hierarchical", (1.0,), rows, {}, entities={"a": 1.0, "b": 1.0})).rows
    return [near(f"share of job {at}", part, shares[at][0], within=1e-4) for at, part in enumerate((0.25, 0.25, 0.5))]


BY_HAND = (
    ("ftf", "The late job gets more, so that both have the same ratio", ftf_ratio),
    ("fifo", "The job that was submitted first has the GPU", fifo_first),
    ("sjf", "The job that ends sooner has the GPU", sjf_shortest),
    ("throughput", "Each job has the type on which the other one loses more", throughput_sum),
    ("cost", "A job runs on the slower type if that is cheaper for its work", cost_cheapest),
    ("cost-slo", "A job with a deadline gets the time that it needs", slo_met),
    ("hierarchical", "Two jobs of one entity and one of another: each entity has half", entities_share),
)

CHECKS = (
    *(
        Check(name=f"gavel-{name}", policy=f"gavel-{name}", title=title, source=f"{SOURCE}; by hand", ask=ask_it)
        for name, title, ask_it in BY_HAND
    ),
    Check(
        name="gavel-las-level",
        policy="gavel-las",
        title="Three jobs on two types: the smallest relative speed is 8/11",
        source=f"{SOURCE}; by hand: 40 and 10, 12 and 4, 100 and 50 steps/s on types with one GPU each",
        ask=las_level,
    ),
    Check(
        name="gavel-las-runs",
        policy="gavel-las",
        title="A job that is ten times as fast on one type has it; one that does not care has the other",
        source="by hand: both end after an hour, as neither can do better",
        ask=las_runs,
    ),
    Check(
        name="gavel-las-share",
        policy="gavel-las",
        title="Two jobs that keep 0.6 of their speed beside each other share the only GPU",
        source="by hand: 3,600 s of work at 0.6",
        ask=pair_runs,
    ),
    Check(
        name="gavel-makespan",
        policy="gavel-makespan",
        title="72,000 and 36,000 steps end together after 3,763.6 s",
        source=f"{SOURCE}; by hand: 40 and 10, 12 and 4 steps/s on types with one GPU each",
        ask=makespan_length,
    ),
)
