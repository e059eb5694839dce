"""Loss curves: parameters are recovered, noise and outliers do little; Optimus and SLAQ decide by what follows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.support import cluster, job, trace

from skep.core.errors import InputError
from skep.core.progress import COURSE_MAX, Progress, Report, SeriesCourse
from skep.experiments.simulate import Experiment, Options
from skep.policies.estimate.by_loss import OPTIMUS, SLAQ
from skep.policies.estimate.loss import FAMILIES, LossFit, fit_loss, steps_to_converge
from skep.policies.registry import needs_of
from skep.profiles.native import read_native

STEPS = tuple(100.0 * number for number in range(1, 41))
Curve = Callable[[float], float]
CURVES: dict[str, tuple[tuple[str, ...], Curve]] = {
    "sublinear": (OPTIMUS, lambda k: 1 / (0.002 * k + 0.3) + 0.4),
    "quadratic": (SLAQ, lambda k: 1 / (1e-7 * k**2 + 0.001 * k + 0.5) + 0.2),
    "geometric": (SLAQ, lambda k: math.exp(-(k - 300) / 700) + 0.3),
}
ELSEWHERE = (250.0, 1950.0, 4000.0, 5000.0, 6000.0)


def fitted(name: str, error: float = 0.0, seed: int = 0, outliers: tuple[tuple[int, float], ...] = ()) -> LossFit:
    families, curve = CURVES[name]
    chance = np.random.default_rng(seed)
    losses = [curve(step) * (1 + error * float(chance.standard_normal())) for step in STEPS]
    for at, factor in outliers:
        losses[at] *= factor
    found = fit_loss(tuple(zip(STEPS, losses, strict=True)), families)
    assert found is not None
    return found


@pytest.mark.parametrize("name", CURVES)
def test_exact_losses_give_the_curve(name: str) -> None:
    found = fitted(name)
    assert found.family.name == name
    for step in (1.0, *ELSEWHERE, 20_000.0):
        assert found.at(step) == pytest.approx(CURVES[name][1](step), rel=1e-6)


def test_the_parameters_are_those_of_the_formula() -> None:
    found = fitted("sublinear")
    a, b, c = found.parameters
    scaled = (a / found.step_scale / found.loss_scale, b / found.loss_scale, c * found.loss_scale)
    assert scaled == pytest.approx((0.002, 0.3, 0.4), rel=1e-6)


@pytest.mark.parametrize("name", CURVES)
def test_losses_that_are_wrong_by_one_percent_give_losses_within_five(name: str) -> None:
    for seed in range(10):
        found = fitted(name, 0.01, seed)
        assert [found.at(step) for step in ELSEWHERE] == pytest.approx(
            [CURVES[name][1](step) for step in ELSEWHERE], rel=0.05
        )


@pytest.mark.parametrize("name", CURVES)
def test_a_few_losses_that_are_far_off_do_little(name: str) -> None:
    found = fitted(name, 0.01, seed=3, outliers=((7, 3.0), (20, 0.3), (33, 5.0)))
    for step in ELSEWHERE:
        assert found.at(step) == pytest.approx(CURVES[name][1](step), rel=0.05)


def test_most_intervals_have_the_true_loss_and_widen_ahead() -> None:
    inside = 0
    for seed in range(20):
        low, high = fitted("sublinear", 0.01, seed).interval(5000.0)
        inside += low <= CURVES["sublinear"][1](5000.0) <= high
    assert inside >= 15
    found = fitted("sublinear", 0.01)
    widths = [high - low for low, high in map(found.interval, (4000.0, 20_000.0))]
    assert widths[1] > widths[0] > 0


@pytest.mark.parametrize(
    "points", [(), ((1.0, 2.0), (2.0, 1.0)), ((1.0, 2.0), (2.0, -1.0), (3.0, 1.0)), ((0.0, 1.0),) * 3]
)
def test_too_little_to_fit(points: tuple[tuple[float, float], ...]) -> None:
    assert fit_loss(points, OPTIMUS) is None


def test_slopes_are_those_of_small_steps() -> None:
    k = np.array([0.2, 0.7, 1.0])
    for family in FAMILIES:
        point = np.array([0.8, 0.6, 0.5, 0.1][: len(family.low)])
        for number in range(len(point)):
            step = np.zeros(len(point))
            step[number] = 1e-6
            between = (family.value(point + step, k) - family.value(point - step, k)) / 2e-6
            assert family.slopes(point, k)[:, number] == pytest.approx(between, rel=1e-4)


def test_when_a_job_has_converged() -> None:
    """1 / (k + 1): it falls from k to k + 10 by less than 0.05 of the largest where (k + 1)(k + 11) > 200."""
    found = fit_loss(tuple((float(k), 1 / (k + 1)) for k in range(30)), OPTIMUS)
    assert found is not None
    exact = -6 + math.sqrt(25 + 200)
    assert steps_to_converge(found, 0.0, 10.0, 0.05, 1000.0) == pytest.approx(exact, abs=0.05)
    assert steps_to_converge(found, 20.0, 10.0, 0.05, 1000.0) == 0.0
    assert steps_to_converge(found, 0.0, 10.0, 0.05, 2.0) == 2.0


# Courses ------------------------------------------------------------------------------------------------------------


def test_a_course_is_thinned_and_keeps_its_beginning() -> None:
    course = SeriesCourse()
    for step in range(10_000):
        course.add(float(step), 1.0 / (step + 1))
        assert len(course.points) <= COURSE_MAX
    assert course.points[0] == (0.0, 1.0)
    gaps = {after[0] - before[0] for before, after in zip(course.points, course.points[1:], strict=False)}
    assert gaps == {float(course.every)}
    assert course.points[-1][0] >= 10_000 - course.every


def test_a_restart_from_a_checkpoint_takes_points_back() -> None:
    course = SeriesCourse()
    for step in (1.0, 2.0, 3.0, 2.0):
        course.add(step, 10 - step)
    assert course.points == [(1.0, 9.0), (2.0, 8.0)]


def test_progress_has_the_course_of_a_few_series_only() -> None:
    progress = Progress(0.0, 1, Report(0.0))
    progress.take_in(1.0, 1, Report(5.0, steps_per_s=2.0, series={"loss": 0.5, "noise": 3.0, "mood": 1.0}))
    assert {name: course.points for name, course in progress.courses.items()} == {
        "loss": [(5.0, 0.5)],
        "noise": [(5.0, 3.0)],
        "step_s": [(5.0, 0.5)],
    }


# Policies -----------------------------------------------------------------------------------------------------------

PROFILE = """
reference: v100
models:
  quick: {loss: {a: 1.0, b: 1.0, c: 0.1}}
  steady: {loss: {a: 0.02, b: 1.0, c: 0.1}}
