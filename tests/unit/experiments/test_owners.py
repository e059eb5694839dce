"""Owners' estimates in simulations: the true duration with a seeded error."""

from __future__ import annotations

import math
import statistics

from tests.support import cluster, job, trace

from skep.core.model import told
from skep.experiments.owners import with_estimates
from skep.experiments.simulate import Experiment, Options

JOBS = trace(*(job(1, work=100.0 + number, at=float(number), id=f"j{number}") for number in range(400))).jobs


def factors(error: float, seed: int = 0) -> list[float]:
    expected = [(told(each.spec).expect_s, each.work_s) for each in with_estimates(JOBS, error, seed)]
    return [expect_s / work_s for expect_s, work_s in expected if expect_s]


def test_without_an_error_owners_know() -> None:
    assert with_estimates(JOBS, 0.0, 0) == JOBS
    assert {told(each.spec).expect_s == each.work_s for each in JOBS} == {True}


def test_the_error_depends_on_the_seed_and_the_job_alone() -> None:
    assert factors(0.3) == factors(0.3)
    assert factors(0.3) != factors(0.3, seed=1)
    assert with_estimates(JOBS[7:9], 0.3, 0) == with_estimates(JOBS, 0.3, 0)[7:9]


def test_too_much_is_as_likely_as_too_little() -> None:
    found = factors(0.3)
    assert statistics.median(found) == 1 or abs(math.log(statistics.median(found))) < 0.05
    within = sum(math.exp(-0.3) <= factor <= math.exp(0.3) for factor in found) / len(found)
    assert 0.6 < within < 0.76


def test_what_the_trace_expects_stays_and_so_does_the_truth() -> None:
    said = trace(job(1, work=100.0, expect=30.0)).jobs
    assert with_estimates(said, 0.3, 0) == said
    assert [each.work_s for each in with_estimates(JOBS, 0.3, 0)] == [each.work_s for each in JOBS]


def test_only_without_an_error_a_policy_is_an_oracle() -> None:
    jobs = trace(*JOBS[:20])

    def is_oracle(policy: str, error: float) -> bool:
        return Experiment(jobs, cluster("1x4"), Options(estimate_error=error)).run(policy).summary.oracle

    assert is_oracle("srtf", 0.0)
    assert is_oracle("srtf", 0.01)  # as good as the truth
    assert not is_oracle("srtf", 0.3)
    assert not is_oracle("fifo", 0.0)
