"""The overall check: which policy is better on a trace like Philly's, and by how much."""

from __future__ import annotations

from skep.clusters.read import read_cluster
from skep.experiments.simulate import Experiment
from skep.traces.synth import synthesize
from skep.verify.check import Check, Finding, at_most, between, same
from skep.verify.play import mean_jct_s

CLUSTER, GPUS = "16x4", 64
JOBS, LOAD, SEEDS = 4000, 1.0, 4
RANKED = ("fifo", "yarn-cs", "tiresias-l", "tiresias-g", "srsf")


def philly_like() -> list[Finding]:
    mean = mean_jcts()
    best = min(mean, key=mean.__getitem__)
    return [
        same("lowest average JCT", "srsf", best),
        between("tiresias-l / srsf", 1.0, 1.5, mean["tiresias-l"] / mean["srsf"]),
        between("tiresias-g / srsf", 1.0, 1.5, mean["tiresias-g"] / mean["srsf"]),
        between("tiresias-g / tiresias-l", 0.8, 1.2, mean["tiresias-g"] / mean["tiresias-l"]),
        at_most("tiresias-l / yarn-cs", 0.5, mean["tiresias-l"] / mean["yarn-cs"]),
        at_most("tiresias-g / yarn-cs", 0.5, mean["tiresias-g"] / mean["yarn-cs"]),
        at_most("tiresias-l / fifo", 0.3, mean["tiresias-l"] / mean["fifo"]),
    ]


def mean_jcts() -> dict[str, float]:
    """For each policy, the mean over the seeds of the average JCT; the restart cost is the default one."""
    cluster = read_cluster(CLUSTER)
    sums = dict.fromkeys(RANKED, 0.0)
    for seed in range(SEEDS):
        experiment = Experiment(synthesize(jobs=JOBS, load=LOAD, seed=seed, gpus=GPUS), cluster)
        for policy in RANKED:
            sums[policy] += mean_jct_s(experiment.run(policy)) / SEEDS
    return sums


CHECKS = (
    Check(
        name="ranking",
        policy="tiresias-l",
        title="On a Philly-like trace: SRSF first, Tiresias close behind, far before YARN-CS and FIFO",
        source="Gu et al. (Tiresias), NSDI 2019: close to SRSF, several times better than YARN-CS. Average JCT here: "
        f"the mean of {SEEDS} made-up traces of {JOBS:,} jobs, load {LOAD}, on {CLUSTER}",
        ask=philly_like,
    ),
)