"""


def ends(policy: str) -> dict[str, float]:
    """Both need as long on one GPU; `quick` has learned nearly all that it can after a few of its 100 epochs."""
    more = {"min_gpus": 1, "max_gpus": 8, "epochs": 100}
    jobs = trace(*(job(1, work=20_000, id=name, model=name, **more) for name in ("quick", "steady")))
    experiment = Experiment(jobs, cluster("1x8"), Options(restart_s=0.0), read_native(PROFILE, "profile").speed)
    return {row.job_id: row.jct_s or math.inf for row in experiment.run(policy).rows}


def test_optimus_knows_lengths_by_losses_instead_of_an_oracle() -> None:
    assert "oracle" in needs_of("optimus")
    assert "oracle" not in needs_of("optimus:lengths=loss")
    assert "progress" in needs_of("optimus:lengths=loss")
    found = ends("optimus:lengths=loss,restart=0,round_s=60")
    assert found["steady"] < found["quick"]


def test_compat_and_losses_exclude_each_other() -> None:
    experiment = Experiment(trace(job(1)), cluster("1x1"), Options())
    with pytest.raises(InputError, match="leave lengths=loss out"):
        experiment.run("optimus:compat=true,lengths=loss")


@pytest.mark.parametrize("curve", ["{a: 1, b: 0, c: 0}", "{a: 1, b: 1}", "{a: -1, b: 1, c: 0}"])
def test_curves_that_cannot_be(curve: str) -> None:
    with pytest.raises(InputError):
        read_native(f"models: {{x: {{loss: {curve}}}}}", "profile")
