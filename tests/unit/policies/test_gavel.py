"""The programs of Gavel: worked examples, and random small ones against a general solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from skep.policies.gavel.centre import Program, centre
from skep.policies.gavel.filling import fill
from skep.policies.gavel.objectives import Ftf, las_gain, nash, table_of
from skep.policies.gavel.problem import ShareProblem, ShareRow
from skep.policies.gavel.solve import solve

FAST_SLOW = ((40.0, 10.0), (12.0, 4.0), (100.0, 50.0))


def ask(objective, speeds, widths, *, gpus=None, counts=None, **more):
    rows = [
        ShareRow(
            (gpus or [1.0] * len(speeds))[number],
            1.0,
            (counts or [1] * len(speeds))[number],
            tuple(of),
            place=number,
            **{name: values[number] for name, values in more.items()},
        )
        for number, of in enumerate(speeds)
    ]
    jobs = {number: number for number in range(len(rows))}
    return ShareProblem(objective, tuple(widths), rows, jobs, entities={row.entity: 1.0 for row in rows})


def level(problem):
    """The smallest gain of a job under the answer."""
    gain = las_gain(table_of(problem))
    return float((gain * np.array(solve(problem).rows)).sum(1).min())


@pytest.mark.parametrize(
    ("speeds", "widths", "gpus", "value"),
    [
        (FAST_SLOW, (1, 1), None, 8 / 11),
        (FAST_SLOW[:2], (1, 1), None, 1.0),
        (FAST_SLOW[:2], (2, 2), [1.0, 2.0], 1.6),
    ],
)
def test_las_of_the_worked_examples(speeds, widths, gpus, value) -> None:
    assert level(ask("las", speeds, widths, gpus=gpus)) == pytest.approx(value, abs=5e-6)


def test_makespan_of_the_worked_example() -> None:
    problem = ask("makespan", FAST_SLOW[:2], (1, 1), left_s=[72_000.0, 36_000.0])
    done = (np.array(FAST_SLOW[:2]) * np.array(solve(problem).rows)).sum(1)
    assert max(np.array([72_000.0, 36_000.0]) / done) == pytest.approx(41_400 / 11, rel=1e-5)


def test_a_class_of_equal_jobs_gets_what_each_of_them_would() -> None:
    one = solve(ask("las", [(40, 10), (12, 4)], (2, 1), counts=[3, 2])).rows
    each = solve(ask("las", [(40, 10)] * 3 + [(12, 4)] * 2, (2, 1))).rows
    assert np.array([one[0]] * 3 + [one[1]] * 2) == pytest.approx(np.array(each), abs=1e-5)


def test_equal_optima_are_shared_equally() -> None:
    rows = solve(ask("las", [(1, 1)] * 6, (2, 1))).rows
    assert rows == [rows[0]] * 6
    assert sum(rows[0]) == pytest.approx(0.5, abs=1e-5)


@st.composite
def programs(draw):
    rows, types = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    speed = st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.0, 2.0, 7.0])
    speeds = [[draw(speed) for _ in range(types)] for _ in range(rows)]
    if draw(st.booleans()):
        speeds = [of[:1] * types for of in speeds]
    speeds = [[of[0] + 0.2, *of[1:]] for of in speeds]
    gpus = [draw(st.sampled_from([1.0, 2.0, 4.0])) for _ in range(rows)]
    counts = [draw(st.integers(1, 4)) for _ in range(rows)]
    widths = [draw(st.sampled_from([1.0, 2.0, 5.0, 12.0])) for _ in range(types)]
    return speeds, widths, gpus, counts


def optimum(gain, table, *, reward=None, base=None):
    """By HiGHS: the largest smallest gain, or the largest reward."""
    rows, types = gain.shape
    cells = rows * types
    above, most, costs = [], [], np.zeros(cells + 1)
    costs[-1] = -1.0
    if reward is not None:
        costs[:-1], costs[-1] = -(reward * table.counts[:, None]).ravel(), 0.0
    for row in range(rows):
        whole, need = np.zeros(cells + 1), np.zeros(cells + 1)
        whole[row * types : (row + 1) * types] = 1.0
        need[row * types : (row + 1) * types] = -gain[row]
        need[-1] = 1.0 if reward is None else 0.0
        above += [whole, need]
        most += [1.0, 0.0 if base is None else -base[row]]
    for column in range(types):
        used = np.zeros(cells + 1)
        used[column:cells:types] = table.counts * table.gpus
        above.append(used)
        most.append(table.widths[column])
    found = linprog(costs, A_ub=np.array(above), b_ub=most)
    return None if found.status else -found.fun


@settings(max_examples=40, deadline=None)
@given(drawn=programs())
def test_las_is_as_good_as_the_optimum(drawn) -> None:
    speeds, widths, gpus, counts = drawn
    table = table_of(ask("las", speeds, widths, gpus=gpus, counts=counts))
    gain = las_gain(table)
    reached = float((gain * table.level(gain)).sum(1).min())
    assert reached == pytest.approx(optimum(gain, table), abs=1e-6, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(drawn=programs())
def test_throughput_is_as_good_as_the_optimum(drawn) -> None:
    speeds, widths, gpus, counts = drawn
    table = table_of(ask("throughput", speeds, widths, gpus=gpus, counts=counts))
    reward = table.speeds / table.speeds.max(1, keepdims=True)
    reached = float((reward * table.counts[:, None] * table.best(reward)).sum())
    assert reached == pytest.approx(optimum(table.speeds, table, reward=reward), rel=1e-6, abs=1e-6)


@settings(max_examples=12, deadline=None)
@given(drawn=programs(), data=st.data())
def test_ftf_is_as_good_as_a_search_by_halves(drawn, data) -> None:
    speeds, widths, gpus, _ = drawn
    lefts = [data.draw(st.sampled_from([10.0, 500.0, 20_000.0])) for _ in speeds]
    ages = [data.draw(st.sampled_from([0.0, 300.0, 5_000.0])) for _ in speeds]
    alones = [age * data.draw(st.sampled_from([0.5, 1.0])) for age in ages]
    problem = ask("ftf", speeds, widths, gpus=gpus, left_s=lefts, age_s=ages, alone_s=alones)
    table = table_of(problem)
    alone = table.alone + table.left / table.isolated()
    done = (table.speeds * Ftf().shares(table)).sum(1)
    worst = float(((table.age + table.left / np.maximum(done, 1e-9)) / alone).max())
    low, high = float((table.age / alone).max()), worst * 1.01 + 1e-6
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        needs = table.left / np.maximum(middle * alone - table.age, 1e-12)
        found = optimum(table.speeds / needs[:, None], table)
        low, high = (low, middle) if found is not None and found >= 1 else (middle, high)
    assert worst == pytest.approx(high, rel=1e-6)


@settings(max_examples=8, deadline=None)
@given(drawn=programs())
def test_water_filling_is_lexicographic(drawn) -> None:
    """The levels, sorted, against those by freezing whoever cannot gain while the others keep theirs."""
    speeds, widths, gpus, counts = drawn
    table = table_of(ask("hierarchical", speeds, widths, gpus=gpus, counts=counts))
    gain = las_gain(table)
    found = (gain * fill(table, gain, lambda open_rows: open_rows)).sum(1)
    assert sorted(found) == pytest.approx(sorted(lexicographic(gain, table)), rel=1e-5, abs=1e-6)


def lexicographic(gain, table):
    rows = len(gain)
    frozen: dict[int, float] = {}
    while len(frozen) < rows:
        base = np.array([frozen.get(row, 0.0) for row in range(rows)]) * (1 - 1e-9)
        best = raised(gain, table, base, frozen)
        base = np.array([frozen.get(row, best) for row in range(rows)]) * (1 - 1e-7)
        for row in set(range(rows)) - frozen.keys():
            reward = np.zeros_like(gain)
            reward[row] = gain[row] / table.counts[row]
            most = optimum(gain, table, reward=reward, base=base)
            if most is not None and most <= best * (1 + 1e-5) + 1e-9:
                frozen[row] = best
    return [frozen[row] for row in range(rows)]


def raised(gain, table, base, frozen):
    """The largest level of all rows that are not frozen."""
    rows, types = gain.shape
    cells = rows * types
    above, most, costs = [], [], np.zeros(cells + 1)
    costs[-1] = -1.0
    for row in range(rows):
        whole, need = np.zeros(cells + 1), np.zeros(cells + 1)
        whole[row * types : (row + 1) * types] = 1.0
        need[row * types : (row + 1) * types] = -gain[row]
        need[-1] = 0.0 if row in frozen else 1.0
        above += [whole, need]
        most += [1.0, -base[row] if row in frozen else 0.0]
    for column in range(types):
        used = np.zeros(cells + 1)
        used[column:cells:types] = table.counts * table.gpus
        above.append(used)
        most.append(table.widths[column])
    return -linprog(costs, A_ub=np.array(above), b_ub=most).fun


def test_a_job_that_lies_gains_nothing_if_shares_are_strategy_proof() -> None:
    true = np.array([[4.0, 1.0], [2.0, 1.5], [1.0, 1.0]])
    kept = []
    for factor in (1.0, 0.5, 3.0):
        said = true.copy()
        said[0, 0] *= factor
        problem = ask("las", said, (1, 1))
        rows = np.array(solve(ShareProblem(**{**vars_of(problem), "is_strategy_proof": True})).rows)
        kept.append(float(true[0] @ rows[0]))
    assert kept[0] >= max(kept[1:]) - 1e-6


def vars_of(problem):
    return {name: getattr(problem, name) for name in problem.__struct_fields__}


def test_the_product_of_speeds_is_largest() -> None:
    table = table_of(ask("las", [(4, 1), (1, 1)], (1, 1)))
    gain = table.speeds
    found = nash(table, gain, table.counts)
    assert (gain * found).sum(1) == pytest.approx([4.0, 1.0], rel=1e-5)


def test_deadlines_are_met_where_possible_and_dropped_where_not() -> None:
    problem = ask("cost-slo", [(1, 1), (1, 1)], (1, 1), left_s=[100.0, 100.0], due_s=[0.0, 125.0])
    met = solve(ShareProblem(**{**vars_of(problem), "costs": (1.0, 100.0)})).rows
    assert sum(met[1]) >= 0.8 - 1e-5
    problem = ask("cost-slo", [(1, 1), (1, 1)], (1, 1), left_s=[100.0, 100.0], due_s=[50.0, 50.0])
    dropped = solve(ShareProblem(**{**vars_of(problem), "costs": (1.0, 100.0)})).rows
    free = solve(ShareProblem(**{**vars_of(problem), "objective": "cost", "costs": (1.0, 100.0)})).rows
    assert np.array(dropped) == pytest.approx(np.array(free), abs=1e-4)


def test_entities_share_by_weight_and_jobs_in_them_in_order() -> None:
    rows = [ShareRow(1.0, 1.0, 1, (1.0,), place=place, entity=name) for place, name in enumerate("aab")]
    fair = ShareProblem("hierarchical", (1.0,), rows, {}, entities={"a": 1.0, "b": 1.0})
    assert np.array(solve(fair).rows) == pytest.approx(np.array([[0.25], [0.25], [0.5]]), abs=1e-5)
    fifo = ShareProblem("hierarchical", (1.0,), rows, {}, entities={"a": 1.0, "b": 1.0}, inside="fifo")
    assert np.array(solve(fifo).rows) == pytest.approx(np.array([[0.5], [0.0], [0.5]]), abs=1e-5)


def test_a_program_with_no_room_says_so() -> None:
    one = np.ones((1, 1))
    program = Program(one, one[0], one[0], one[0], np.full(1, 5.0), np.zeros(1))
    with pytest.raises(Exception, match="no shares satisfy"):
        centre(program)
