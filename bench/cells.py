"""How fast are cells? CPU time in this process to place pods and gangs on a shared cluster, and how it grows.

    python -m bench.cells            500 to 8,000 nodes, about two minutes
    python -m bench.cells --quick    500 and 1,000 nodes

Nodes of 8 gpus (2 switches of 4) in racks of 10; 10 VCs that own a tenth of the nodes each; 70 % of the gpus in use,
pods come and go. Milliseconds depend on the machine, so they are shown beside their limits and never fail a run. What
can fail it (exit code 1) does not: the time against a bare loop of the same run that looks for the first of so many
nodes with enough free gpus, and how the time of a pod grows with the nodes.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from skep.core.cells.layout import CellSpec, CellType, Grant, Layout, VcLayout
from skep.scenarios.gangs import GangRequest
from skep.scenarios.scheduler import GangScheduler

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that it runs as a file and as a module

from words import as_dict, is_ok, is_within, machine, number, print_columns, yes_no

GPUS, SWITCH, RACK, VCS = 8, 4, 10, 10
SHARE, OPPORTUNISTIC_SHARE = 0.7, 0.1
SIZES = (1, 1, 1, 2, 4, 8)
ROUNDS, REQUESTS = 3, 2000
NODES = (500, 1000, 2000, 4000, 8000)

POD_MS = {1000: (0.3, 0.6), 4000: (0.4, 2.6)}
"""Nodes → (our limit, what HiveD itself takes)."""
START_S = {1000: (0.5, 0.6), 4000: (2.0, 10.3)}
GANG_MS = {1000: (30.0, 206.0)}
POD_RATIO_MAX = 30.0
"""A pod at 1,000 nodes and more against the bare scan of as many: about twice what was seen (docs/performance.md)."""
GROWTH_MAX = 2.2
"""Twice the nodes, the time of one pod: the free cells of a chain are looked through for each new mapping."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. The limit is only compared; `ratio_max` is the gate."""

    what: str
    nodes: int
    seen: float
    unit: str
    limit: float | None = None
    hived: float | None = None
    ratio: float | None = None
    ratio_max: float | None = None
    against: str = ""

    @property
    def is_within(self) -> bool | None:
        return is_within(self.seen, self.limit)

    @property
    def is_ok(self) -> bool | None:
        return is_ok(self.ratio, self.ratio_max)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cells", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="500 and 1,000 nodes only")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each figure (default %(default)s)")
    given = parser.parse_args()
    rows = []
    for row in measure(NODES[:2] if given.quick else NODES, max(given.rounds, 1)):
        print(f"{row.what}, {row.nodes:,} nodes: {row.seen:.3f} {row.unit}", file=sys.stderr)
        rows.append(row)
    if given.json:
        print(json.dumps({"machine": machine(), "rows": [as_dict(row) for row in rows]}, indent=2))
    else:
        print_table(rows)
    return 1 if any(row.is_ok is False for row in rows) else 0


def measure(sizes: tuple[int, ...], rounds: int) -> Iterator[Row]:
    """The sizes take turns, so that whatever else the machine does falls on all of them."""
    layouts = {nodes: make_layout(nodes) for nodes in sizes}
    starts: dict[int, list[float]] = {nodes: [] for nodes in sizes}
    pods: dict[int, list[float]] = {nodes: [] for nodes in sizes}
    gangs: dict[int, list[float]] = {nodes: [] for nodes in sizes}
    scans: dict[int, list[float]] = {nodes: [] for nodes in sizes}
    for seed in range(rounds):
        for nodes, layout in layouts.items():
            started_s, cells = start_s(layout)
            starts[nodes].append(started_s)
            world = Steady(cells, nodes, seed)
            pods[nodes].append(world.pod_s())
            gangs[nodes].append(world.gang_s())
            scans[nodes].append(scan_s(nodes, seed))
    yield from pod_rows(pods, scans)
    for nodes in sizes:
        yield row(f"gang of {gang_pods(nodes)} pods of 8 gpus, ask and commit", nodes, gangs, GANG_MS, "ms")
    yield from (row("start, all nodes well", nodes, starts, START_S, "s") for nodes in sizes)


def pod_rows(pods: dict[int, list[float]], scans: dict[int, list[float]]) -> Iterator[Row]:
    """One pod against the bare scan of as many nodes, and against half the nodes."""
    for nodes in pods:
        found = row("one pod, ask and commit", nodes, pods, POD_MS, "ms")
        ratio = statistics.median(pods[nodes]) / statistics.median(scans[nodes])
        gate = POD_RATIO_MAX if nodes >= 1000 else None
        yield dataclasses.replace(found, ratio=ratio, ratio_max=gate, against="first fit over a list of nodes")
    for half, nodes in zip(list(pods), list(pods)[1:], strict=False):
        found = row("growth of one pod", nodes, pods, {}, "ms")
        ratio = statistics.median(two / one for one, two in zip(pods[half], pods[nodes], strict=True))
        yield dataclasses.replace(found, ratio=ratio, ratio_max=GROWTH_MAX, against="half the nodes")


def row(what: str, nodes: int, seen: dict[int, list[float]], limits: dict[int, tuple[float, float]], unit: str) -> Row:
    limit, hived = limits.get(nodes, (None, None))
    return Row(what, nodes, statistics.median(seen[nodes]) * (1e3 if unit == "ms" else 1), unit, limit, hived)


# What is timed --------------------------------------------------------------------------------------------------


