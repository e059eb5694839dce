"""How long do the policies that divide GPUs by goodput take for a decision? CPU time, with question and answer.

    python -m bench.goodput                  two minutes; needs ../shared/data/goodput
    python -m bench.goodput FOLDER           with the tables of goodput elsewhere

All jobs are there at once. In the first decision nothing was shown but trials on one GPU; in the later ones every job
that runs has new step times and new gradient noise, so its fit is made anew.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import words
from bench.gavel import decisions

from skep.clusters.read import read_cluster
from skep.core.model import JobSpec, gpu_shape
from skep.experiments.simulate import Experiment, Options
from skep.profiles.profile import Profile
from skep.profiles.read import read_profile
from skep.traces.trace import Trace, TraceJob

TABLES = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "goodput"
MODELS = ("cifar10", "deepspeech2", "yolov3", "bert", "imagenet")
CASES = (
    ("sia", 160, "6x4:aws+2x8:dgx-ext+3x8:rtx", 0.05),
    ("sia", 2000, "168x4:aws+84x8:dgx-ext+84x8:rtx", 1.0),
    ("pollux", 100, "64x4:aws", 2.0),
)
"""Policy, jobs, cluster, and the seconds that a decision may take."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.goodput", description=__doc__.split("\n", 1)[0])
    parser.add_argument("tables", nargs="?", type=Path, default=TABLES)
    given = parser.parse_args()
    if not given.tables.is_dir():
        print(f"{given.tables} is not there: nothing to measure with")
        return 0
    here = words.machine()
    print(f"{here['cpu']}, {here['cores']} cores, load {here['load']:.1f}; CPU time of the first six decisions")
    profile = read_profile(given.tables)
    for policy, count, cluster, limit_s in CASES:
        trace = Trace(name="active", format="made", jobs=[made(profile, number) for number in range(count)])
        took_s = decisions(Experiment(trace, read_cluster(cluster), Options(), profile.speed), policy)
        shown = ", ".join(f"{1e3 * each:.0f}" for each in took_s)
        print(f"| `{policy}`, {count:,} jobs on `{cluster}` | {1e3 * limit_s:,.0f} ms | {shown} ms |", flush=True)
    return 0


def made(profile: Profile, number: int) -> TraceJob:
    """One model after the other, each at its smallest batch size or twice that."""
    model = MODELS[number % len(MODELS)]
    least, most = profile.batches(model) or (1, 1)
    batch = least * (1 + number % 2)
    work_s = profile.run_s(model, 1, batch) or 0.0
    sizes = {"min_gpus": 1, "max_gpus": profile.gpus_max(model), "min_batch": least, "max_batch": most}
    spec = JobSpec(str(number), (gpu_shape(1),), model=model, expect_s=work_s, batch_size=batch, **sizes)
    return TraceJob(0.0, work_s, spec)


if __name__ == "__main__":
    sys.exit(main())
