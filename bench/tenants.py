"""Tenants on one cluster, shared in four ways: what does each of them wait?

    python -m bench.tenants            Philly's virtual clusters; writes docs/tenants.md and docs/tenants.svg (minutes)
    python -m bench.tenants --quick    a made trace, printed only (seconds)
    python -m bench.tenants --waiting least-loaded,skip    one table of the page, printed only

Every virtual cluster gets 1.5 times the gpus it uses on average, rounded up to nodes of 8. A job sits on as few nodes
as possible, on the least loaded that take it; three other placements, and the busy weeks alone, are measured beside it.

    private    (a) each VC has hardware of its own
    numbers    (b) one cluster; a VC may use so many gpus, whichever they are
    cells      (c) one cluster, cells; all work is guaranteed, nobody borrows
    borrowing  (d) cells, and jobs that find no room borrow idle ones

(c) must start every job when (a) does: a run in which it does not fails. For (b), a private cluster is kept beside each
VC in which the same jobs run: a job that waits although it would fit there is one whose guarantee is broken. A run over
Philly in which (b) breaks none, or makes no VC wait half as long again, fails too: the page says that it does.
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
from skep.core.plan import Plan
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment
from skep.metrics.ended import job_rows
from skep.metrics.run import JobRow
from skep.policies.place import Place
from skep.policies.shared.clusters import NumberBooks
from skep.policies.shared.planner import VcPlanner
from skep.policies.shared.vc import CELLS, NUMBERS, PRIVATE
from skep.service.loop import run
from skep.traces.read import read_trace
from skep.traces.synth import synthesize
from skep.traces.trace import Trace

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that the file can be run as it is
from tenants_page import as_markdown, machine, page, print_tables, tenants, waiting_table
from tenants_picture import picture
from tenants_places import KNOWN, placing

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
WHOLE, BUSY = "whole", "busy"
BUSY_DAYS = (14, 98)
"""Without the two weeks at either end, in which hardly anybody submits."""
WORSE = 1.5


class Setting(msgspec.Struct, frozen=True):
    """Under which the ways of sharing are compared."""

    place: str
    walk: str
    span: str = WHOLE

    def ways(self) -> tuple[str, ...]:
        """What is lent is only of interest where the page speaks of it."""
        is_told = self.place in ("least-loaded", "consolidate") and self.span == WHOLE
        return tuple(WAYS) if is_told else ("private", "numbers", "cells")


MAIN = Setting("least-loaded", "skip")
SETTINGS = tuple(
    Setting(place, walk) for place in ("least-loaded", "random-node", "first-fit", "consolidate") for walk in WALKS
)
BUSY_SETTINGS = tuple(Setting(MAIN.place, walk, BUSY) for walk in WALKS)


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


Results = dict[Setting, dict[str, Result]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tenants", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="a small made trace; nothing is written")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the page (default docs)")
    parser.add_argument(
        "--waiting", metavar="PLACE,WALK", help="print the waiting under one setting; nothing is written"
    )
    parser.add_argument("philly", nargs="?", type=Path, default=PHILLY)
    given = parser.parse_args()
    is_real = not given.quick and given.philly.is_file()
    if not is_real and not given.quick:
        print(f"{given.philly} is not there: a made trace takes its place, and nothing is written", file=sys.stderr)
    cases = philly_cases(given.philly) if is_real else {WHOLE: make_case(made_trace())}
    if given.waiting:
        setting = Setting(*given.waiting.split(","))
        print(as_markdown(waiting_table(tenants(cases[WHOLE], measure(cases, (setting,))[setting]))))
        return 0
    results = measure(cases, SETTINGS + BUSY_SETTINGS if is_real else SETTINGS)
    print_tables(cases, results)
    if is_real:
        check_numbers(cases[WHOLE], results)
        (given.out / "tenants.svg").write_text(picture(tenants(cases[WHOLE], results[MAIN])))
        (given.out / "tenants.md").write_text(page(cases, results, machine()))
    return 0


def philly_cases(file: Path) -> dict[str, Case]:
    trace = read_trace(file)
    first_s, end_s = (day * 86_400 for day in BUSY_DAYS)
    busy = [job for job in trace.jobs if first_s <= job.submit_s < end_s]
    return {WHOLE: make_case(trace), BUSY: make_case(msgspec.structs.replace(trace, jobs=busy))}


def made_trace() -> Trace:
    """Small and busy: some seconds for all runs."""
    return synthesize(jobs=1500, gpus=160, load=0.7, seed=2, vcs=5)


def make_case(trace: Trace, share: float = SHARE) -> Case:
    nodes = quotas(trace, share)
    kept = [job for job in trace.jobs if job.spec.shapes[0].gpus <= nodes[job.spec.vc] * GPUS]
    return Case(msgspec.structs.replace(trace, jobs=kept), nodes, len(trace.jobs) - len(kept))


def quotas(trace: Trace, share: float) -> dict[str, int]:
    """`share` times what each VC uses on average between the first and the last submission, in nodes."""
    span_s = submit_span_s(trace)
    used: dict[str, float] = {}
    for job in trace.jobs:
        used[job.spec.vc] = used.get(job.spec.vc, 0.0) + job.work_s * job.spec.shapes[0].gpus
    return {vc: math.ceil(share * gpu_s / span_s / GPUS) for vc, gpu_s in sorted(used.items())}


def submit_span_s(trace: Trace) -> float:
    return trace.jobs[-1].submit_s - trace.jobs[0].submit_s


def make_layout(nodes: dict[str, int]) -> Layout:
    kind = CellType("node", "gpu", GPUS, is_node=True)
    cells = [
        CellSpec("node", f"n{n}", f"n{n}", "", [CellSpec("gpu", f"n{n}/{gpu}", f"n{n}") for gpu in range(GPUS)])
        for n in range(sum(nodes.values()))
    ]
    vcs = {vc: VcLayout(vc, [Grant("node", "node", count)]) for vc, count in nodes.items()}
    return Layout({"node": kind}, cells, vcs, name="tenants")


# The runs -------------------------------------------------------------------------------------------------------


_cases: dict[str, Case] = {}
"""Inherited by the forked processes."""


def measure(cases: dict[str, Case], settings: tuple[Setting, ...]) -> Results:
    """All that are to be compared; that cells are as private is checked under every setting."""
    _cases.update(cases)
    keys = [(setting, way) for setting in settings for way in setting.ways()]
    results: Results = {setting: {} for setting in settings}
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        for (setting, way), result in zip(keys, pool.map(run_one, *zip(*keys, strict=True)), strict=True):
            results[setting][way] = result
    for found in results.values():
        check_same(found["private"], found["cells"])
    return results


def check_same(private: Result, cells: Result) -> None:
    """The headline: with cells and all work guaranteed every job starts and ends as on hardware of its own."""
    for one, other in zip(private.rows, cells.rows, strict=True):
        if (one.job_id, one.start_s, one.finish_s) != (other.job_id, other.start_s, other.finish_s):
            raise SystemExit(f"job {one.job_id} starts at {one.start_s} in private, at {other.start_s} with cells")


def check_numbers(case: Case, results: Results) -> None:
    """What the page says of numbers: jobs are refused what was promised, and some VC waits much longer."""
    for setting in (MAIN, Setting(MAIN.place, "strict")):
        *vcs, total = tenants(case, results[setting])
        if not total.broken or not any(one.jobs >= 100 and one.ratio() >= WORSE for one in vcs):
            raise SystemExit(f"{setting}: by number no promise is broken, or no VC waits {WORSE} times as long")


def run_one(setting: Setting, way: str) -> Result:
    case = _cases[setting.span]
    sharing, borrow = WAYS[way]
    layout = make_layout(case.nodes)
    cluster = hardware_cluster(layout, sharing)
    planner = Experiment(case.trace, cluster, layout=layout, sharing=sharing).planner(
        f"fifo:walk={setting.walk},borrow={borrow}"
    )
    assert isinstance(planner, VcPlanner)
    planner.make = placing(planner.make, setting.place)
    state = State(cluster)
    scheduler = Scheduler(state, planner)
    beside = Beside(state, planner, case, KNOWN[setting.place]()) if way == "numbers" else None
    run(scheduler, Simulator(case.trace.jobs, cluster), beside)
    rows = job_rows(state)
    preemptions = sum(row.preemptions for row in rows)
    if beside is None:
        return Result(rows, set(), preemptions)
    return Result(rows, beside.broken, preemptions, beside.idle_s / (submit_span_s(case.trace) or 1.0))


class Beside:
    """A private cluster beside each VC, in which the same jobs run: who waits although it would fit there?"""

    def __init__(self, state: State, planner: VcPlanner, case: Case, place: Place) -> None:
        self.state = state
        self.until_s = case.trace.jobs[-1].submit_s
        self.planner = planner
        self.place = place
        self.clusters = {vc: private_cluster(vc, count) for vc, count in case.nodes.items()}
        self.held: dict[str, Allocation] = {}
        self.broken: set[str] = set()
        self.last_s = case.trace.jobs[0].submit_s
        self.idle_s = 0.0
        self.has_idle = True

    def __call__(self, at_s: float, events: list[Event]) -> None:
        self._count_idle(min(at_s, self.until_s))
        for event in events:
            if isinstance(event, TasksExited) and event.job_id in self.held:
                self.clusters[self.state.jobs[event.job_id].spec.vc].give(self.held.pop(event.job_id))
            elif isinstance(event, TasksStarted):
                self._started(event.job_id, at_s)
        if not self.state.orders.dirty:
            self._look(at_s)

    def _count_idle(self, at_s: float) -> None:
        """Up to the last submission: how long there was a whole node that nobody used."""
        self.idle_s += (at_s - self.last_s) * self.has_idle
        self.last_s = at_s

    def _started(self, name: str, at_s: float) -> None:
        """Packed as a private cluster would; one that does not fit there had luck, and counts for nothing."""
        job = self.state.jobs[name]
        cluster = self.clusters[job.spec.vc]
        found = self.place.find(cluster, Plan({}, cluster), job, job.spec.shapes[0], at_s)
        if found is not None:
            cluster.take(found)
            self.held[name] = found

    def _look(self, at_s: float) -> None:
        self.has_idle = any(any(pool.idle.values()) for pool in self.state.cluster.pools)
        for vc in self.planner.vcs.values():
            assert vc.pipeline is not None
            for line in vc.pipeline.pending.active.values():
                job = line.entries[0][3]
                if job.id not in self.broken and self._would_fit(job.spec.vc, job.gpus):
                    cluster = self.clusters[vc.name]
                    found = self.place.find(cluster, Plan({}, cluster), job, job.spec.shapes[0], at_s)
                    if found is not None:
                        self.broken.add(job.id)

    def _would_fit(self, vc: str, gpus: float) -> bool:
        books = self.planner.vcs[vc].books
        assert isinstance(books, NumberBooks)
        return books.numbers.used_milli / 1000 + gpus <= self.clusters[vc].gpu_total


def private_cluster(vc: str, nodes: int) -> Cluster:
    return hardware_cluster(make_layout({vc: nodes}))


if __name__ == "__main__":
    sys.exit(main())
