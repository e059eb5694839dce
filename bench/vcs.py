"""What an event costs with many virtual clusters: the same jobs and nodes, split among more and more of them.

    python -m bench.vcs [--jobs 50000] [--nodes 1000]

Prints events per second for 10 VCs and for one VC of each node, and the second as a part of the first: near 1 where the
cost of an event does not grow with the number of VCs.
"""

from __future__ import annotations

import argparse
import random
import time

from bench.tenants import make_layout

from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment, Options
from skep.testing import job, trace
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


def events_per_s(jobs: int, nodes: int, count: int) -> float:
    layout = make_layout({f"vc{number}": nodes // count for number in range(count)})
    made = made_trace(jobs, list(layout.vcs), nodes)
    experiment = Experiment(made, hardware_cluster(layout), Options(), None, layout)
    began_s = time.process_time()
    run = experiment.run("fifo:walk=skip,borrow=never")
    took_s = time.process_time() - began_s
    events: int = run.summary.events
    print(f"{count:>6,} VCs of {nodes // count} nodes: {events:,} events in {took_s:.1f} s, {events / took_s:,.0f}/s")
    return events / took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    asked = parser.parse_args()
    few, many = (events_per_s(asked.jobs, asked.nodes, count) for count in (10, asked.nodes))
    print(f"ratio {many / few:.2f}")


if __name__ == "__main__":
    main()
