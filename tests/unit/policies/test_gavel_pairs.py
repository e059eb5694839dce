"""Gavel with pairs of jobs on the same GPUs: programs against a plain one over jobs, and runs worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from test_gavel import ask

from skep.core.errors import InputError
from skep.core.model import JobSpec, gpu_shape
from skep.core.needs import Need
from skep.policies.gavel.objectives import las_gain, table_of
from skep.policies.gavel.problem import PairRow
from skep.policies.gavel.solve import solve
from skep.policies.registry import needs_of
from skep.profiles.native import Factors, NativeProfile
from skep.traces.trace import TraceJob
from skep.verify.play import finishes, play_jobs


def with_pairs(problem, parts):
    """`parts[one][other]`: the part of its speed that the first keeps beside the second, on every type."""
    rows, types = problem.rows, len(problem.widths)
    pairs = [
        PairRow(one, other, ((parts[one][other], parts[other][one]),) * types)
        for one, other in itertools.combinations_with_replacement(range(len(rows)), 2)
        if rows[one].gpus == rows[other].gpus and (one != other or rows[one].count > 1)
    ]
    return type(problem)(**{name: getattr(problem, name) for name in problem.__struct_fields__} | {"pairs": pairs})


def by_jobs(problem, parts):
    """The largest smallest gain with one row for each job and one for each pair of them, as Gavel writes it."""
    table = table_of(problem)
    rows = [row for row, of in enumerate(problem.rows) for _ in range(of.count)]
    gain, types = las_gain(table), len(problem.widths)
    units = [(job,) for job in range(len(rows))]
    units += [
        (one, other)
        for one, other in itertools.combinations(range(len(rows)), 2)
        if table.gpus[rows[one]] == table.gpus[rows[other]]
    ]
    size = len(units) * types + 1
    above, most = [], []
    for job, row in enumerate(rows):
        need, whole = np.zeros(size), np.zeros(size)
        need[-1] = 1.0
        for at, unit in enumerate(units):
            if job in unit:
                left = 1.0 if len(unit) == 1 else parts[row][rows[unit[0] + unit[1] - job]]
                need[at * types : (at + 1) * types] = -gain[row] * left
                whole[at * types : (at + 1) * types] = 1.0
        above += [need, whole]
        most += [0.0, 1.0]
    for number in range(types):
        used = np.zeros(size)
        used[number : size - 1 : types] = [table.gpus[rows[unit[0]]] for unit in units]
        above.append(used)
        most.append(problem.widths[number])
    costs = np.zeros(size)
    costs[-1] = -1.0
    return -linprog(costs, A_ub=np.array(above), b_ub=most).fun


def level_of(problem):
    """The smallest gain of a job under the answer, alone and in pairs."""
    table, answer = table_of(problem), solve(problem)
    gain = las_gain(table)
    reached = (gain * np.array(answer.rows)).sum(1)
    parts = {(pair.one, pair.other): np.array(pair.parts) for pair in problem.pairs}
    for pair in answer.pairs:
        left = parts[pair.one, pair.other]
        reached[pair.one] += float((gain[pair.one] * left[:, 0] * pair.of_one).sum())
        if pair.one != pair.other:
            reached[pair.other] += float((gain[pair.other] * left[:, 1] * pair.of_other).sum())
    return float(reached.min())


def test_two_jobs_that_keep_six_tenths_of_their_speed_are_always_together() -> None:
    """On one GPU: 0.6 of the speed instead of half of the time."""
    problem = with_pairs(ask("las", [(1.0,), (1.0,)], (1,)), [[0.6, 0.6], [0.6, 0.6]])
    answer = solve(problem)
    (pair,) = answer.pairs
    assert pair.of_one == pytest.approx((1.0,), abs=1e-5)
    assert pair.of_other == pytest.approx((1.0,), abs=1e-5)
    assert level_of(problem) == pytest.approx(1.2 / 2, abs=1e-5)


@st.composite
def shared_programs(draw):
    rows, types = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    speeds = [[draw(st.sampled_from([0.3, 1.0, 2.0])) for _ in range(types)] for _ in range(rows)]
    gpus = [draw(st.sampled_from([1.0, 1.0, 2.0])) for _ in range(rows)]
    counts = [draw(st.integers(1, 3)) for _ in range(rows)]
    widths = [draw(st.sampled_from([1.0, 2.0, 5.0])) for _ in range(types)]
    parts = [[draw(st.sampled_from([0.4, 0.6, 0.8, 1.0])) for _ in range(rows)] for _ in range(rows)]
    return ask("las", speeds, widths, gpus=gpus, counts=counts), parts


@settings(max_examples=30, deadline=None)
@given(drawn=shared_programs())
def test_shares_with_pairs_are_as_good_as_the_optimum_over_single_jobs(drawn) -> None:
    problem, parts = drawn
    shared = with_pairs(problem, parts)
    table = table_of(shared)
    from skep.policies.gavel.packed import speeds

    gain = las_gain(table)
    reached = float((speeds(table, gain) @ table.level(gain).ravel()).min()) if shared.pairs else level_of(shared)
    assert reached == pytest.approx(by_jobs(problem, parts), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("objective", ["las", "ftf", "makespan", "fifo", "sjf", "throughput", "cost", "hierarchical"])
def test_every_objective_takes_pairs(objective) -> None:
    """Both jobs always run, at 0.8 of their speed: each of these objectives is better so."""
    problem = ask(objective, [(1.0,), (1.0,)], (1,), left_s=[100.0, 100.0], age_s=[0.0, 0.0])
    problem = with_pairs(problem, [[0.8, 0.8], [0.8, 0.8]])
    problem = type(problem)(**{name: getattr(problem, name) for name in problem.__struct_fields__} | {"costs": (1.0,)})
    (pair,) = solve(problem).pairs
    assert pair.of_one[0] > (0.5 if objective == "fifo" else 0.99)


def play(policy, cluster, jobs, parts, **options):
    """Jobs (model, submitted, work) of one GPU on GPUs of one type; `parts[one][other]` as above."""
    models = {name: Factors({"fast": 1.0}, {1: 1.0}, {}, of) for name, of in parts.items()}
    profile = NativeProfile("fast", Factors({}, {1: 1.0}, {}, {}), models)
    entries = [
        TraceJob(
            float(at_s), float(work_s), JobSpec(f"j{number}", (gpu_shape(1),), model=model, expect_s=float(work_s))
        )
        for number, (model, at_s, work_s) in enumerate(jobs)
    ]
    return play_jobs(policy, cluster, entries, speed=profile.speed, **options)


EVEN = {"a": {"a": 0.6, "b": 0.6}, "b": {"a": 0.6, "b": 0.3}}


def test_two_jobs_share_a_gpu_from_beginning_to_end() -> None:
    assert finishes(play("gavel-las:share=true", "1x1:fast", [("a", 0, 3600), ("b", 0, 3600)], EVEN)) == (
        6000.0,
        6000.0,
    )


def test_jobs_that_slow_each_other_down_take_turns() -> None:
    run = play("gavel-las:share=true", "1x1:fast", [("b", 0, 3600), ("b", 0, 3600)], EVEN)
    assert max(finishes(run)) == 7200.0


def test_the_longer_one_of_a_pair_has_the_gpu_to_itself_afterwards() -> None:
    """Together for 1,800 / 0.6 = 3,000 s; then 3,600 - 1,800 s alone, without a restart."""
    run = play("gavel-las:share=true", "1x1:fast", [("a", 0, 1800), ("b", 0, 3600)], EVEN)
    assert finishes(run) == (3000.0, pytest.approx(4800.0, abs=360.0 * 0.4 + 1))
    assert [row.preemptions for row in run.rows] == [0, 0]


def test_an_engine_that_cannot_share_gives_every_job_its_own_gpus() -> None:
    assert Need.SHARE in needs_of("gavel-las:share=true")
    assert Need.SHARE not in needs_of("gavel-las")


@pytest.mark.parametrize("spec", ["gavel-las:share=true,compat=true", "gavel-las:share=true,strategy_proof=true"])
def test_what_does_not_go_together_is_refused(spec) -> None:
    with pytest.raises(InputError, match="share=true is not possible with"):
        play(spec, "1x1:fast", [("a", 0, 10)], EVEN)
