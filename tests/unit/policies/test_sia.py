"""Sia: the program and its gap, configurations, places from two ends, fits by type, and the planner."""

from __future__ import annotations

import itertools
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
from skep.policies.estimate.by_type import fits_by_type
from skep.policies.estimate.goodput import StepParameters, step_times
from skep.policies.pollux.problem import ShownTraining
from skep.policies.sia.choice import NEVER, NONE, Configurations, Floats, choose
from skep.policies.sia.packing import PackedJob, TwoEnds
from skep.policies.sia.problem import ShownByType, SiaJob, SiaNode, SiaProblem
from skep.policies.sia.solve import solve, tasks_within
from skep.profiles.read import read_profile

WAITING = 1.1


def profits_of(values: Floats, power: float = -0.5) -> Floats:
    return np.asarray(np.where(values > 0, WAITING - np.maximum(values, 1e-9) ** power, NEVER))


def test_the_worked_example() -> None:
    """Two jobs on 4 GPUs in configurations of 1, 2 and 4: both get 2, for 1.9^-0.5 + 1.4^-0.5."""
    columns = Configurations(np.zeros(3, dtype=np.int64), np.array([1, 2, 4]), np.array([4]))
    found = choose(profits_of(np.array([[1, 1.9, 3.4], [1, 1.4, 1.6]])), columns, 2 * WAITING)
    assert found.columns.tolist() == [1, 1]
    assert 2 * WAITING - found.profit == pytest.approx(1.57063, abs=1e-5)


ROWS = st.lists(st.lists(st.floats(1.0, 6.0), min_size=5, max_size=5), min_size=1, max_size=5)


@settings(max_examples=60)
@given(rows=ROWS, room=st.tuples(st.integers(0, 7), st.integers(0, 9)))
def test_the_choice_is_within_a_thousandth_of_the_best(rows: list[list[float]], room: tuple[int, int]) -> None:
    values = np.array(rows)
    columns = Configurations(np.array([0, 0, 0, 1, 1]), np.array([1, 2, 4, 1, 3]), np.array(room))
    profits, scale = profits_of(values), WAITING * len(rows)
    found = choose(profits, columns, scale)
    best = max(each for each in map(lambda picks: total(profits, columns, picks), choices(len(rows), 5)))
    assert scale - found.profit <= (scale - best) * 1.001 + 1e-9
    assert found.bound >= best - 1e-9
    assert total(profits, columns, tuple(found.columns.tolist())) == pytest.approx(found.profit)


def choices(jobs: int, columns: int) -> itertools.product[tuple[int, ...]]:
    return itertools.product(range(-1, columns), repeat=jobs)


def total(profits: Floats, columns: Configurations, picks: tuple[int, ...]) -> float:
    """The profit; below 0 if there is no room."""
    used = [0] * len(columns.room)
    found = 0.0
    for row, pick in enumerate(picks):
        if pick != NONE:
            used[columns.kinds[pick]] += int(columns.gpus[pick])
            found += float(profits[row, pick])
    return found if all(each <= most for each, most in zip(used, columns.room, strict=True)) else -1.0


def test_many_equal_jobs_are_decided_by_the_linear_program() -> None:
    values = np.tile(np.array([1.0, 1.8, 3.0, 2.0, 3.4]), (300, 1))
    columns = Configurations(np.array([0, 0, 0, 1, 1]), np.array([1, 2, 4, 1, 2]), np.array([333, 77]))
    found = choose(profits_of(values), columns, WAITING * 300)
    assert (found.bound - found.profit) / (WAITING * 300 - found.bound) <= 1e-3


# Configurations and places ------------------------------------------------------------------------------------------


def test_configurations_are_powers_of_two_within_a_node_or_whole_nodes() -> None:
    assert tasks_within(4, 3, 1, 64) == [1, 2, 4, 8, 12]
    assert tasks_within(8, 2, 1, 8) == [1, 2, 4, 8]
    assert tasks_within(4, 3, 6, 6) == [6]
    assert tasks_within(4, 2, 12, 12) == []
    assert tasks_within(0, 2, 1, 4) == []


def packed(gpus: list[int], jobs: list[PackedJob], size: int = 4) -> dict[int, dict[int, int]]:
    nodes = [SiaNode(index, "", size, each) for index, each in enumerate(gpus)]
    return TwoEnds(nodes, [0] * len(nodes)).pack(jobs)


def asked(number: int, tasks: int, now: dict[int, int] | None = None, least: int = 1) -> PackedJob:
    return PackedJob(number, 1, tasks, least, 0, now or {})


