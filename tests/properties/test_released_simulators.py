"""Policies that must do what simulators of others do: on random traces and clusters, against naive twins.

`tests/reference` compares with what those simulators really answered, where that is at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from released_twins import Twin, all_anew, any_gpus, by_key, by_queue, first_node, fullest_node, in_rounds, in_turn
from tests.support import cluster, job, trace
from worlds import examples

from skep.experiments.simulate import Experiment, Options

Row = tuple[int, int, int]
"""Submission, work, gpus."""
Simulate = Callable[[list[Twin], int, int], None]


def turns(fit: Callable[..., object], *, skip: bool = False, sjf: bool = False) -> Simulate:
    return lambda jobs, nodes, size: in_turn(jobs, [size] * nodes, size, fit, skip=skip, sjf=sjf)  # type: ignore[arg-type]


def anew(key: Callable[[Twin], int]) -> Simulate:
    return lambda jobs, nodes, size: all_anew(jobs, nodes * size, [[]], partial(by_key, key))


def queues(promote: int = 0, *, by_size: bool = True) -> Simulate:
    return lambda jobs, nodes, size: all_anew(
        jobs, nodes * size, [[], [], []], partial(by_queue, jobs, promote, by_size)
    )


TWINS: dict[str, Simulate] = {
    "fifo:walk=strict,place=any": turns(any_gpus),
    "fifo:walk=skip,place=any": turns(any_gpus, skip=True),
    "sjf:walk=skip,place=any": turns(any_gpus, skip=True, sjf=True),
    "fifo:walk=strict,place=first-fit": turns(first_node),
    "fifo:walk=skip,place=first-fit": turns(first_node, skip=True),
    "fifo:walk=strict,place=consolidate": turns(fullest_node),
    "sjf:walk=strict,place=consolidate": turns(fullest_node, sjf=True),
    "smallest:place=any,compat=true": anew(lambda one: one.size),
    "srtf:place=any,compat=true": anew(lambda one: one.work - one.done),
    "srsf:place=any,compat=true": anew(lambda one: (one.work - one.done) * one.size),
    "las:service=seconds,queues=30+72,place=any,compat=true": queues(by_size=False),
    "tiresias-l:queues=30+72,place=any,compat=true": queues(),
    "tiresias-l:queues=30+72,place=any,compat=true,promote=1": queues(1),
    "tiresias-l:queues=30+72,place=any,compat=true,promote=3": queues(3),
}

IN_ROUNDS: dict[str, Callable[[Twin], int]] = {
    "fifo:walk=strict": lambda one: not one.runs,
    "las:service=seconds,walk=strict": lambda one: one.done,
    "srtf:walk=strict": lambda one: one.work - one.done,
}


def rows(size_max: int) -> st.SearchStrategy[list[Row]]:
    row = st.tuples(st.integers(0, 60), st.integers(1, 90), st.integers(1, size_max))
    return st.lists(row, min_size=1, max_size=25).map(sorted)


def ours(policy: str, on: str, given: list[Row], options: Options) -> list[tuple[float | None, float | None, int]]:
    jobs = trace(*(job(gpus, at=float(at), work=float(work)) for at, work, gpus in given))
    found = Experiment(jobs, cluster(on), options).run(policy).rows
    return [(row.start_s, row.finish_s, row.preemptions) for row in found]


def theirs(jobs: list[Twin]) -> list[tuple[float | None, float | None, int]]:
    return [(one.start, one.finish, one.preempted) for one in jobs]


@pytest.mark.parametrize("policy", TWINS)
@examples(40)
@given(given=rows(13), nodes=st.integers(1, 5), size=st.sampled_from([1, 2, 3, 4, 8]))
def test_the_same_start_finish_and_preemptions(policy: str, given: list[Row], nodes: int, size: int) -> None:
    jobs = [Twin(*row) for row in given]
    TWINS[policy](jobs, nodes, size)
    assert ours(policy, f"{nodes}x{size}", given, Options(restart_s=0.0)) == theirs(jobs)


@pytest.mark.parametrize("policy", IN_ROUNDS)
@examples(40)
@given(given=rows(1), gpus=st.integers(1, 4))
def test_the_same_in_rounds(policy: str, given: list[Row], gpus: int) -> None:
    jobs = [Twin(*row) for row in given]
    in_rounds(jobs, gpus, IN_ROUNDS[policy], 20)
    options = Options(restart_s=0.0, round_s=20.0, finish_at_boundary=True)
    assert ours(policy, f"1x{gpus}", given, options) == theirs(jobs)
