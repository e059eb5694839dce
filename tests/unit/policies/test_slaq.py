"""SLAQ: GPUs go where the loss falls most, as a twin says that knows the true curves."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace

from skep.core.errors import InputError
from skep.core.view import View
from skep.experiments.simulate import Experiment, Options
from skep.policies import optimus
from skep.policies.optimus import Sized
from skep.profiles.native import Factors, ModelLoss, NativeProfile
from skep.traces.trace import Trace

PLAIN = Factors({}, {1: 1.0}, {}, {})
WORK_S, EPOCHS, ROUND_S = 20_000.0, 100, 600.0
STEPS_PER_S = EPOCHS / WORK_S


def learners(slopes: list[float]) -> tuple[Trace, NativeProfile]:
    """Jobs that take as long as each other on one GPU, and learn by 1 / (slope x epoch + 1) + 0.1."""
    models = {f"m{number}": PLAIN._replace(loss=ModelLoss(slope, 1.0, 0.1)) for number, slope in enumerate(slopes)}
    more = {"min_gpus": 1, "max_gpus": 8, "epochs": EPOCHS}
    return trace(*(job(1, work=WORK_S, id=name, model=name, **more) for name in models)), NativeProfile(
        "", PLAIN, models
    )


def play(slopes: list[float], policy: str = "slaq:restart=0") -> dict[str, float]:
    jobs, profile = learners(slopes)
    run = Experiment(jobs, cluster("1x8"), Options(restart_s=0.0), profile.speed).run(policy)
    return {row.job_id: row.jct_s or math.inf for row in run.rows}


def test_gpus_go_to_the_job_that_still_learns() -> None:
    found = play([1.0, 0.02])
    assert found["m1"] < 0.75 * found["m0"]


def test_equal_jobs_share_evenly() -> None:
    assert list(play([0.1, 0.1]).values()) == [5000.0, 5000.0]


def reduction(slope: float, step: float, steps: float, usual: float) -> float:
    curve = ModelLoss(slope, 1.0, 0.1)
    return (curve.at(step) - curve.at(step + steps)) / (curve.at(0.0) - curve.at(usual))


@settings(max_examples=10)
@given(slopes=st.lists(st.floats(0.01, 1.0), min_size=2, max_size=3))
def test_every_round_is_what_a_twin_with_the_true_curves_would_do(slopes: list[float]) -> None:
    seen = 0

    def checked(view: View, jobs: list[Sized]) -> None:
        nonlocal seen
        own(view, jobs)
        if view.now_s == 0.0 or len(jobs) < len(slopes):
            return
        seen += 1
        times = [
            [reduction(slope, each.job.work_at(view.now_s) * STEPS_PER_S, usual * gpus, usual) for gpus in range(1, 9)]
            for each, slope in zip(jobs, slopes, strict=True)
        ]
        divisions = [each for each in itertools.product(range(8), repeat=len(jobs)) if sum(each) + len(each) <= 8]
        best = max(sum(of[size] for of, size in zip(times, sizes, strict=True)) for sizes in divisions)
        assert sum(of[each.size] for of, each in zip(times, jobs, strict=True)) >= 0.99 * best

    own, usual = optimus.share_out, ROUND_S * STEPS_PER_S
    with mock.patch.object(optimus, "share_out", checked):
        play(slopes)
    assert seen


def test_a_round_must_last() -> None:
    with pytest.raises(InputError, match="above 0"):
        World(trace(job(1)), cluster("1x1"), "slaq:round_s=0").begin()
