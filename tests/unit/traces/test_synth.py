"""Made traces: what was asked for, like Philly, and the same bytes every time."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skep.core.errors import InputError
from skep.profiles.gavel import read_gavel_table
from skep.traces.read import read_trace
from skep.traces.stats import describe, gpus_of, offered_load, quantile, sizes
from skep.traces.stats import vcs as by_vc
from skep.traces.synth import synthesize, synthesize_gavel
from skep.traces.trace import Trace
from skep.traces.write import native_text, write_native

TEN_THOUSAND = synthesize(jobs=10_000, load=0.8, seed=7)


@pytest.mark.parametrize("jobs", [1, 2, 37, 5000])
def test_there_are_as_many_jobs_as_asked_for(jobs: int) -> None:
    found = synthesize(jobs=jobs, load=0.8, seed=1).jobs
    assert len({job.spec.id for job in found}) == jobs
    assert found[0].submit_s == 0
    assert found == sorted(found, key=lambda job: job.submit_s)


@pytest.mark.parametrize(("load", "gpus"), [(0.5, 448), (0.95, 448), (1.3, 64), (0.8, 10_000)])
def test_the_load_is_the_one_asked_for(load: float, gpus: int) -> None:
    trace = synthesize(jobs=3000, load=load, gpus=gpus, seed=3)
    assert offered_load(trace, gpus=gpus) == pytest.approx(load, rel=1e-3)


def test_no_job_is_larger_than_the_cluster() -> None:
    assert max(map(gpus_of, synthesize(jobs=5000, load=1, seed=0, gpus=6).jobs)) == 4


def test_there_are_no_more_virtual_clusters_than_asked_for() -> None:
    assert {job.spec.vc for job in synthesize(jobs=2000, load=1, seed=0, vcs=2).jobs} == {"vc-01", "vc-02"}
    assert len({job.spec.vc for job in TEN_THOUSAND.jobs}) <= 15


@pytest.mark.parametrize("vcs", [1, 4, 14, 15, 40])
def test_virtual_clusters_are_uneven(vcs: int) -> None:
    """Philly's largest has a quarter of the GPU time; half of its VCs together have a tenth."""
    parts = [part.gpu_hours for part in by_vc(synthesize(jobs=10_000, load=0.8, seed=7, vcs=vcs).jobs)]
    smaller = sum(parts[: vcs // 2 - 1 : -1]) if vcs > 1 else 0.0
    assert smaller <= 0.25 * sum(parts)


@pytest.mark.parametrize("seed", range(4))
def test_busy_times_persist(seed: int) -> None:
    """An hour resembles the same hour of the day before: the queues of weeks depend on it."""
    jobs = synthesize(jobs=40_000, load=0.8, seed=seed).jobs
    counts = [0] * (int(jobs[-1].submit_s) // 3600 + 1)
    for job in jobs:
        counts[int(job.submit_s) // 3600] += 1
    assert correlation([math.log1p(count) for count in counts], 24) > 0.25


def correlation(values: list[float], lag: int) -> float:
    mean = sum(values) / len(values)
    around = [value - mean for value in values]
    return sum(a * b for a, b in zip(around, around[lag:], strict=False)) / sum(a * a for a in around)


def test_most_jobs_are_small_and_most_time_goes_to_the_others() -> None:
    parts = {part.name: part for part in sizes(TEN_THOUSAND.jobs)}
    total = sum(part.gpu_hours for part in parts.values())
    assert 0.88 < parts["1"].jobs / 10_000 < 0.97
    assert parts["1"].gpu_hours / total < 0.4
    assert parts["8"].gpu_hours / total > 0.3


def test_durations_reach_from_minutes_to_weeks() -> None:
    found = describe(TEN_THOUSAND).duration_s
    assert found["p10"] < 120
    assert 600 < found["p50"] < 2000
    assert found["max"] > 14 * 86400


def test_jobs_come_in_bursts() -> None:
    gaps = sorted(b.submit_s - a.submit_s for a, b in zip(TEN_THOUSAND.jobs, TEN_THOUSAND.jobs[1:], strict=False))
    mean = sum(gaps) / len(gaps)
    assert quantile(gaps, 0.5) < mean / 5


def test_models_are_of_both_kinds() -> None:
    assert {"vgg16", "resnet50"} <= {job.spec.model for job in TEN_THOUSAND.jobs}


def test_another_seed_makes_another_trace() -> None:
    assert native_text(synthesize(jobs=50, load=1, seed=1)) != native_text(synthesize(jobs=50, load=1, seed=2))


def test_a_made_trace_survives_its_file(tmp_path: Path) -> None:
    write_native(TEN_THOUSAND, tmp_path / "made.csv")
    assert read_trace(tmp_path / "made.csv") == Trace("made.csv", "native", TEN_THOUSAND.jobs)


def test_two_processes_make_the_same_bytes() -> None:
    code = (
        "import sys; from skep.traces.synth import synthesize; from skep.traces.write import native_text;"
        "sys.stdout.write(native_text(synthesize(jobs=2000, load=0.9, seed=5)))"
    )
    here = native_text(synthesize(jobs=2000, load=0.9, seed=5))
    # Python salts its hashes per process: an order taken from a set would show here.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert here == there.stdout


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"jobs": 0}, "jobs is 0, expected a whole number >= 1"),
        ({"gpus": 0}, "gpus is 0, expected a whole number >= 1"),
        ({"vcs": -1}, "vcs is -1, expected a whole number >= 1"),
        ({"load": 1e-300}, "load is 1e-300, expected a number of at least 0.001"),
        ({"load": 0.0}, "load is 0, expected a number of at least 0.001"),
        ({"load": float("nan")}, "load is nan, expected a number of at least 0.001"),
        ({"load": float("inf")}, "load is inf, expected a number of at least 0.001"),
    ],
)
def test_a_wrong_wish_is_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        synthesize(**{"jobs": 10, "load": 1.0, "seed": 0} | wrong)
    assert str(caught.value) == message


TABLE = """{"v100": {"('A (batch size 8)', 1)": {"null": 2.0}, "('A (batch size 8)', 4)": {"null": 6.0},
"('B (batch size 8)', 2)": {"null": 3.0}, "('C (batch size 8)', 8)": {"null": 3.0}}}"""


def test_jobs_like_those_of_gavels_traces_have_models_and_sizes_of_its_table() -> None:
    profile = read_gavel_table(TABLE, "table.json")
    trace = synthesize_gavel(profile, jobs=2000, load=0.8, seed=1, gpus=36)
    kinds = {(job.spec.model, gpus_of(job)) for job in trace.jobs}
    assert kinds == {("A (batch size 8)", 1), ("A (batch size 8)", 4), ("B (batch size 8)", 2)}
    assert 300 <= min(job.work_s for job in trace.jobs) <= max(job.work_s for job in trace.jobs) <= 15_000
    assert offered_load(trace, gpus=36) == pytest.approx(0.8, rel=0.05)
    assert native_text(trace) == native_text(synthesize_gavel(profile, jobs=2000, load=0.8, seed=1, gpus=36))
    with pytest.raises(InputError, match="no model with 1, 2 or 4 GPUs"):
        synthesize_gavel(read_gavel_table(TABLE.replace("', 1)", "', 8)"), "t"), jobs=1, load=1, seed=0, gpus=1)
