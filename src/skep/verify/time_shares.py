"""Checks of policies that share the time of GPU types: Gavel."""

from __future__ import annotations

from skep.policies.gavel.problem import Row, ShareProblem
from skep.verify.check import Check, Finding, near, same
from skep.verify.mixed import play_times
from skep.verify.play import finishes

SPEEDS = ((40.0, 10.0), (12.0, 4.0), (100.0, 50.0))
"""Steps per second of three jobs on two types."""
SOURCE = "Narayanan et al. (Gavel), OSDI 2020"


def ask(objective: str, speeds: tuple[tuple[float, ...], ...], left: tuple[float, ...] = ()) -> list[tuple[float, ...]]:
    """The shares of jobs of one GPU on types with one GPU each."""
    from skep.policies.gavel.solve import solve  # numpy

    rows = [Row(1.0, 1.0, 1, of, left_s=(left or (0.0,) * len(speeds))[at]) for at, of in enumerate(speeds)]
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


CHECKS = (
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
        name="gavel-makespan",
        policy="gavel-makespan",
        title="72,000 and 36,000 steps end together after 3,763.6 s",
        source=f"{SOURCE}; by hand: 40 and 10, 12 and 4 steps/s on types with one GPU each",
        ask=makespan_length,
    ),
)
