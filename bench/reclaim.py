"""What it costs to push out many: every GPU runs a job of low priority, then as many jobs of a higher one arrive.

    python -m bench.reclaim [--jobs 4000] [--policies fifo,tiresias-l,srsf]

The jobs of higher priority come all at once, then one a second. Prints CPU seconds of each simulation, and as a
multiple of the first policy's in the same run, which depends less on the machine. Exit code 1 where one takes more than
three times as long: pushing a job out must not mean to look at all that run.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.support import cluster, job, trace

from skep.experiments.simulate import Experiment, Options
from skep.traces.trace import Trace

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that it runs as a file and as a module

from words import print_columns

JOBS, POLICIES, RATIO_MAX = 4000, "fifo,tiresias-l,srsf", 3.0
GAPS_S = {"all at once": 0.0, "one a second": 1.0}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reclaim", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=JOBS, help="of each priority (default %(default)s)")
    parser.add_argument("--policies", default=POLICIES, help="the first is compared with (default %(default)s)")
    given = parser.parse_args()
    table = [["arrivals", "policy", "pushed out", "seconds", "× first"]]
    worst = 0.0
    for arrivals, gap_s in GAPS_S.items():
        first_s = 0.0
        for policy in given.policies.split(","):
            pushed_out, spent_s = reclaim(given.jobs, gap_s, policy)
            first_s = first_s or spent_s
            worst = max(worst, spent_s / first_s)
            table.append([arrivals, policy, f"{pushed_out:,}", f"{spent_s:.2f}", f"{spent_s / first_s:.2f}"])
    print_columns(table)
    return 1 if worst > RATIO_MAX else 0


def reclaim(jobs: int, gap_s: float, policy: str) -> tuple[int, float]:
    """How many were pushed out, and the CPU seconds of the simulation."""
    experiment = Experiment(made_trace(jobs, gap_s), cluster(f"{jobs // 8}x8"), Options(), None, None)
    begun_s = time.process_time()
    run = experiment.run(policy)
    return run.summary.preemptions, time.process_time() - begun_s


def made_trace(jobs: int, gap_s: float) -> Trace:
    """Of one GPU each; those of low priority have 3 to 5 hours left when the others come."""
    chance = random.Random(1)
    low = [job(id=f"low{n}", at=n / 10, work=chance.uniform(20_000, 30_000), priority=-1) for n in range(jobs)]
    high = [
        job(id=f"high{n}", at=10_000 + n * gap_s, work=chance.uniform(5_000, 9_000), priority=1) for n in range(jobs)
    ]
    return trace(*low, *high)


if __name__ == "__main__":
    sys.exit(main())
