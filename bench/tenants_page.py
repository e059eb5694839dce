"""The words and tables of bench/tenants.py; every number in them is from the run."""

from __future__ import annotations

from typing import Any

import msgspec

import words
from tenants_picture import average, p99

SIZE_JOBS_MIN = 30
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
    here = words.machine()
    return f"{here['cpu']}, {here['cores']} cores, Python {here['python']}"


def page(case: Any, results: Any, where: str) -> str:
    skip, strict = tenants(case, results, "skip"), tenants(case, results, "strict")
    both = skip[-1], strict[-1]
    gain = [one.average_s["private"] / max(one.average_s["borrowing"], 1.0) for one in both]
    return PAGE.format(
        jobs=f"{both[0].jobs:,}",
        left_out=case.left_out,
        vcs=len(case.nodes),
        nodes=sum(case.nodes.values()),
        broken=" and ".join(f"{one.broken:,}" for one in both),
        first_fit=f"{len(results['first-fit', 'numbers'].broken):,}",
        worse=worse(skip),
        worse_strict=worse(strict),
        later=f"{both[0].later:,}",
        later_s=span(both[0].later_s),
        sooner=f"{both[0].sooner:,}",
        large=f"{both[0].large:,}",
        large_private=span(both[0].large_s["private"]),
        large_numbers=span(both[0].large_s["numbers"]),
        large_borrowing=span(both[0].large_s["borrowing"]),
        private=span(both[0].average_s["private"]),
        numbers=span(both[0].average_s["numbers"]),
        borrowing=span(both[0].average_s["borrowing"]),
        gain=f"{gain[0]:.0f}",
        gain_strict=f"{gain[1]:.0f}",
        preemptions=f"{results['skip', 'borrowing'].preemptions:,}",
        loses=losers(skip),
        small=sum(one.jobs < 10 for one in skip),
        idle=f"{results['skip', 'numbers'].idle_share:.1%}",
        sizes=as_markdown(size_table(results, skip)),
        machine=where,
        waiting=as_markdown(waiting_table(skip)),
        guarantee=as_markdown(guarantee_table(skip)),
        waiting_strict=as_markdown(waiting_table(strict)),
    )


def worse(found: list[Tenant]) -> str:
    """Those that wait longer by numbers than in private."""
    names = [
        f"{one.name} ({one.average_s['numbers'] / max(one.average_s['private'], 1.0) - 1:+.0%})"
        for one in found[:-1]
        if one.average_s["numbers"] > 1.01 * one.average_s["private"] + 1
    ]
    return ", ".join(names) or "none"


def size_table(results: Any, found: list[Tenant]) -> list[list[str]]:
    """By size of job, for all and for those that wait longer by numbers; sizes of which there are some."""
    names = [one.name for one in found if one.average_s["numbers"] > 1.01 * one.average_s["private"] + 1]
    table = [["VC", "gpus", "jobs", "avg private", "avg numbers"]]
    for name in ["all", *names]:
        by_size: dict[float, list[tuple[float, float]]] = {}
        for one, two in zip(results["skip", "private"].rows, results["skip", "numbers"].rows, strict=True):
            if name in (one.vc, "all"):
                by_size.setdefault(one.gpus, []).append((one.queue_s or 0.0, two.queue_s or 0.0))
        for gpus, pairs in sorted(by_size.items()):
            if len(pairs) >= SIZE_JOBS_MIN:
                private, numbers = (average(list(values)) for values in zip(*pairs, strict=True))
                table.append([name, f"{gpus:g}", f"{len(pairs):,}", span(private), span(numbers)])
    return table


def losers(found: list[Tenant]) -> str:
    names = [one.name for one in found[:-1] if one.average_s["borrowing"] > one.average_s["private"] + 1]
    return ", ".join(names) or "none"


PAGE = """\
# Tenants on one cluster

<!-- Written by bench/tenants.py: run it again instead of changing numbers here. -->

Philly's {vcs} virtual clusters (VCs), {jobs} jobs. Each VC is promised 1.5 times the gpus it uses on average,
rounded up to nodes of 8: {nodes} nodes in all. {left_out} jobs that ask for more than their whole VC are left out
of all runs. First come, first served (`fifo:walk=skip`: a job that does not fit is passed by those that do),
`place=consolidate`, and four ways to share:

- (a) **private**: every VC has hardware of its own;
- (b) **numbers**: one cluster; a VC may use as many gpus as it was promised, whichever they are;
- (c) **cells**: one cluster; a VC is promised whole nodes, all work is guaranteed, nobody borrows;
- (d) **borrowing**: as (c), but a job that its VC has no room for runs on idle cells of others until they want them
  back.

![Waiting of each tenant](tenants.svg)

## What one sees

**Cells keep their promise exactly.** All {jobs} jobs start and end in (c) at the second at which they do in (a),
with `walk=skip` and with `walk=strict`; the command fails if one does not. A tenant loses nothing by moving into
the shared cluster.

**Borrowing is what sharing is for.** On average a job waits {borrowing} in (d) instead of {private} in (a): {gain}
times less ({gain_strict} times with `walk=strict`). The price is {preemptions} preemptions of borrowers, each with
its restart of 30 s. VCs that wait longer on average than in (a): {loses}.

**Numbers promise less than they seem to, but on this trace one hardly notices.** A promise is broken when a job
waits that would start at once if its VC had hardware of its own and the same jobs running on it. With
`place=consolidate` that happened to {broken} jobs (`skip` and `strict`); with `place=first-fit`, which packs less
carefully, to {first_fit}. The paper's case, in which the gpus of a VC are free but scattered over nodes that
others use too, needs (for jobs of up to 8
gpus) a cluster without an idle node; here there was one for {idle} of the time up to the last
submission, not least since {small} VCs with fewer than ten jobs own a node each. On average (b) even waits less
than (a), {numbers} against {private}; the {large} jobs of 8 gpus and more wait {large_numbers} instead of
{large_private} (with borrowing {large_borrowing}).

Not everybody gains in (b): {later} jobs start later than in (a), by {later_s} on average, and {sooner} sooner.
Longer on average wait with `walk=skip`: {worse}; with `walk=strict`: {worse_strict}. The table by size shows who
pays: in these VCs jobs of the largest size listed wait less than in (a), smaller ones as long or longer. It looks
as if large jobs find a place sooner on the larger cluster, and then use up the number on which the small ones of
the same VC counted; that is a shift inside the VC, not a broken promise.

What (b) cannot give is certainty. `skep verify hived` shows the other end, the rack of the paper under random
requests: refusals of what a private cluster would take, some with numbers, none with cells.

## Waiting

{waiting}

## By number against private

*broken*: jobs that waited although a private cluster with the same jobs running would have started them. *later*,
*sooner*: jobs that start so in (b), compared with (a).

{guarantee}

By size of job, all VCs and those that wait longer in (b); sizes with 30 jobs and more:

{sizes}

## The same with `walk=strict`

Nobody passes a job that does not fit.

{waiting_strict}

## Make it again

```
python -m bench.tenants            # the full trace; writes this page and the picture
python -m bench.tenants --quick    # a small made trace, printed only
```

Made on {machine}.
"""