def test_whole_nodes_from_one_end_and_parts_from_the_other() -> None:
    assert packed([4, 4, 4, 4], [asked(0, 8), asked(1, 2), asked(2, 1)]) == {
        0: {0: 4, 1: 4},
        1: {3: 2},
        2: {3: 1},
    }


def test_a_job_keeps_its_place_unless_a_larger_one_needs_it() -> None:
    assert packed([4, 4], [asked(0, 1, {0: 1}), asked(1, 4)]) == {0: {0: 1}, 1: {1: 4}}
    moved = packed([4, 4, 4], [asked(0, 1, {0: 1}), asked(1, 2, {1: 2}), asked(2, 8)])
    assert moved == {2: {0: 4, 2: 4}, 1: {1: 2}, 0: {1: 1}}


def test_a_job_without_room_gets_half_as_many_but_not_fewer_than_it_accepts() -> None:
    assert packed([3, 3], [asked(0, 4), asked(1, 8, least=8)]) == {0: {1: 2}}


@settings(max_examples=60)
@given(sizes=st.lists(st.sampled_from([1, 2, 4, 8]), max_size=12), kept=st.lists(st.booleans(), min_size=12))
def test_powers_of_two_are_packed_without_loss(sizes: list[int], kept: list[bool]) -> None:
    """Whatever stays where it is: if there are enough GPUs, every job gets all of its own."""
    count = -(-sum(sizes) // 8) or 1
    free, jobs = [8] * count, []
    for number, size in enumerate(sizes):
        place = next((place for place, left in enumerate(free) if left >= size), None)
        if kept[number] and place is not None:
            free[place] -= size
            jobs.append(asked(number, size, {place: size}))
        else:
            jobs.append(asked(number, size))
    found = packed([8] * count, jobs, size=8)
    assert {number: sum(seats.values()) for number, seats in found.items()} == dict(enumerate(sizes))
    for place in range(count):
        assert sum(seats.get(place, 0) for seats in found.values()) <= 8


# Goodput by type ----------------------------------------------------------------------------------------------------

TRUE = StepParameters(0.08, 0.004, 0.03, 0.002, 0.12, 0.006, 1.6)


def step(parameters: StepParameters, nodes: int, gpus: int, samples: int) -> StepFigures:
    arrays = np.array([nodes > 1]), np.array([float(gpus)]), np.array([float(samples)])
    grad, whole = step_times(parameters, *arrays)
    return StepFigures(nodes, gpus, samples, float(grad[0]), float(whole[0]))


def test_a_type_with_trials_on_one_gpu_scales_as_the_type_where_the_job_has_run() -> None:
    places = ((1, 1, 16), (1, 1, 64), (1, 2, 32), (1, 4, 32), (2, 8, 32), (4, 16, 32))
    seen = tuple(step(TRUE, *each) for each in places)
    half = StepParameters(0.04, 0.002, 0.0, 0.0, 0.0, 0.0, 1.0)
    fits = fits_by_type((("fast", tuple(step(half, 1, 1, each) for each in (16, 64))), ("slow", seen)))
    for nodes, gpus in ((1, 2), (1, 4), (2, 8)):
        slow, fast = (step(fits[name], nodes, gpus, 32).step_s for name in ("slow", "fast"))
        assert fast == pytest.approx(slow / 2, rel=0.03)
        assert slow == pytest.approx(step(TRUE, nodes, gpus, 32).step_s, rel=0.03)


def test_nobody_has_run_on_several_gpus_so_they_cost_nothing() -> None:
    fits = fits_by_type((("a", (step(TRUE, 1, 1, 16), step(TRUE, 1, 1, 64))),))
    assert step(fits["a"], 2, 8, 32).step_s == pytest.approx(step(fits["a"], 1, 1, 32).step_s, rel=1e-3)


# The answer ---------------------------------------------------------------------------------------------------------


def sought(seq: int, least: int, most: int, rates: dict[str, float], **more: object) -> SiaJob:
    fields = {"task_gpus": 1, "now": {}, "kept": 1.0, "shown": ShownByType({})} | more
    return SiaJob(seq=seq, least=least, most=most, rates=rates, **fields)  # type: ignore[arg-type]


TWO_TYPES = [SiaNode(0, "new", 4, 4), SiaNode(1, "old", 4, 4)]


def seats(jobs: list[SiaJob], nodes: list[SiaNode], power: float = -0.5) -> dict[int, dict[int, int]]:
    return {seq: each.tasks for seq, each in solve(SiaProblem(jobs, nodes, power, WAITING)).jobs.items()}


def test_jobs_of_one_size_choose_the_type_by_their_speeds() -> None:
    jobs = [sought(1, 4, 4, {"new": 1.2, "old": 1.0}), sought(2, 4, 4, {"new": 3.0, "old": 1.0})]
    assert seats(jobs, TWO_TYPES) == {1: {1: 4}, 2: {0: 4}}


def test_a_job_in_tasks_of_two_gpus_has_multiples_of_them() -> None:
    jobs = [sought(1, 1, 2, {"new": 1.0, "old": 1.0}, task_gpus=2), sought(2, 4, 4, {"old": 1.0})]
    assert seats(jobs, TWO_TYPES) == {1: {0: 2}, 2: {1: 4}}
    assert seats([sought(1, 1, 2, {"new": 1.0}, task_gpus=5)], TWO_TYPES) == {1: {}}


def test_a_restart_must_pay() -> None:
    rates = {"new": 1.5, "old": 1.0}
    young, old = (sought(1, 1, 1, rates, now={1: 1}, kept=kept) for kept in (0.6, 0.9))
    assert seats([young], TWO_TYPES) == {1: {1: 1}}
    assert seats([old], TWO_TYPES) == {1: {0: 1}}


def test_a_power_above_zero_is_made_large() -> None:
    assert seats([sought(1, 1, 4, {"new": 1.0})], TWO_TYPES, power=1.0) == {1: {0: 4}}


def test_nothing_to_give() -> None:
    assert seats([sought(1, 1, 1, {"new": 1.0})], []) == {1: {}}
    assert seats([sought(1, 1, 1, {})], TWO_TYPES) == {1: {}}


def test_what_was_shown_decides_the_type_and_the_batch_size() -> None:
    fast, slow = (
        tuple(step(TRUE._replace(grad_sample=each), 1, 1, samples) for samples in (16, 128)) for each in (0.001, 0.01)
    )
    shown = ShownByType(
        {"new": ShownTraining(1, slow, 1.0, 50.0, (8, 256)), "old": ShownTraining(0, fast, samples=(8, 256))}
    )
    one = sought(1, 1, 1, {"new": 1.0, "old": 1.0}, shown=shown, batches=(32, 256))
    found = solve(SiaProblem([one], TWO_TYPES, -0.5, WAITING))
    assert found.jobs[1].tasks == {1: 1}
    assert found.jobs[1].batch_size == 256
    assert found.score == pytest.approx(found.start)


# The planner --------------------------------------------------------------------------------------------------------


def test_a_job_doubles_at_most_from_round_to_round() -> None:
    world = World(trace(job(1, min_gpus=1, max_gpus=8, work=1000, id="a")), cluster("1x8"), "sia:restart=0")
    seen = held_after(world)
    assert [seen[at_s]["a"] for at_s in (0.0, 60.0, 120.0, 180.0)] == [1, 2, 4, 8]


def test_elastic_and_fixed_jobs_share_the_gpus() -> None:
    jobs = trace(*(job(1, min_gpus=1, max_gpus=8, work=1e4, id=name) for name in "ab"), job(4, work=1e4, id="c"))
    assert held_after(World(jobs, cluster("2x4"), "sia:restart=0"))[240.0] == {"a": 2, "b": 2, "c": 4}


PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,10,{0},0.0
1,20,{1},0.0
2,10,{0},0.0
2,20,{1},0.0
"""
CURVE = """progress,iteration,grad_sqr,grad_var
2000,2000,1.0,0.0
4000,4000,1.0,0.0
"""


def test_a_job_moves_to_the_type_on_which_its_trial_was_fast(tmp_path: Path) -> None:
    """The model is twice as fast on `new`, where one GPU is free at once."""
    (tmp_path / "net").mkdir()
    for kind, times in (("old", (1.0, 2.0)), ("new", (0.5, 1.0))):
        (tmp_path / "net" / f"placements-{kind}.csv").write_text(PLACEMENTS.format(*times))
    (tmp_path / "net" / "validation-20.csv").write_text(CURVE)
    profile = read_profile(tmp_path)
    more = {"min_gpus": 1, "max_gpus": 1, "batch_size": 20, "min_batch": 20, "max_batch": 20}
    one = trace(job(1, work=profile.run_s("net", 1, 20) or 0.0, id="a", model="net", **more))
    experiment = Experiment(one, cluster("1x1:old+1x1:new"), Options(round_s=60.0), profile.speed)
    (row,) = experiment.run("sia").rows
    assert row.jct_s == pytest.approx(4000, abs=60)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ("round_s=0", "above 0"),
        ("power=0", "expected -10 to 1"),
        ("power=2", "expected -10 to 1"),
        ("waiting=1", "more than 1"),
    ],
)
def test_knobs_that_cannot_be(knobs: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        World(trace(job(1)), cluster("1x1"), f"sia:{knobs}").begin()
