"""Checks of the Gittins index itself: its values for distributions with a known result."""

from __future__ import annotations

import math

from skep.policies.estimate.gittins import Gittins
from skep.verify.check import Check, Finding, falling, near, same

AGES = (0.0, 500.0, 1000.0, 2000.0, 3000.0)


def exponential(count: int, mean: float) -> tuple[float, ...]:
    """The quantiles in the middle of `count` equal parts: a deterministic sample."""
    return tuple(-mean * math.log(1 - (at + 0.5) / count) for at in range(count))


def pareto(count: int, *, least: float, power: float) -> tuple[float, ...]:
    """A heavy tail: P(X > x) = (least / x) ** power."""
    return tuple(least * (1 - (at + 0.5) / count) ** (-1 / power) for at in range(count))


def memoryless() -> list[Finding]:
    index = Gittins(exponential(20_000, 1000.0)).index
    return [near(f"index at {age:g}", 0.001, index(age, 500.0), within=0.02) for age in AGES]


def one_point() -> list[Finding]:
    index = Gittins((1000.0,)).index
    found = [near(f"index at {age:g}", 1 / (1000 - age), index(age, math.inf)) for age in (0, 500, 900)]
    return [
        *found,
        same("index at 0, quantum 500", 0.0, index(0.0, 500.0)),
        same("index at 1000", 0.0, index(1000.0, math.inf)),
    ]


def heavy_tail() -> list[Finding]:
    index = Gittins(pareto(20_000, least=100.0, power=1.5)).index
    return [falling("index at 100 300 1000 3000", [index(age, 500.0) for age in (100, 300, 1000, 3000)])]


def small_sample() -> list[Finding]:
    index = Gittins((100.0, 200.0, 600.0)).index
    return [
        near("index at 0, quantum 200", 2 / 500, index(0.0, 200.0)),
        near("index at 150, quantum 100", 1 / 150, index(150.0, 100.0)),
        near("index at 0, no quantum", 3 / 900, index(0.0, math.inf)),
    ]


CHECKS = (
    Check(
        name="gittins-exponential",
        policy="tiresias-g",
        title="An exponential distribution has no memory: the index is 1 / mean at every age",
        source="textbook: P(X-a <= d | X > a) / E[min(X-a, d) | X > a] = 1 / 1000, here with d = 500",
        ask=memoryless,
    ),
    Check(
        name="gittins-one-point",
        policy="tiresias-g",
        title="If all jobs take x, the index 1 / (x - a) grows with the service a",
        source="textbook: it ends after x - a for certain, so 1 / (1000 - a); "
        "0 if the quantum is too short, and beyond all samples",
        ask=one_point,
    ),
    Check(
        name="gittins-heavy-tail",
        policy="tiresias-g",
        title="With a heavy tail, a job with more service needs still more: the index falls",
        source="textbook: a decreasing hazard rate, here Pareto's 1.5 / a",
        ask=heavy_tail,
    ),
    Check(
        name="gittins-by-hand",
        policy="tiresias-g",
        title="Three samples",
        source="by hand for 100, 200, 600: 2 end within 200 for 100 + 200 + 200; past 150 one of two within 100 for "
        "50 + 100; all end for 900",
        ask=small_sample,
    ),
)
