"""The words and tables of bench/tenants.py; every number in them is from the run."""

from __future__ import annotations

from typing import Any

import msgspec

import words
from tenants_picture import average, p99, span, times

WAYS = ("private", "numbers", "cells", "borrowing")
MARGIN = 1.01
"""Differences of less than a hundredth are none."""


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
    later_s: list[float]
    """Of the jobs that start later by numbers than in a private cluster: how much."""
    sooner: int
    broken: int

    def ratio(self) -> float:
        """How many times as long its jobs wait by number as in private, on average."""
        return self.average_s["numbers"] / max(self.average_s["private"], 1.0)


def tenants(case: Any, found: Any) -> list[Tenant]:
    """Under one setting: the largest first, and all together at the end."""
    names = sorted(case.nodes, key=lambda vc: -case.nodes[vc])
    return [tenant(case, found, {name}, name) for name in names] + [tenant(case, found, set(names), "all")]


def tenant(case: Any, found: Any, vcs: set[str], name: str) -> Tenant:
    rows = {way: [row for row in found[way].rows if row.vc in vcs] for way in found}
    waits = {way: [row.queue_s or 0.0 for row in rows[way]] for way in found}
    large = {way: [row.queue_s or 0.0 for row in rows[way] if row.gpus >= 8] for way in found}
    starts = [(one.start_s, two.start_s) for one, two in zip(rows["private"], rows["numbers"], strict=True)]
    delays = [two - one for one, two in starts if one is not None and two is not None]
    return Tenant(
        name,
        sum(case.nodes[vc] for vc in vcs),
        len(rows["private"]),
        {way: average(waits[way]) for way in found},
        {way: p99(waits[way]) for way in found},
        len(large["private"]),
        {way: average(large[way]) for way in found},
        [delay for delay in delays if delay > 0],
        sum(delay < 0 for delay in delays),
        sum(row.job_id in found["numbers"].broken for row in rows["numbers"]),
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
    head = ["VC", "broken", "later", "by, on average", "at most", "sooner", "jobs of ≥ 8 gpus"]
    return [head + [f"avg {way}" for way in WAYS]] + [
        [one.name, f"{one.broken:,}", f"{len(one.later_s):,}", span(average(one.later_s))]
        + [span(max(one.later_s, default=0.0)), f"{one.sooner:,}", f"{one.large:,}"]
        + [span(one.large_s[way]) if one.large else "" for way in WAYS]
        for one in found
    ]


def setting_table(cases: Any, results: Any) -> list[list[str]]:
    """Private against numbers under every setting."""
    head = ["jobs of", "placement", "walk", "avg private", "avg numbers", "≥ 8 gpus: avg private", "avg numbers"]
    table = [[*head, "VCs longer", "the worst", "broken", "a node idle"]]
    for setting, found in results.items():
        *vcs, total = tenants(cases[setting.span], found)
        worst = max((one for one in vcs if one.jobs >= 100), key=Tenant.ratio)
        table.append(
            [f"the {setting.span} trace" if setting.span == "whole" else "busy weeks", setting.place, setting.walk]
            + [span(total.average_s[way]) for way in WAYS[:2]]
            + [span(total.large_s[way]) for way in WAYS[:2]]
            + [str(len(longer(vcs))), f"{worst.name} {times(worst.ratio())}", f"{total.broken:,}"]
            + [f"{found['numbers'].idle_share:.0%}"]
        )
    return table


def longer(vcs: list[Tenant]) -> list[Tenant]:
    """Those that wait longer by numbers than in private, the worst first."""
    worse = [one for one in vcs if one.average_s["numbers"] > MARGIN * one.average_s["private"] + 1]
    return sorted(worse, key=lambda one: -one.ratio())


def as_text(table: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table)


def as_markdown(table: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|---" + "|---:" * (len(table[0]) - 1) + "|", *lines[1:]])


def print_tables(cases: Any, results: Any) -> None:
    case = cases["whole"]
    print(f"{len(case.trace.jobs):,} jobs of {case.trace.name}; {case.left_out} larger than their VC are left out")
    for setting, found in results.items():
        if "borrowing" in found:
            seen = tenants(cases[setting.span], found)
            print(f"\n{setting.place}, walk={setting.walk}: waiting\n{as_text(waiting_table(seen))}")
            print(f"\nby number against private\n{as_text(guarantee_table(seen))}")
            print(f"preemptions with borrowing: {found['borrowing'].preemptions:,}")
    print(f"\nby number against private, all settings\n{as_text(setting_table(cases, results))}")


def machine() -> str:
    here = words.machine()
    return f"{here['cpu']}, {here['cores']} cores, Python {here['python']}"


# The page -------------------------------------------------------------------------------------------------------


def page(cases: Any, results: Any, where: str) -> str:
    case = cases["whole"]
    totals = [tenants(cases[setting.span], found)[-1] for setting, found in results.items()]
    runs = {(setting.place, setting.walk): found for setting, found in results.items() if "borrowing" in found}
    skip, strict = (tenants(case, runs["least-loaded", walk]) for walk in ("skip", "strict"))
    packed, packed_strict = (tenants(case, runs["consolidate", walk]) for walk in ("skip", "strict"))
    return PAGE.format(
        jobs=f"{skip[-1].jobs:,}",
        left_out=case.left_out,
        vcs=len(case.nodes),
        nodes=sum(case.nodes.values()),
        settings=len(results),
        settings_longer=sum(one.average_s["numbers"] > one.average_s["private"] for one in totals),
        settings_large=sum(one.large_s["numbers"] > one.large_s["private"] for one in totals),
        **sayings(skip, runs["least-loaded", "skip"]),
        strict=", ".join(map(change, longer(strict[:-1]))) or "none",
        gain_strict=gain(strict[-1]),
        gain_packed=f"{gain(packed[-1])} and {gain(packed_strict[-1])}",
        packed_private=span(packed[-1].average_s["private"]),
        packed_numbers=span(packed[-1].average_s["numbers"]),
        packed_broken=f"{packed[-1].broken:,} and {packed_strict[-1].broken:,}",
        packed_longer=", ".join(map(change, longer(packed[:-1]))) or "none",
        setting_table=as_markdown(setting_table(cases, results)),
        waiting=as_markdown(waiting_table(skip)),
        guarantee=as_markdown(guarantee_table(skip)),
        waiting_strict=as_markdown(waiting_table(strict)),
        waiting_packed=as_markdown(waiting_table(packed)),
        machine=where,
    )


def sayings(found: list[Tenant], runs: Any) -> dict[str, str]:
    """What the page says of the setting it is about."""
    *vcs, total = found
    large = [one for one in vcs if one.large]
    better = [one for one in vcs if one.average_s["numbers"] * MARGIN < one.average_s["private"]]
    return {
        "longer": ", ".join(map(change, longer(vcs))) or "none",
        "better": ", ".join(map(change, sorted(better, key=Tenant.ratio))) or "none",
        "large_vcs": str(len(large)),
        "large_longer": str(sum(one.large_s["numbers"] > MARGIN * one.large_s["private"] + 1 for one in large)),
        "broken": f"{total.broken:,}",
        "broken_vcs": str(sum(one.broken > 0 for one in vcs)),
        "later": f"{len(total.later_s):,}",
        "later_s": span(average(total.later_s)),
        "latest_s": span(max(total.later_s, default=0.0)),
        "sooner": f"{total.sooner:,}",
        "idle": f"{runs['numbers'].idle_share:.0%}",
        **{way: span(total.average_s[way]) for way in WAYS},
        "gain": gain(total),
        "preemptions": f"{runs['borrowing'].preemptions:,}",
        "loses": ", ".join(one.name for one in vcs if one.average_s["borrowing"] > one.average_s["private"] + 1)
        or "none",
    }


def gain(one: Tenant) -> str:
    """How many times less one waits with borrowing than in private."""
    return f"{one.average_s['private'] / max(one.average_s['borrowing'], 1.0):.0f}"


def change(one: Tenant) -> str:
    factor = f", {times(one.ratio())}" if one.average_s["private"] >= 60 else ""
    return f"{one.name} ({span(one.average_s['private'])} → {span(one.average_s['numbers'])}{factor})"


PAGE = """\
# Tenants on one cluster

<!-- Written by bench/tenants.py: run it again instead of changing numbers here. -->

Philly's {vcs} virtual clusters (VCs), {jobs} jobs. Each VC is promised 1.5 times the GPUs it uses on average,
rounded up to nodes of 8: {nodes} nodes in all. {left_out} jobs that ask for more than their whole VC are left out
of all runs. Four ways to share:

- (a) **private**: every VC has hardware of its own;
- (b) **numbers**: one cluster; a VC may use as many GPUs as it was promised, whichever they are;
- (c) **cells**: one cluster; a VC is promised whole nodes, all work is guaranteed, and no job borrows;
- (d) **borrowing**: as (c), but a job that does not fit in its VC runs on idle cells of others until they want them
  back.

In all of them: first come, first served, and a job that does not fit is passed by those that do
(`fifo:walk=skip`). A job insists on as few nodes as possible, up to 8 GPUs on one, and gets the *least loaded* node
that takes it. That is what Kubernetes does with quotas by number by default: `ResourceQuota` counts the
GPUs of a namespace, and the scheduler prefers the node with the most left (`LeastAllocated`: of cpu and memory, which
jobs ask for along with their GPUs). It is [known](https://www.kubernetes.dev/resources/keps/964/) to scatter what is
free until jobs of many GPUs find no room. How much depends on this choice is
[measured below](#where-numbers-are-as-good).

![Waiting of each tenant](tenants.svg)

## What one sees

**Cells keep their promise exactly.** All {jobs} jobs start and end in (c) at the second at which they do in (a);
so they do under all {settings} settings measured here, and the command fails if one does not. A tenant loses
nothing by moving into the shared cluster.

**Numbers do not.** A promise is broken when a job waits that would start at once if its VC had hardware of its own
and the same jobs running on it. That happened to {broken} jobs, in {broken_vcs} of the {vcs} VCs; with cells to
none. The GPUs are free, but scattered over nodes that other tenants use too: only for {idle} of the time up to the
last submission was there a whole idle node, and without one no job of 8 GPUs starts anywhere. {later} jobs start
later than in (a), by {later_s} on average and by {latest_s} at most.

- Longer than in (a) wait on average: {longer}.
- The same if no job may pass one that does not fit (`walk=strict`): {strict}.
- Jobs of a whole node or more wait longer in {large_longer} of the {large_vcs} VCs that have such jobs.

**Others gain, and the average hides it.** In (b) {sooner} jobs start sooner than in (a), and over all jobs the
average is {numbers} against {private}. Shorter: {better}. It looks as if there were two reasons: a VC's
small jobs, spread over the nodes of all VCs, no longer take the last whole node of their own VC; and they use the GPUs
that its gangs cannot, being scattered. The question of the paper is another one: whether each tenant gets at least
what its own hardware would give it.

**Borrowing is what sharing is for.** On average a job waits {borrowing} in (d) instead of {private} in (a): {gain}
times less ({gain_strict} times with `walk=strict`; {gain_packed} times if packed). The price is {preemptions}
preemptions of borrowers, each with its restart of 30 s. VCs that wait longer on average than in (a): {loses}.

## Where numbers are as good

By number against private, under other placements, walks, and without the two weeks at either end of the trace, in
which few jobs arrive (quotas from the use in the weeks that remain). *VCs longer*: that wait more than 1 % longer
on average. *The worst*: of the VCs with 100 jobs and more. *A node idle*: share of the time with at least one whole
node idle in (b).

{setting_table}

- `least-loaded`: the node with the most free GPUs; `random-node`: any node with room; `first-fit`: the first one;
  `consolidate`: the fullest.
- Packed (`consolidate`, as Philly's own scheduler did), numbers break {packed_broken} promises (`skip`, `strict`):
  with 1.5 times the average use there is nearly always an idle node somewhere, and a VC may use more different nodes
  than a private cluster has. The average is {packed_numbers} against {packed_private}. Longer wait: {packed_longer};
  it looks as if large jobs of these VCs start sooner and use up the number on which the small ones counted.
- So numbers can do as well as private hardware, if the cluster is roomy and every job is packed. What they cannot
  give is certainty: `skep verify hived` shows refusals of what a private cluster would take on the paper's rack under
  random requests, some with numbers, none with cells.
- On average over all jobs (b) waits longer than (a) in {settings_longer} of these {settings} settings, over the jobs of
  8 GPUs and more in {settings_large}.
- Not measured: lending by number (unused quota lent and taken back as a number, as Philly did), which Skep does not
  have; jobs that give up their wish for few nodes after a while.

## Waiting

<!-- figures: python -m bench.tenants philly.csv --waiting least-loaded,skip -->
{waiting}

## By number against private

*broken*: jobs that waited although a private cluster with the same jobs running would have started them. *later*,
*sooner*: jobs that start so in (b), compared with (a).

{guarantee}

## The same with `walk=strict`

No job passes one that does not fit.

<!-- figures (minutes): python -m bench.tenants philly.csv --waiting least-loaded,strict -->
{waiting_strict}

## The same with `place=consolidate`

Jobs that do not fit are passed (`walk=skip`).

<!-- figures (minutes): python -m bench.tenants philly.csv --waiting consolidate,skip -->
{waiting_packed}

## Make it again

```
python -m bench.tenants            # the full trace; writes this page and the picture
python -m bench.tenants --quick    # a small made trace, printed only
```

Made on {machine}.
"""
