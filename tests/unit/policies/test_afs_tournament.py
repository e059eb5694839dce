"""The tournament of AFS against what its rule must lead to, and against what was worked out for the fact sheet."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skep.core.chance import draw
from skep.core.job import Job
from skep.core.model import JobSpec, Shape, gpu_shape
from skep.policies.allocate.elastic import ElasticSizes, Ladder
from skep.policies.allocate.runner import Givers, Runner
from skep.policies.allocate.tournament import Entrant, TournamentRoom, share_out, winner

HOME = ("",)


def power(exponent: float) -> Callable[[JobSpec, Shape], float]:
    return lambda spec, shape: float(shape.gpus**exponent)


def ladder(exponent: float, low: int = 1, high: int = 64) -> Ladder:
    return ElasticSizes(power(exponent)).ladder(JobSpec("j", (gpu_shape(low),), min_gpus=low, max_gpus=high))


def entrants(*jobs: tuple[Ladder, float], priorities: tuple[int, ...] = ()) -> list[Entrant]:
    """(ladder, work left) of each job, in order of arrival."""
    made = []
    for seq, (sizes, left_s) in enumerate(jobs):
        spec = JobSpec(f"j{seq}", (sizes.shapes[0],), priority=priorities[seq] if priorities else 0)
        made.append(Entrant(Job(spec, seq, 0.0), sizes, left_s, (HOME,)))
    return made


def shares(
    gpus: int, *jobs: tuple[Ladder, float], priorities: tuple[int, ...] = (), is_strict: bool = False
) -> list[int]:
    made = entrants(*jobs, priorities=priorities)
    share_out([iter((entrant,)) for entrant in made], TournamentRoom({HOME: gpus * 1000}), is_strict=is_strict)
    return [entrant.size for entrant in made]


def test_worked_example_of_two_jobs() -> None:
    assert shares(4, (ladder(0.9), 10.0), (ladder(0.5), 4.0)) == [2, 2]


def test_worked_example_of_three_jobs() -> None:
    assert shares(8, (ladder(0.5), 4.0), (ladder(0.5), 6.0), (ladder(0.9), 20.0)) == [2, 2, 4]


@pytest.mark.parametrize("exponent", [1.0, 0.95, 0.5, 0.1])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_nobody_starves_while_there_are_as_many_gpus_as_jobs(exponent: float, count: int) -> None:
    lengths = [float(draw(3, number) % 1000 + 1) for number in range(count)]
    found = shares(8, *((ladder(exponent), length) for length in lengths))
    assert min(found) >= 1
    assert sum(found) == 8


def test_with_more_jobs_than_gpus_the_shortest_get_one_each() -> None:
    lengths = [50.0, 10.0, 40.0, 20.0, 30.0]
    assert shares(3, *((ladder(0.9), length) for length in lengths)) == [0, 1, 0, 1, 1]


@pytest.mark.parametrize(("lengths", "expected"), [((5.0, 9.0), [4, 3]), ((9.0, 5.0), [3, 4]), ((7.0, 7.0), [4, 3])])
def test_equal_near_linear_curves_split_evenly_with_the_odd_gpu_to_the_shorter(
    lengths: tuple[float, float], expected: list[int]
) -> None:
    assert shares(7, *((ladder(0.98), length) for length in lengths)) == expected
    assert shares(6, *((ladder(0.98), length) for length in lengths)) == [3, 3]


def test_jobs_that_scale_better_get_more() -> None:
    poor, good = shares(8, (ladder(0.3), 10.0), (ladder(0.9), 10.0))
    assert poor < good


def test_a_job_is_fed_up_to_its_most_and_not_beyond() -> None:
    assert shares(8, (ladder(0.9, high=2), 10.0), (ladder(0.9, high=3), 5.0)) == [2, 3]


def test_the_least_is_granted_as_a_block_or_not_at_all() -> None:
    assert shares(5, (ladder(0.9, low=4), 10.0), (ladder(0.9, low=2), 20.0)) == [5, 0]
    assert shares(6, (ladder(0.9, low=4), 10.0), (ladder(0.9, low=2), 20.0)) == [4, 2]


def test_a_block_that_does_not_fit_is_passed_over_unless_the_walk_is_strict() -> None:
    jobs = ((ladder(0.9, low=2), 5.0), (ladder(0.9, low=4), 10.0), (ladder(0.9, low=1), 20.0))
    assert shares(4, *jobs) == [2, 0, 2]
    assert shares(4, *jobs, is_strict=True) == [4, 0, 0]


def test_priority_decides_who_has_a_share_and_not_how_large_it_is() -> None:
    jobs = ((ladder(0.9), 5.0), (ladder(0.9), 10.0), (ladder(0.9), 20.0))
    assert shares(1, *jobs, priorities=(0, 0, 7)) == [0, 0, 1]
    assert shares(3, *jobs, priorities=(0, 0, 7)) == [1, 1, 1]
    assert shares(5, *jobs, priorities=(0, 0, 7)) == shares(5, *jobs)


def test_a_job_that_more_than_doubles_its_speed_goes_before_one_that_has_nothing() -> None:
    assert shares(2, (ladder(1.2), 5.0), (ladder(0.9), 10.0)) == [2, 0]
    assert shares(2, (ladder(1.2), 5.0), (ladder(0.9), 10.0), priorities=(0, 1)) == [1, 1]


def test_sizes_that_are_no_faster_are_left_out() -> None:
    """As with a profile that takes 6 gpus for nearly 8: there is nothing between 5 and 7."""
    speeds = {1: 1.0, 2: 1.8, 3: 2.7, 4: 3.2, 5: 4.0, 6: 3.6, 7: 4.2, 8: 4.8}
    spec = JobSpec("j", (gpu_shape(1),), min_gpus=1, max_gpus=8)
    assert ElasticSizes(lambda _, shape: speeds[shape.gpus]).ladder(spec).sizes == (1, 2, 3, 4, 5, 7, 8)


def test_a_job_without_a_range_has_one_size() -> None:
    assert ElasticSizes(power(0.9)).ladder(JobSpec("j", (gpu_shape(3),))).sizes == (3,)


CURVES = {
    "nothing known": ({}, {1: 0.5, 2: 1, 3: 1.5, 4: 2, 5: 2.5}),
    "one size": ({2: 1.0}, {1: 0.5, 2: 1, 3: 1.5, 4: 2, 5: 2.5}),
    "two sizes": ({2: 1.0, 4: 1.5}, {1: 0.5, 2: 1, 3: 1.25, 4: 1.5, 5: 1.875}),
    "a larger size that is not faster": ({2: 1.0, 4: 1.0}, {1: 0.5, 2: 1, 5: 1.25}),
}


@pytest.mark.parametrize(("known", "expected"), CURVES.values(), ids=CURVES)
def test_unknown_sizes_lie_between_known_ones(known: dict[int, float], expected: dict[int, float]) -> None:
    spec = JobSpec("j", (gpu_shape(2),), min_gpus=1, max_gpus=5)
    ladder = ElasticSizes(lambda _, shape: known.get(shape.gpus)).ladder(spec)
    assert dict(zip(ladder.sizes, map(float, ladder.speeds), strict=True)) == expected


def test_as_few_jobs_as_possible_give_something_back() -> None:
    """The smallest that has enough alone, or else the largest; nobody is stopped while somebody can shrink."""
    givers = Givers()
    for seq, held in enumerate((3, 8, 5)):
        spec = JobSpec(f"j{seq}", (gpu_shape(1),), min_gpus=1, max_gpus=8)
        runner = Runner(Job(spec, seq, 0.0), ElasticSizes(power(0.9)).ladder(spec), 10.0, HOME, held * 1000)
        runner.climb()
        (givers.shrinking if seq else givers.stopping).append(runner)
    taken = [givers.take(missing * 1000, may_stop=True) for missing in (3, 9, 1)]
    assert [runner and runner.seq for runner in taken] == [2, 1, 0]
    assert givers.take(1000, may_stop=True) is None


# The rule ---------------------------------------------------------------------------------------------------------

CURVES = st.lists(st.floats(0.05, 1.0), min_size=9, max_size=9).map(
    lambda steps: list(itertools.accumulate([1.0, *sorted(steps, reverse=True)]))
)


@given(CURVES, CURVES, st.integers(0, 7), st.integers(0, 7), st.floats(1.0, 100.0), st.floats(1.0, 100.0))
def test_the_pair_rule_is_the_smaller_sum_of_completion_times(
    curve_a: list[float], curve_b: list[float], at_a: int, at_b: int, left_a: float, left_b: float
) -> None:
    """One more gpu for two jobs: first to the one that ends first and then to the other, or to the other at once."""
    pair = []
    for curve, at, left_s in ((curve_a, at_a, left_a), (curve_b, at_b, left_b)):
        spec = JobSpec("j", (gpu_shape(1),), min_gpus=1, max_gpus=9)
        entrant = Entrant(
            Job(spec, len(pair), 0.0),
            ElasticSizes(lambda _, shape, c=curve: c[shape.gpus - 1]).ladder(spec),
            left_s,
            (HOME,),
        )
        for _ in range(at + 1):
            entrant.climb()
        pair.append((entrant, curve[at], curve[at + 1], left_s))
    pair.sort(key=lambda item: item[0].ends_s)
    (a, pa, pa1, la), (b, pb, pb1, lb) = pair
    ends_a, ends_b = la / pa1, lb / pb1
    assume(la / pa < ends_b and ends_a * pb < lb)  # else b would end first after all
    to_a = ends_a + ends_a + (lb - ends_a * pb) / pb1
    to_b = la / pa + ends_b
    if abs(to_a - to_b) > 1e-9 * (to_a + to_b):
        earlier, later = sorted((a, b), key=lambda entrant: entrant.seq)
        assert winner(earlier, later) is (a if to_a < to_b else b)


@given(st.data())
def test_the_walk_that_begins_where_it_changed_is_the_whole_walk(data: st.DataObject) -> None:
    jobs = [
        (ladder(data.draw(st.sampled_from([0.3, 0.5, 0.8, 0.95, 1.0])), high=data.draw(st.integers(1, 12))), left_s)
        for left_s in data.draw(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=8))
    ]
    gpus = data.draw(st.integers(0, 40))
    assert shares(gpus, *jobs) == naive(gpus, entrants(*jobs))


def naive(gpus: int, made: list[Entrant]) -> list[int]:
    """The tournament as it is written down: every gpu a walk over all jobs in order of arrival."""
    for _ in range(gpus):
        best = None
        for other in (entrant for entrant in made if entrant.part):
            best = other if best is None else best_of(best, other)
        if best is not None:
            best.climb()
    return [entrant.size for entrant in made]


def best_of(earlier: Entrant, later: Entrant) -> Entrant:
    if earlier.rung >= 0 and later.rung >= 0:
        return winner(earlier, later)
    return min(earlier, later, key=lambda entrant: (entrant.rung >= 0, entrant.first_s, entrant.seq))
