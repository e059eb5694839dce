"""Numbers about a trace, and smaller traces made of it."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from skep.core.errors import InputError
from skep.core.model import JobSpec, Shape, gpu_shape
from skep.traces.sample import sample, window
from skep.traces.stats import StatsPart, TraceInfo, describe, quantile
from skep.traces.trace import Trace, TraceJob
from skep.traces.uses import uses


def job(id: str, submit_s: float, work_s: float, shape: Shape, **more: str) -> TraceJob:
    return TraceJob(submit_s, work_s, JobSpec(id, (shape,), **more))  # type: ignore[arg-type]


SMALL = Trace(
    name="small",
    format="native",
    jobs=[
        job("a", 0, 3600, gpu_shape(4), vc="x", user="u", model="m"),
        job("b", 10, 7200, gpu_shape(1, gpu_milli=500), vc="y", user="u"),
        job("c", 20, math.inf, gpu_shape(1), vc="x"),
        job("d", 7200, 60, gpu_shape(0, cpu=4), vc="y"),
    ],
    dropped={"never ran": 3},
)


def test_everything_about_a_small_trace() -> None:
    assert describe(SMALL, gpus=10) == TraceInfo(
        name="small",
        format="native",
        jobs=4,
        cpu_only_jobs=1,
        shared_gpu_jobs=1,
        endless_jobs=1,
        users=1,
        models=1,
        span_s=7200,
        gpu_hours=5.0,
        gpus=10,
        load=0.25,
        duration_s={
            "min": 60,
            "p10": 60,
            "p25": 60,
            "p50": 3600,
            "p75": 7200,
            "p90": 7200,
            "p99": 7200,
            "max": 7200,
            "mean": 3620,
        },
        sizes=[StatsPart("CPU only", 1, 0), StatsPart("shared", 1, 1), StatsPart("1", 1, 0), StatsPart("4", 1, 4)],
        vcs=[StatsPart("x", 2, 4), StatsPart("y", 2, 1)],
        uses=uses(SMALL),
        dropped={"never ran": 3},
    )


def test_there_is_no_load_when_all_jobs_arrive_at_once() -> None:
    assert describe(Trace("t", "native", SMALL.jobs[:1]), gpus=10).load is None


def test_there_are_no_durations_when_no_job_ends() -> None:
    assert describe(Trace("t", "native", SMALL.jobs[2:3])).duration_s == {}


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.99, 4), (1, 4)])
def test_a_quantile_is_the_smallest_value_with_that_share_at_or_below(share: float, value: float) -> None:
    assert quantile([1, 2, 3, 4], share) == value


def numbered(count: int) -> Trace:
    return Trace("t", "native", [job(str(at), at, 1, gpu_shape(1)) for at in range(count)])


def test_a_sample_keeps_order_and_times() -> None:
    found = sample(numbered(100), jobs=30, seed=1).jobs
    assert len(found) == 30
    assert all(one.submit_s == int(one.spec.id) for one in found)
    assert found == sorted(found, key=lambda one: one.submit_s)


def test_a_sample_of_all_jobs_is_the_trace() -> None:
    assert sample(SMALL, jobs=4, seed=9) == SMALL


def test_the_seed_decides() -> None:
    assert sample(numbered(100), jobs=30, seed=1) == sample(numbered(100), jobs=30, seed=1)
    assert sample(numbered(100), jobs=30, seed=1) != sample(numbered(100), jobs=30, seed=2)


def test_every_job_is_as_likely_as_any_other() -> None:
    seen = Counter(one.spec.id for seed in range(2000) for one in sample(numbered(10), jobs=3, seed=seed).jobs)
    assert len(seen) == 10
    assert all(500 < count < 700 for count in seen.values())


@pytest.mark.parametrize("jobs", [0, -1, 5])
def test_a_sample_has_between_one_and_all_jobs(jobs: int) -> None:
    with pytest.raises(InputError, match=f"a sample of {jobs} jobs, expected 1 to 4"):
        sample(SMALL, jobs=jobs, seed=0)


def test_a_window_starts_its_own_time() -> None:
    found = window(numbered(10), from_s=3, to_s=6).jobs
    assert [(one.spec.id, one.submit_s) for one in found] == [("3", 0), ("4", 1), ("5", 2)]


def test_an_empty_window_is_an_error() -> None:
    with pytest.raises(InputError, match="no job was submitted between 50 s and inf s"):
        window(numbered(10), from_s=50, to_s=math.inf)


def test_a_job_does_not_wait_for_one_that_was_left_out() -> None:
    first, second = numbered(2).jobs
    last = TraceJob(2, 1, JobSpec("2", (gpu_shape(1),), needs=("0", "1")))
    found = window(Trace("t", "native", [first, second, last]), from_s=1, to_s=9)
    assert [one.spec.needs for one in found.jobs] == [(), ("1",)]
