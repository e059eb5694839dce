"""The words and tables of bench/tenants.py; every number in them is from the run."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

import msgspec
from tenants_picture import average, p99

WAYS = ("private", "numbers", "cells", "borrowing")


class Tenant(msgspec.Struct):
    """What one VC saw. Seconds; by way of sharing."""

    name: str
    nodes: int
    jobs: int
    average_s: dict[str, float]
    p99_s: dict[str, float]
    large: int
    """Jobs of a whole node or more."""
    large_s: dict[str, float]
    later: int
    """Jobs that start later by numbers than in a private cluster."""
    later_s: float
    """How much, on average of these."""
    sooner: int
    broken: int


def tenants(case: Any, results: Any, walk: str) -> list[Tenant]:
    """The largest first, and all together at the end."""
    names = sorted(case.nodes, key=lambda vc: -case.nodes[vc])
    return [tenant(case, results, walk, {name}, name) for name in names] + [
        tenant(case, results, walk, set(names), "all")
    ]


def tenant(case: Any, results: Any, walk: str, vcs: set[str], name: str) -> Tenant:
    rows = {way: [row for row in results[walk, way].rows if row.vc in vcs] for way in WAYS}
    waits = {way: [row.queue_s or 0.0 for row in rows[way]] for way in WAYS}
    large = {way: [row.queue_s or 0.0 for row in rows[way] if row.gpus >= 8] for way in WAYS}
    starts = [(one.start_s, two.start_s) for one, two in zip(rows["private"], rows["numbers"], strict=True)]
    delays = [two - one for one, two in starts if one is not None and two is not None]
    later = [delay for delay in delays if delay > 0]
    return Tenant(
        name,
        sum(case.nodes[vc] for vc in vcs),
        len(rows["private"]),
        {way: average(waits[way]) for way in WAYS},
        {way: p99(waits[way]) for way in WAYS},
        len(large["private"]),
        {way: average(large[way]) for way in WAYS},
        len(later),
        average(later),
        sum(delay < 0 for delay in delays),
        sum(row.job_id in results[walk, "numbers"].broken for row in rows["numbers"]),
    )


# Tables ---------------------------------------------------------------------------------------------------------


def waiting_table(found: list[Tenant]) -> list[list[str]]:
    head = ["VC", "nodes", "jobs", *(f"avg {way}" for way in WAYS), *(f"p99 {way}" for way in WAYS)]
    return [head] + [
        [one.name, str(one.nodes), f"{one.jobs:,}"]
        + [span(one.average_s[way]) for way in WAYS]
        + [span(one.p99_s[way]) for way in WAYS]
        for one in found
    ]


def guarantee_table(found: list[Tenant]) -> list[list[str]]:
    head = ["VC", "broken", "later", "by, on average", "sooner", "jobs of ≥ 8 gpus", *(f"avg {way}" for way in WAYS)]
    return [head] + [
        [one.name, f"{one.broken:,}", f"{one.later:,}", span(one.later_s), f"{one.sooner:,}", f"{one.large:,}"]
        + [span(one.large_s[way]) if one.large else "" for way in WAYS]
        for one in found
    ]


def span(seconds: float) -> str:
    """Two digits are enough to compare: `0`, `47 s`, `3.1 min`, `5.2 h`."""
    if seconds < 0.5:
        return "0"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{seconds:.0f} s"


def as_text(table: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table)


def as_markdown(table: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|---" + "|---:" * (len(table[0]) - 1) + "|", *lines[1:]])


def print_tables(case: Any, results: Any) -> None:
    print(f"{len(case.trace.jobs):,} jobs of {case.trace.name}; {case.left_out} larger than their VC are left out")
    for walk in ("skip", "strict"):
        found = tenants(case, results, walk)
        print(f"\nfifo:walk={walk}, waiting\n{as_text(waiting_table(found))}")
        print(f"\nfifo:walk={walk}, by number against private\n{as_text(guarantee_table(found))}")
        print(f"preemptions with borrowing: {results[walk, 'borrowing'].preemptions:,}")


def machine() -> str:
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def page(case: Any, results: Any, where: str) -> str:
    return ""
