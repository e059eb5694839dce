"""Tenants on one cluster, shared in four ways: what does each of them wait?

    python -m bench.tenants            Philly's virtual clusters; writes docs/tenants.md and docs/tenants.svg (minutes)
    python -m bench.tenants --quick    a made trace, printed only (seconds)

Every virtual cluster gets 1.5 times the gpus it uses on average, rounded up to nodes of 8.

    private    (a) each VC has hardware of its own
    numbers    (b) one cluster; a VC may use so many gpus, whichever they are
    cells      (c) one cluster, cells; all work is guaranteed, nobody borrows
    borrowing  (d) cells, and jobs that find no room borrow idle ones

(c) must start every job when (a) does: a run in which it does not fails. For (b), a private cluster is kept beside each
VC in which the same jobs run: a job that waits although it would fit there is one whose guarantee is broken.
"""

from __future__ import annotations

import argparse
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from skep.core.cells.layout import CellSpec, CellType, Grant, Layout, VcLayout
from skep.core.cluster import Allocation, Cluster
from skep.core.events import Event, TasksExited, TasksStarted
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment
from skep.metrics.run import JobRow
from skep.metrics.summary import job_rows
from skep.policies.place import PLACES, Place
from skep.policies.shared.planner import CELLS, NUMBERS, PRIVATE, Shared
from skep.service.loop import run
from skep.traces.read import read_trace
from skep.traces.synth import synthesize
from skep.traces.trace import Trace

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that the file can be run as it is
from tenants_page import machine, page, print_tables
from tenants_picture import picture

ROOT = Path(__file__).resolve().parent.parent
PHILLY = ROOT.parent / "shared" / "data" / "philly" / "philly.csv"
GPUS, SHARE = 8, 1.5
WAYS = {
    "private": (PRIVATE, "never"),
    "numbers": (NUMBERS, "never"),
    "cells": (CELLS, "never"),
    "borrowing": (CELLS, "auto"),
}
WALKS = ("skip", "strict")


class Case(msgspec.Struct):
    """What all runs have in common."""

    trace: Trace
    nodes: dict[str, int]
    """Of each VC."""
    left_out: int
    """Jobs larger than their VC, which could never run."""


