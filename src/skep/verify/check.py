"""A check: a small experiment whose answer is known before it is run, from a paper or computed by hand.

It returns findings: what was examined, what was expected, what was seen, and whether they agree. A check that raises is
a finding too: the other checks still run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec

EXACT = 1e-9


class Finding(msgspec.Struct, frozen=True):
    """Both sides as they are shown."""

    what: str
    expected: str
    seen: str
    holds: bool


class Check(msgspec.Struct, frozen=True):
    name: str
    policy: str
    """The policy or placement it is about."""
    title: str
    source: str
    """The source of the expected answer: a paper, or a computation by hand."""
    ask: Callable[[], list[Finding]]


class Result(msgspec.Struct, frozen=True):
    check: Check
    findings: list[Finding]

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)


def perform(check: Check) -> Result:
    try:
        findings = check.ask()
    except Exception as error:
        findings = [Finding("the experiment itself", "runs", f"{type(error).__name__}: {error}", False)]
    return Result(check, findings)


def same(what: str, expected: object, seen: object) -> Finding:
    return Finding(what, show(expected), show(seen), expected == seen)


def near(what: str, expected: float, seen: float, *, within: float = EXACT) -> Finding:
    """`within` is a share of what is expected; by default the effect of rounding."""
    slack = f" within {within * 100:g}%" if within > EXACT else ""
    return Finding(what, show(expected) + slack, show(seen), abs(seen - expected) <= within * abs(expected))


def between(what: str, low: float, high: float, seen: float) -> Finding:
    return Finding(what, f"{show(low)} to {show(high)}", show(seen), low <= seen <= high)


def at_most(what: str, most: float, seen: float) -> Finding:
    return Finding(what, f"at most {show(most)}", show(seen), seen <= most)


def falling(what: str, seen: Sequence[float]) -> Finding:
    holds = all(after < before for before, after in itertools.pairwise(seen))
    return Finding(what, "each below the last", show(seen), holds)


def show(value: object) -> str:
    """Numbers to four digits, GPUs by node; what never happened is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return " ".join(f"{node}:{count}" for node, count in value.items()) or "nowhere"
    if isinstance(value, list | tuple):
        return " ".join(show(item) for item in value) or "none"
    return str(value)
