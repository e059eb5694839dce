"""Counters of a job up to any moment."""

from __future__ import annotations

import pytest
from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.events import TasksSuspended
from skep.core.job import amount_of, in_proportion
from skep.core.model import Role, Shape, gpu_shape
from skep.core.refusal import Cause, Waiting


def test_counters_grow_while_a_job_runs() -> None:
    world = ByHand(job(2, id="a"))
    world.state.now_s = 10.0
    world.start("a", gpus(0, 0b11))
    a = world["a"]
    assert (a.run_at(25.0), a.service_at(25.0), a.work_at(25.0)) == (15.0, 30.0, 15.0)


def test_a_suspended_job_stands_in_all_counters() -> None:
    world = ByHand(job(2, id="a"))
    world.start("a", gpus(0, 0b11))
    world.state.now_s = 10.0
    world.suspend("a")
    world.apply(TasksSuspended("a", 10.0))
    a = world["a"]
    assert (a.service_at(99.0), a.work_at(99.0), a.is_halted) == (20.0, 10.0, True)


def test_a_job_takes_its_part_of_the_waiting_of_its_scope() -> None:
    world = ByHand(job(id="a"))
    a, scope = world["a"], Waiting(0.0)
    scope.become(Cause.QUOTA, 0.0)
    a.join(scope, 5.0)
    scope.become(Cause.FRAGMENTATION, 8.0)
    assert (a.waited_for(), scope.jobs) == ((3.0, 0.0), 1)
    a.leave(12.0)
    assert (a.waited_for(), scope.jobs, a.waiting) == ((3.0, 4.0), 0, None)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (gpu_shape(4), 4),
        (gpu_shape(1, gpu_milli=460), 0.46),
        (Shape((Role(2, 1, gpu_milli=500),)), 1),
        (gpu_shape(0, cpu=1.0), 0),
    ],
)
def test_the_requested_amount(shape: Shape, expected: float) -> None:
    assert amount_of(shape) == expected
    assert isinstance(amount_of(shape), type(expected))


def test_without_measurements_an_elastic_job_is_as_fast_as_it_is_large() -> None:
    elastic, rigid = job(2, id="a", min_gpus=1, max_gpus=4).spec, job(2, id="b").spec
    assert in_proportion(elastic, gpus(0, 0b1111)) == 2.0
    assert in_proportion(rigid, gpus(0, 0b11)) == 1.0
