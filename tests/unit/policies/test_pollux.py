"""Pollux: fits of step times, the best batch size, the genetic search, and what the planner makes of its answer."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from tests.support.world import held_after

from skep.core.errors import InputError
from skep.core.knowledge import StepFigures
from skep.experiments.simulate import Experiment, Options
from skep.policies.estimate.goodput import (
    BatchBounds,
    FitData,
    GradientNoise,
    StepParameters,
    best_goodputs,
    fit_steps,
    step_times,
)
from skep.policies.pollux.problem import GoodputProblem, ShownTraining, SoughtJob, SoughtNode
from skep.policies.pollux.solve import solve
from skep.profiles.read import read_profile

TRUE = StepParameters(0.08, 0.004, 0.03, 0.002, 0.12, 0.006, 1.6)
PLACES = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 8), (3, 12), (4, 16)]
SAMPLES = (16, 32, 64, 128)


def shown(parameters: StepParameters = TRUE, error: float = 0.0) -> tuple[StepFigures, ...]:
    """Steps in many places; both times are wrong by about this part."""
    chance = np.random.default_rng(1)
    found = []
    for nodes, gpus in PLACES:
        for samples in SAMPLES:
            grad, step = times(parameters, nodes, gpus, samples)
            wrong = 1 + error * chance.standard_normal(2)
            found.append(StepFigures(nodes, gpus, samples, grad * float(wrong[0]), step * float(wrong[1])))
    return tuple(found)


def times(parameters: StepParameters, nodes: int, gpus: int, samples: int) -> tuple[float, float]:
    arrays = np.array([nodes > 1]), np.array([float(gpus)]), np.array([float(samples)])
    grad, step = step_times(parameters, *arrays)
    return float(grad[0]), float(step[0])


def test_parameters_are_recovered_from_exact_times() -> None:
    assert tuple(fit_steps(shown())) == pytest.approx(tuple(TRUE), rel=0.01)


def test_times_elsewhere_are_within_five_percent_where_those_shown_are_wrong_by_one() -> None:
    fitted = fit_steps(shown(error=0.01))
    for nodes, gpus, samples in ((1, 2, 48), (2, 6, 96), (4, 14, 24), (8, 32, 64)):
        assert times(fitted, nodes, gpus, samples) == pytest.approx(times(TRUE, nodes, gpus, samples), rel=0.05)


def test_the_slopes_of_the_error_are_those_of_small_steps() -> None:
    data = FitData(shown(error=0.05))
    point = np.array([*np.log([0.05, 0.003, 0.02, 0.001, 0.1, 0.004]), 1.4])
    _, slopes = data.error(point)
    for number in range(7):
        step = np.zeros(7)
        step[number] = 1e-6
        between = (data.error(point + step)[0] - data.error(point - step)[0]) / 2e-6
        assert slopes[number] == pytest.approx(between, rel=1e-4, abs=1e-7)


def test_what_was_not_tried_is_taken_to_be_fast() -> None:
    fitted = fit_steps((StepFigures(1, 1, 32, 0.2, 0.2),))
    assert fitted.grad_base == pytest.approx(0.1)  # half of it, with one number of samples
    assert times(fitted, 1, 4, 32)[1] == pytest.approx(0.2, rel=1e-4)
    assert times(fitted, 4, 16, 32)[1] == pytest.approx(0.2, rel=1e-4)
    on_one_node = fit_steps((*shown()[:16],))
    assert on_one_node.net_base >= 1.1 * on_one_node.node_base


def test_the_batch_size_grows_with_the_noise_of_gradients() -> None:
    bounds = BatchBounds(64, 4096, 8, 256)
    quiet, noisy = (best_goodputs(TRUE, GradientNoise(1.0, var), bounds, 16) for var in (0.1, 100.0))
    assert quiet.batch[0, 0] == 64
    assert noisy.batch[0, 3] > quiet.batch[0, 3]
    assert (noisy.goodput[0, 3] / noisy.goodput[0, 0]) > (quiet.goodput[0, 3] / quiet.goodput[0, 0])
    assert (
        best_goodputs(TRUE, GradientNoise(1.0, 1.0), BatchBounds(64, 64, 16, 256), 8).goodput[0, 4:].tolist()
        == [0.0] * 4
    )


# The search ---------------------------------------------------------------------------------------------------------


def sought(seq: int, least: int = 1, most: int = 4, now: dict[int, int] | None = None, kept: float = 0.5) -> SoughtJob:
    return SoughtJob(seq, 1, least, most, (0, 1), now or {}, kept, ShownTraining(most))


def nodes_of(*gpus: int) -> list[SoughtNode]:
    return [SoughtNode(number, each, 0) for number, each in enumerate(gpus)]


def ask(jobs: list[SoughtJob], nodes: list[SoughtNode], seed: int = 0, power: float = -1.0) -> GoodputProblem:
    return GoodputProblem(jobs, nodes, power, seed, population=30, generations=60)


def test_every_job_gets_something_and_nothing_is_left() -> None:
    answer = solve(ask([sought(1), sought(2), sought(3)], nodes_of(2, 2)))
    given_gpus = {seq: sum(each.tasks.values()) for seq, each in answer.jobs.items()}
    assert sorted(given_gpus.values()) == [1, 1, 2]


def test_a_job_keeps_its_place_if_a_change_brings_less_than_a_restart_costs() -> None:
    young = [sought(1, most=2, now={0: 1}, kept=0.4), sought(2, most=1, now={1: 1}, kept=0.4)]
    assert {seq: each.tasks for seq, each in solve(ask(young, nodes_of(2, 2))).jobs.items()} == {1: {0: 1}, 2: {1: 1}}
    old = [sought(1, most=2, now={0: 1}, kept=0.9), sought(2, most=1, now={1: 1}, kept=0.9)]
    assert solve(ask(old, nodes_of(2, 2))).jobs[1].tasks == {0: 2}


JOBS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.floats(0.1, 1.0)), min_size=1, max_size=6)


@settings(max_examples=40)
@given(
    jobs=JOBS,
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    seed=st.integers(0, 9),
    power=st.sampled_from([-1.0, 0.0]),
)
def test_the_answer_can_be_and_is_never_worse_than_the_start(
    jobs: list[tuple[int, int, float]], sizes: list[int], seed: int, power: float
) -> None:
    free = dict(enumerate(sizes))
    rows = []
    for seq, (least, more, kept) in enumerate(jobs):
        node = next((index for index, gpus in free.items() if gpus >= least), None)
        if node is not None and seq % 2:
            free[node] -= least
        rows.append(sought(seq, least, least + more, {node: least} if node is not None and seq % 2 else None, kept))
    problem = ask(rows, nodes_of(*sizes), seed, power)
    answer = solve(problem)
    assert answer == solve(problem)
    assert answer.score >= answer.start
    assert all(
        not each.tasks or row.least <= sum(each.tasks.values()) <= row.most
        for row, each in zip(rows, answer.jobs.values(), strict=True)
    )
    for index, gpus in enumerate(sizes):
        there = [each for each in answer.jobs.values() if index in each.tasks]
        assert sum(each.tasks[index] for each in there) <= gpus
        assert sum(len(each.tasks) > 1 for each in there) <= 1


def test_a_job_stays_on_one_gpu_type() -> None:
    nodes = [SoughtNode(0, 1, 0), SoughtNode(1, 4, 1)]
    assert solve(ask([sought(1, most=5)], nodes)).jobs[1].tasks == {1: 4}


# The planner --------------------------------------------------------------------------------------------------------


def test_a_job_doubles_at_most_from_round_to_round() -> None:
    world = World(trace(job(1, min_gpus=1, max_gpus=8, work=1000, id="a")), cluster("1x8"), "pollux:restart=0")
    seen = held_after(world)
    assert [seen[at_s]["a"] for at_s in (0.0, 60.0, 120.0, 180.0)] == [1, 2, 4, 8]


def test_jobs_share_the_gpus_and_a_fixed_one_keeps_its_size() -> None:
    jobs = trace(*(job(1, min_gpus=1, max_gpus=8, work=1e4, id=name) for name in "ab"), job(4, work=1e4, id="c"))
    assert held_after(World(jobs, cluster("2x4"), "pollux:restart=0"))[240.0] == {"a": 2, "b": 2, "c": 4}


def test_a_job_whose_smallest_size_does_not_fit_runs_as_it_asked() -> None:
    world = World(trace(job(1, min_gpus=2, max_gpus=4, work=100, id="a")), cluster("1x1"), "pollux")
    assert held_after(world)[0.0] == {"a": 1}


PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,10,1.0,0.0
1,20,1.1,0.0
2,10,1.1,0.1
2,20,1.2,0.1
"""
CURVE = """progress,iteration,grad_sqr,grad_var
{0},{0},1.0,{1}
{2},{2},1.0,{1}
"""