class Result(msgspec.Struct):
    """Of one run. `broken`: jobs that waited where a private cluster of their VC would have started them."""

    rows: list[JobRow]
    broken: set[str]
    preemptions: int = 0
    idle_share: float = 0.0
    """Of the time up to the last submission: with at least one whole node idle (by numbers)."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tenants", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="a small made trace; nothing is written")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the page (default docs)")
    given = parser.parse_args()
    is_real = not given.quick and PHILLY.is_file()
    if not is_real and not given.quick:
        print(f"{PHILLY} is not there: a made trace takes its place, and nothing is written", file=sys.stderr)
    case = make_case(read_trace(PHILLY) if is_real else made_trace())
    results = measure(case)
    print_tables(case, results)
    if is_real:
        (given.out / "tenants.svg").write_text(picture(case.nodes, waits(results, "skip")))
        (given.out / "tenants.md").write_text(page(case, results, machine()))
    return 0


def made_trace() -> Trace:
    """Small and busy: some seconds for all runs."""
    return synthesize(jobs=1500, gpus=160, load=0.7, seed=1, vcs=5)


def make_case(trace: Trace, share: float = SHARE) -> Case:
    nodes = quotas(trace, share)
    kept = [job for job in trace.jobs if job.spec.shapes[0].gpus <= nodes[job.spec.vc] * GPUS]
    return Case(msgspec.structs.replace(trace, jobs=kept), nodes, len(trace.jobs) - len(kept))


def quotas(trace: Trace, share: float) -> dict[str, int]:
    """`share` times what each VC uses on average between the first and the last submission, in nodes."""
    span_s = trace.jobs[-1].submit_s - trace.jobs[0].submit_s
    used: dict[str, float] = {}
    for job in trace.jobs:
        used[job.spec.vc] = used.get(job.spec.vc, 0.0) + job.work_s * job.spec.shapes[0].gpus
    return {vc: math.ceil(share * gpu_s / span_s / GPUS) for vc, gpu_s in sorted(used.items())}


def make_layout(nodes: dict[str, int]) -> Layout:
    kind = CellType("node", "gpu", GPUS, is_node=True)
    cells = [
        CellSpec("node", f"n{n}", f"n{n}", "", [CellSpec("gpu", f"n{n}/{gpu}", f"n{n}") for gpu in range(GPUS)])
        for n in range(sum(nodes.values()))
    ]
    vcs = {vc: VcLayout(vc, [Grant("node", "node", count)]) for vc, count in nodes.items()}
    return Layout({"node": kind}, cells, vcs, name="tenants")


# The runs -------------------------------------------------------------------------------------------------------


_case: Case | None = None
"""Inherited by the forked processes."""


def measure(case: Case) -> dict[tuple[str, str], Result]:
    """By walk and way of sharing, all checked; and one with a less careful placement."""
    global _case
    _case = case
    keys = [(walk, way) for walk in WALKS for way in WAYS]
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        first_fit = pool.submit(run_one, "skip", "numbers", "first-fit")
        results = dict(zip(keys, pool.map(run_one, *zip(*keys, strict=True)), strict=True))
        results["first-fit", "numbers"] = first_fit.result()
    for walk in WALKS:
        check_same(results[walk, "private"], results[walk, "cells"])
    return results


def check_same(private: Result, cells: Result) -> None:
    """The headline: with cells and all work guaranteed every job starts and ends as on hardware of its own."""
    for one, other in zip(private.rows, cells.rows, strict=True):
        if (one.job_id, one.start_s, one.finish_s) != (other.job_id, other.start_s, other.finish_s):
            raise SystemExit(f"job {one.job_id} starts at {one.start_s} in private, at {other.start_s} with cells")


def run_one(walk: str, way: str, place: str = "consolidate") -> Result:
    assert _case is not None
    sharing, borrow = WAYS[way]
    layout = make_layout(_case.nodes)
    cluster = hardware_cluster(layout, sharing)
    planner = Experiment(_case.trace, cluster, layout=layout, sharing=sharing).planner(
        f"fifo:walk={walk},place={place},borrow={borrow}"
    )
    assert isinstance(planner, Shared)
    state = State(cluster)
    scheduler = Scheduler(state, planner)
    beside = Beside(state, planner, _case, PLACES[place]()) if way == "numbers" else None
    run(scheduler, Simulator(_case.trace.jobs, cluster), beside)
    rows = job_rows(state)
    preemptions = sum(row.preemptions for row in rows)
    if beside is None:
        return Result(rows, set(), preemptions)
    return Result(rows, beside.broken, preemptions, beside.idle_s / (_case.trace.jobs[-1].submit_s or 1.0))


class Beside:
    """A private cluster beside each VC, in which the same jobs run: who waits although it would fit there?"""

    def __init__(self, state: State, planner: Shared, case: Case, place: Place) -> None:
        self.state = state
        self.until_s = case.trace.jobs[-1].submit_s
        self.planner = planner
        self.place = place
        self.clusters = {vc: private_cluster(vc, count) for vc, count in case.nodes.items()}
        self.held: dict[str, Allocation] = {}
        self.broken: set[str] = set()
        self.last_s = self.idle_s = 0.0
        self.has_idle = True

    def __call__(self, at_s: float, events: list[Event]) -> None:
        self._count_idle(min(at_s, self.until_s))
        for event in events:
            if isinstance(event, TasksExited) and event.job_id in self.held:
                self.clusters[self.state.jobs[event.job_id].spec.vc].give(self.held.pop(event.job_id))
            elif isinstance(event, TasksStarted):
                self._started(event.job_id, at_s)
        if not self.state.dirty:
            self._look(at_s)

    def _count_idle(self, at_s: float) -> None:
        """Up to the last submission: how long there was a whole node that nobody used."""
        self.idle_s += (at_s - self.last_s) * self.has_idle
        self.last_s = at_s

    def _started(self, name: str, at_s: float) -> None:
        """Packed as a private cluster would; one that does not fit there had luck, and counts for nothing."""
        job = self.state.jobs[name]
        cluster = self.clusters[job.spec.vc]
        found = self.place.find(cluster, job, job.spec.shapes[0], at_s)
        if found is not None:
            cluster.take(found)
            self.held[name] = found

    def _look(self, at_s: float) -> None:
        self.has_idle = any(any(pool.idle.values()) for pool in self.state.cluster.pools)
        for vc in self.planner.vcs.values():
            assert vc.pipeline is not None
            for line in vc.pipeline.active.values():
                job = line.entries[0][3]
                if job.id not in self.broken and self._would_fit(job.spec.vc, job.gpus):
                    found = self.place.find(self.clusters[vc.name], job, job.spec.shapes[0], at_s)
                    if found is not None:
                        self.broken.add(job.id)

    def _would_fit(self, vc: str, gpus: float) -> bool:
        return self.planner.vcs[vc].cluster.used + gpus <= self.clusters[vc].gpu_total  # type: ignore[attr-defined]


def private_cluster(vc: str, nodes: int) -> Cluster:
    return hardware_cluster(make_layout({vc: nodes}))


def waits(results: dict[tuple[str, str], Result], walk: str) -> dict[str, dict[str, list[float]]]:
    """Way of sharing → VC → seconds waited of each job."""
    found: dict[str, dict[str, list[float]]] = {}
    for way in WAYS:
        by_vc = found[way] = {}
        for row in results[walk, way].rows:
            by_vc.setdefault(row.vc, []).append(row.queue_s or 0.0)
    return found


if __name__ == "__main__":
    sys.exit(main())
