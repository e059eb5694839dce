"""What an event costs with many virtual clusters: the same jobs and nodes, split among more and more of them.

    python -m bench.vcs [--jobs 50000] [--nodes 1000]

Prints events per second without VCs, for 10 VCs and for one VC of each node, where nobody borrows and where jobs
without room do. Each figure is also given as a part of the one with 10 VCs: near 1 where the cost of an event does not
grow with the number of VCs. Without the garbage collector, as in `skep simulate`; in CPU time.
"""

from __future__ import annotations

import argparse
import gc
import random
import time

from bench.tenants import make_layout
from tests.support import job, trace

from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment, Options
from skep.traces.trace import Trace


def made_trace(jobs: int, vcs: list[str], nodes: int) -> Trace:
    """Small jobs that keep the nodes three quarters busy."""
    chance = random.Random(1)
    spacing_s = 600.0 * 2.4 / (nodes * 8 * 0.75)
    rows = [
        job(
            chance.choice((1, 1, 2, 4)),
            id=f"j{number}",
            at=number * spacing_s,
            work=chance.uniform(100.0, 1100.0),
            vc=vcs[number % len(vcs)],
        )
        for number in range(jobs)
    ]
    return trace(*rows)


def events_per_s(jobs: int, nodes: int, count: int, policy: str) -> float:
    """With so many VCs; 0: with none."""
    layout = make_layout({f"vc{number}": nodes // max(count, 1) for number in range(max(count, 1))})
    made = made_trace(jobs, list(layout.vcs) if count else [""], nodes)
    experiment = Experiment(made, hardware_cluster(layout), Options(), None, layout if count else None)
    began_s = time.process_time()
    run = experiment.run(policy)
    return run.summary.events / (time.process_time() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    asked = parser.parse_args()
    gc.disable()
    for policy in ("fifo:walk=skip,borrow=never", "fifo:walk=skip"):
        few = events_per_s(asked.jobs, asked.nodes, 10, policy)
        for count in (0, 10, asked.nodes):
            speed = few if count == 10 else events_per_s(asked.jobs, asked.nodes, count, policy)
            print(f"{policy}: {count:>6,} VCs {speed:>8,.0f} events/s, {speed / few:.2f} of 10 VCs", flush=True)


if __name__ == "__main__":
    main()