def start_s(layout: Layout) -> tuple[float, GangScheduler]:
    gc.collect()
    before_s = time.process_time()
    cells = GangScheduler(layout)
    return time.process_time() - before_s, cells


class Steady:
    """A cluster at 70 % where pods come and go."""

    def __init__(self, cells: GangScheduler, nodes: int, seed: int) -> None:
        self.cells = cells
        self.chance = random.Random(seed)
        self.limit = SHARE * nodes * GPUS
        self.used = 0
        self.count = 0
        self.running: list[str] = []
        while self.used < self.limit:
            self.submit()

    def submit(self) -> float:
        """CPU seconds to ask and, if there is room, to commit; borrowers in the way leave in between, off the clock."""
        self.count += 1
        size = self.chance.choice(SIZES)
        priority = -1 if self.chance.random() < OPPORTUNISTIC_SHARE else 0
        request = GangRequest(f"g{self.count}", f"v{self.chance.randrange(VCS)}", priority, {size: 1})
        before_s = time.process_time()
        answer = self.cells.ask(request)
        spent_s = time.process_time() - before_s
        for victim in answer.victims:
            self.end(self.running.index(victim.name))
        if answer.placement is not None:
            before_s = time.process_time()
            self.cells.allocate(request, answer.placement)
            spent_s += time.process_time() - before_s
            self.running.append(request.name)
            self.used += size
        return spent_s

    def pod_s(self) -> float:
        spent_s = 0.0
        for _ in range(REQUESTS):
            spent_s += self.submit()
            while self.used > self.limit:
                self.end(self.chance.randrange(len(self.running)))
        return spent_s / REQUESTS

    def end(self, at: int) -> None:
        self.running[at], self.running[-1] = self.running[-1], self.running[at]
        gang = self.cells.gangs[self.running.pop()]
        self.used -= gang.request.gpu_count
        self.cells.release(gang)

    def gang_s(self) -> float:
        """A VC has ended its work and asks for most or all of what it owns."""
        for gang in [gang for gang in self.cells.gangs.values() if gang.request.vc == "v0"]:
            self.cells.release(gang)
        request = GangRequest("big", "v0", 0, {GPUS: gang_pods(len(self.cells.nodes))})
        before_s = time.process_time()
        answer = self.cells.ask(request)
        assert answer.placement is not None
        for victim in answer.victims:
            self.cells.release(victim)
        self.cells.allocate(request, answer.placement)
        return time.process_time() - before_s


def gang_pods(nodes: int) -> int:
    """64, or as many as a VC of so small a cluster owns nodes."""
    return min(64, nodes // VCS)


class ScannedNode:
    __slots__ = ("free",)

    def __init__(self) -> None:
        self.free = GPUS


def scan_s(nodes: int, seed: int) -> float:
    """CPU seconds of one request in a bare loop: the first node of a list with enough free gpus."""
    chance = random.Random(seed)
    found = [ScannedNode() for _ in range(nodes)]
    running: list[tuple[ScannedNode, int]] = []
    used, spent_s = 0, 0.0
    requests = 0
    while requests < REQUESTS:
        size = chance.choice(SIZES)
        before_s = time.process_time()
        for node in found:
            if node.free >= size:
                node.free -= size
                break
        if used >= SHARE * nodes * GPUS:
            spent_s += time.process_time() - before_s
            requests += 1
        running.append((node, size))
        used += size
        while used > SHARE * nodes * GPUS:
            node, size = running.pop(chance.randrange(len(running)))
            node.free += size
            used -= size
    return spent_s / REQUESTS


def make_layout(nodes: int) -> Layout:
    types = {
        "switch": CellType("switch", "gpu", SWITCH),
        "node": CellType("node", "switch", GPUS // SWITCH, is_node=True),
        "rack": CellType("rack", "node", RACK),
    }
    racks = [make_rack(number) for number in range(nodes // RACK)]
    vcs = {f"v{number}": VcLayout(f"v{number}", [Grant("rack", "node", nodes // VCS)]) for number in range(VCS)}
    return Layout(types, racks, vcs)


def make_rack(number: int) -> CellSpec:
    nodes = []
    for at in range(RACK):
        name = f"n{number * RACK + at}"
        switches = [
            CellSpec("switch", f"{number}/{name}/{first // SWITCH}", name, "", make_gpus(number, name, first))
            for first in range(0, GPUS, SWITCH)
        ]
        nodes.append(CellSpec("node", f"{number}/{name}", name, "", switches))
    return CellSpec("rack", str(number), "", "", nodes)


def make_gpus(rack: int, node: str, first: int) -> list[CellSpec]:
    return [CellSpec("gpu", f"{rack}/{node}/{first // SWITCH}/{gpu}", node) for gpu in range(first, first + SWITCH)]


# Words ----------------------------------------------------------------------------------------------------------


def print_table(rows: list[Row]) -> None:
    names = ["what", "nodes", "limit", "seen", "", "within", "HiveD", "ratio", "gate", "ok", "ratio to"]
    table = [names]
    for row in rows:
        figures = [number(row.limit), number(row.seen, 3), row.unit, yes_no(row.is_within), number(row.hived)]
        gate = [number(row.ratio), number(row.ratio_max), yes_no(row.is_ok)]
        table.append([row.what, f"{row.nodes:,}", *figures, *gate, row.against])
    print_columns(table)


if __name__ == "__main__":
    sys.exit(main())