def test_a_job_with_noisy_gradients_is_tuned_to_a_larger_batch(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "placements-aws.csv").write_text(PLACEMENTS)
    for batch in (20, 80):
        (tmp_path / "net" / f"validation-{batch}.csv").write_text(CURVE.format(2000, 30.0, 4000))
    profile = read_profile(tmp_path)
    work_s = profile.run_s("net", 1, 20) or 0.0
    more = {"min_gpus": 1, "max_gpus": 2, "batch_size": 20, "min_batch": 20, "max_batch": 80}
    one = trace(job(1, work=work_s, id="a", model="net", **more))
    experiment = Experiment(one, cluster("1x2:aws"), Options(round_s=60.0), profile.speed)
    (row,) = experiment.run("pollux").rows
    assert row.jct_s is not None
    # A step of 20 takes 1.1 s on one GPU and on two. One of 80 takes 2.3 s on two and counts as 3.65.
    assert row.jct_s == pytest.approx(work_s * 2.3 / 3.65 / 1.1, rel=0.05)


@pytest.mark.parametrize(("knobs", "message"), [("round_s=0", "above 0"), ("population=1", "expected 2 to 1000")])
def test_knobs_that_cannot_be(knobs: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        World(trace(job(1)), cluster("1x1"), f"pollux:{knobs}").begin()


def test_the_scale_of_a_score() -> None:
    answer = solve(ask([sought(1, most=1), sought(2, most=1)], nodes_of(1, 1)))
    # Both have speed-up 1 on nodes of one GPU.
    assert answer.score == pytest.approx(1.001)
    assert math.isclose(answer.start, 0.001)
