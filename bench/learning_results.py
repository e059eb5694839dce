"""Shapes of schedulers that learn while jobs run: `python -m bench.learning_results sia` prints a table of
docs/learning-results.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from skep.clusters import read_cluster
from skep.experiments.simulate import Experiment, Options
from skep.profiles.read import read_profile
from skep.traces.read import read_trace

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
WORKLOAD = SHARED / "reference" / "pollux" / "input" / "sia-saturn-1.csv"
CLUSTER = "6x4:aws+2x8:dgx-ext+3x8:rtx"
POLICIES = ("sia", "pollux", "gavel-las", "tiresias-l")


def sia() -> list[str]:
    """A workload of Sia on its three kinds of nodes."""
    profile = read_profile(SHARED / "data" / "goodput")
    trace = read_trace(WORKLOAD, profile=profile)
    lines = ["| policy | JCT, mean (s) | JCT, p99 (h) | makespan (h) |", "|---|---|---|---|"]
    for policy in POLICIES:
        found = Experiment(trace, read_cluster(CLUSTER), Options(), profile.speed).run(policy).summary
        cells = f"{found.jct_avg_s:,.0f}", f"{found.jct_p99_s / 3600:.1f}", f"{found.makespan_s / 3600:.1f}"
        lines.append(f"| `{policy}` | {' | '.join(cells)} |")
    return lines


TABLES = {"sia": sia}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.learning_results")
    parser.add_argument("table", choices=TABLES)
    print("\n".join(TABLES[parser.parse_args().table]()))


if __name__ == "__main__":
    main()
