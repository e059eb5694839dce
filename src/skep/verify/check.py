"""A check: a small experiment whose answer is known before it is run, from a paper or computed by hand.

It returns findings: what was examined, what was expected, what was seen, and whether they agree. A check that raises,
or does not end in time, is a finding too: the other checks still run.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator, Sequence

import msgspec

EXACT = 1e-9

LIMIT_S = 300.0
"""For each check. The longest takes a minute on a slow machine."""


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


class TimeLimitReached(BaseException):
    """Not an `Exception`, so that no handler within the experiment takes it for one of its own."""


def perform(check: Check, limit_s: float = LIMIT_S) -> Result:
    """Must be called in the main thread."""
    try:
        with time_limit(limit_s):
            findings = check.ask()
    except TimeLimitReached:
        findings = [Finding("the experiment itself", f"ends within {limit_s:g} s", "stopped, still running", False)]
    except Exception as error:
        findings = [Finding("the experiment itself", "runs", f"{type(error).__name__}: {error}", False)]
    return Result(check, findings)


@contextlib.contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise in whatever runs when the time is over, and again every second if that goes on."""

    def stop(*_: object) -> None:
        raise TimeLimitReached

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


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
