"""Warnings: to stderr, one line each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skep.traces.trace import Trace


def warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def say_note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def warn_dropped(trace: Trace) -> None:
    """Rows of a trace are never dropped silently, and columns not ignored."""
    for text in trace.ignored:
        say_note(f"{trace.name}: {text}")
    if trace.dropped:
        from skep.traces.table import count_dropped

        dropped = sum(trace.dropped.values())
        rows = dropped + len(trace.jobs)
        warn(f"{trace.name}: {dropped:,} of {rows:,} rows dropped: {count_dropped(trace.dropped)}")
