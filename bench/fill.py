"""How fast is a cluster filled? Each placement against a bare first-fit scan of the same pods in the same run.

    python -m bench.fill                          a made list on 1,200 nodes, about a minute
    python -m bench.fill --quick                  300 nodes
    python -m bench.fill --pods FILE --nodes FILE    for example Alibaba's lists of 2023

Seconds (CPU time) depend on the machine and fail nothing but the limit of 20 s a fill. What can fail the run (exit code
1) otherwise: the time of a fill against the bare scan, which looks at one node after the other until a pod fits.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from skep.clusters.read import read_cluster
from skep.core.chance import draw
from skep.core.cluster import Cluster, NodeSpec
from skep.core.model import JobSpec, gpu_shape
from skep.experiments.fill import Filling
from skep.metrics.filled import Filled
from skep.traces.read import read_trace
from skep.traces.trace import Trace, TraceJob

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that it runs as a file and as a module

from words import as_dict, is_ok, is_within, machine, number, print_columns, yes_no

LIMIT_S = 20.0
GATES = {"fgd": 4.0, "best-fit": 2.5, "dot-product": 2.5, "gpu-packing": 2.5, "gpu-clustering": 2.5, "random": 6.0}
"""About three times what was seen: fills against the bare scan scatter by a factor of two."""
SEEDS = (42, 43, 44)

KINDS = (
    (26, 1, 1000, 11.3),
    (14, 1, 1000, 3.2),
    (14, 1, 810, 3.2),
    (12, 1, 470, 8.0),
    (8, 1, 320, 4.0),
    (12, 0, 1000, 12.5),
    (6, 1, 1000, 18.7),
    (4, 2, 1000, 24.0),
    (2, 4, 1000, 48.0),
    (2, 8, 1000, 88.0),
)
"""Of a hundred made pods: so many with these GPUs, thousandths of each, and CPUs."""


@dataclasses.dataclass(frozen=True)
class Row:
    place: str
    seconds: float
    ratio: float
    ratio_max: float
    allocated: float

    @property
    def is_within(self) -> bool | None:
        return is_within(self.seconds, LIMIT_S)

    @property
    def is_ok(self) -> bool | None:
        return is_ok(self.ratio, self.ratio_max)


def made_pods() -> Trace:
    kinds = [kind for kind in KINDS for _ in range(kind[0])]
    shapes = [gpu_shape(gpus, gpu_milli=milli, cpu=cpu, memory_gib=cpu * 2) for _, gpus, milli, cpu in kinds]
    specs = [JobSpec(f"p{at}", (shapes[draw(7, at) % len(shapes)],)) for at in range(8000)]
    return Trace("made pods", "native", [TraceJob(0.0, 1.0, spec) for spec in specs])


def made_nodes(count: int) -> Cluster:
    sizes = ((8, 96), (8, 128), (4, 64), (2, 64))
    nodes = [(at, *sizes[draw(9, at) % len(sizes)]) for at in range(count)]
    specs = [NodeSpec(f"n{at}", gpus, cpu_milli=cpus * 1000, memory_mib=cpus * 8192) for at, gpus, cpus in nodes]
    return Cluster(specs, f"{count} made nodes")


def scan(filling: Filling, seed: int) -> int:
    """Pods one after another to the first node with room for them: the baseline, in plain lists."""
    nodes = [[node.spec.cpu_milli, [1000] * node.gpu_count] for node in filling.cluster.nodes]
    asked = placed = 0
    for pod in filling.arrivals(seed):
        asked += pod.milli
        role = pod.spec.shapes[0].roles[0]
        cpu, gpus, milli = role.cpu * 1000, role.gpus, role.gpu_milli
        for node in nodes:
            if node[0] >= cpu:
                left = node[1]
                found = [gpu for gpu, rest in enumerate(left) if rest >= milli][:gpus] if gpus else []
                if len(found) == gpus:
                    node[0] -= cpu
                    for gpu in found:
                        left[gpu] -= milli
                    placed += pod.milli
                    break
        if asked >= filling.wanted:
            return placed
    raise AssertionError("arrivals never end")


def cpu_s(action: Callable[[], object]) -> float:
    gc.collect()
    began_s = time.process_time()
    action()
    return time.process_time() - began_s


def measure(filling: Filling, seeds: tuple[int, ...]) -> list[Row]:
    """Fills and scans take turns."""
    rows = []
    for place, gate in GATES.items():
        seconds, ratios, allocated = [], [], []
        for seed in seeds:
            base_s = cpu_s(lambda seed=seed: scan(filling, seed))
            found: list[Filled] = []
            fill_s = cpu_s(lambda place=place, seed=seed, found=found: found.append(filling.run(place, seed)))
            allocated.append(found[0].allocated_percent)
            seconds.append(fill_s)
            ratios.append(fill_s / base_s)
        medians = statistics.median(seconds), statistics.median(ratios)
        rows.append(Row(place, *medians, gate, statistics.mean(allocated)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fill", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="300 nodes, one seed")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--pods", help="a trace instead of the made list")
    parser.add_argument("--nodes", help="a cluster instead of the made one")
    given = parser.parse_args()
    pods = read_trace(given.pods, keeps_unscheduled=True) if given.pods else made_pods()
    nodes = read_cluster(given.nodes) if given.nodes else made_nodes(300 if given.quick else 1200)
    rows = measure(Filling(pods, nodes, 1.3), SEEDS[:1] if given.quick else SEEDS)
    if given.json:
        print(json.dumps({"machine": machine(), "rows": [as_dict(row) for row in rows]}, indent=2))
    else:
        table = [["place", "CPU s", "limit", "× scan", "gate", "allocated %", "ok"]]
        for row in rows:
            figures = [number(row.seconds), number(LIMIT_S, 0), number(row.ratio), number(row.ratio_max, 0)]
            table.append([row.place, *figures, number(row.allocated), yes_no(bool(row.is_ok and row.is_within))])
        print_columns(table)
    return 0 if all(row.is_ok and row.is_within for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
