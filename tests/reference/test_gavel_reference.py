"""What Gavel's released simulator answered, against `compat=true`: average completion time and makespan."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import pytest

from skep.clusters.read import read_cluster
from skep.experiments.simulate import Experiment, Options
from skep.profiles.gavel import GavelProfile
from skep.profiles.read import read_profile
from skep.traces.read import read_trace

SHARED = Path(__file__).parents[3] / "shared"
GAVEL, PROFILE = SHARED / "reference" / "gavel", SHARED / "data" / "gavel" / "simulation_throughputs.json"

pytestmark = pytest.mark.skipif(
    not (GAVEL.is_dir() and PROFILE.is_file()), reason="the recorded results of Gavel are not beside the project"
)

INPUTS = {
    "mmf96": ("max_min_fairness.trace", "3x4:v100+3x4:p100+3x4:k80"),
    "single60": ("gavel_single60.trace", "1x4:v100+1x4:p100+1x4:k80"),
}
RESULTS = {"las": "max_min_fairness", "ftf": "finish_time_fairness", "makespan": "min_total_duration"}
SEEDS = range(5)


class Outcome(NamedTuple):
    jct_s: float
    makespan_s: float


@functools.cache
def profile() -> GavelProfile:
    found = read_profile(PROFILE)
    assert isinstance(found, GavelProfile)
    return found


def simulated(name: str, policy: str, seed: int = 0) -> Outcome:
    file, cluster = INPUTS[name]
    trace = read_trace(GAVEL / "input" / file, profile=profile())
    run = Experiment(trace, read_cluster(cluster), Options(restart_s=0.0, seed=seed), profile().speed).run(policy)
    return outcome([(row.jct_s or 0.0, row.finish_s or 0.0) for row in run.rows])


def recorded(name: str, result: str) -> Outcome:
    with (GAVEL / "results" / f"{name}-{result}.csv").open() as lines:
        return outcome([(float(row["jct_s"]), float(row["finish_s"])) for row in csv.DictReader(lines)])


def outcome(jobs: list[tuple[float, float]]) -> Outcome:
    return Outcome(mean(jct_s for jct_s, _ in jobs), max(finish_s for _, finish_s in jobs))


@pytest.mark.parametrize(
    ("name", "objective", "jct"),
    [("single60", "las", 0.02), ("mmf96", "las", 0.02), ("mmf96", "ftf", 0.03), ("mmf96", "makespan", 0.03)],
)
def test_gavel_with_knowledge_of_the_types(name: str, objective: str, jct: float) -> None:
    wanted = recorded(name, f"{RESULTS[objective]}_perf")
    found = simulated(name, f"gavel-{objective}:compat=true")
    assert found.jct_s == pytest.approx(wanted.jct_s, rel=jct)
    assert found.makespan_s == pytest.approx(wanted.makespan_s, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "objective", "jct", "makespan"),
    [
        ("single60", "las", 0.02, 0.02),
        ("mmf96", "las", 0.02, 0.02),
        ("mmf96", "ftf", 0.04, 0.02),
        ("mmf96", "makespan", 0.04, 0.02),
    ],
)
def test_gavel_without_knowledge_of_the_types(name: str, objective: str, jct: float, makespan: float) -> None:
    """The order of the types is random, so these are means. The last job is alone for 25,000 s, on the type that chance
    names in each round: single makespans differ by up to 3 %, and in Gavel's own run of `gavel-makespan` that job was
    3.6 % faster than on all types alike."""
    wanted = recorded(name, RESULTS[objective])
    found = [simulated(name, f"gavel-{objective}:compat=true,aware=false", seed) for seed in SEEDS]
    assert mean(each.jct_s for each in found) == pytest.approx(wanted.jct_s, rel=jct)
    assert mean(each.makespan_s for each in found) == pytest.approx(wanted.makespan_s, rel=makespan)
