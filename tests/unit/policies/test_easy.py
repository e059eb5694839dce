"""EASY backfilling: the reservation of the head, and which jobs may pass it."""

from __future__ import annotations

import math

import pytest
from tests.support import World, cluster, job, trace
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.job import Job
from skep.core.model import told
from skep.policies.easy import left_s, reserved_start
from skep.policies.estimate.duration import Duration
from skep.policies.place import PLACES
from skep.traces.trace import TraceJob

ANY = PLACES["any"]()


@pytest.fixture
def world() -> ByHand:
    """Jobs `a` and `b` hold one of four GPUs each; `head` needs all four."""
    world = ByHand(job(id="a", work=100.0), job(id="b", work=50.0), job(4, id="head"), on="1x4")
    for each in world.state.jobs.values():
        each.spec = told(each.spec)
    world.start("a", gpus(0, 0b01))
    world.start("b", gpus(0, 0b10))
    return world


def freed(world: ByHand, *ends: tuple[float, str]) -> list[tuple[float, Job]]:
    return [(end_s, world[name]) for end_s, name in ends]


def test_the_head_is_due_when_enough_jobs_have_ended(world: ByHand) -> None:
    plan = world.state.new_plan()
    ends = freed(world, (100.0, "a"), (50.0, "b"))
    assert reserved_start(world.state, plan, ANY, world["head"], [*ends]) == 100.0
    assert plan.mark() == 0


def test_without_an_estimate_there_is_no_reservation(world: ByHand) -> None:
    plan = world.state.new_plan()
    ends = freed(world, (math.inf, "a"), (50.0, "b"))
    assert reserved_start(world.state, plan, ANY, world["head"], [*ends]) == math.inf


def test_a_job_beyond_its_estimate_is_about_to_end(world: ByHand) -> None:
    assert left_s(world["b"], Duration(), 20.0) == 30.0
    assert left_s(world["b"], Duration(), 80.0) == 0.0


def starts(*jobs: TraceJob) -> dict[str, float | None]:
    rows = World(trace(*jobs), cluster("1x4"), "fifo:walk=easy").run().rows()
    return {row.job_id: row.start_s for row in rows}


def test_a_job_passes_if_it_ends_before_the_reservation_and_only_then() -> None:
    jobs = (job(3, id="a", work=100.0), job(4, id="head", work=10.0))
    assert starts(*jobs, job(1, id="short", work=100.0))["short"] == 0.0
    assert starts(*jobs, job(1, id="long", work=101.0)) == {"a": 0.0, "head": 100.0, "long": 110.0}


def test_a_long_job_passes_on_gpus_that_the_head_does_not_need() -> None:
    assert starts(job(3, id="a"), job(3, id="head"), job(1, id="long", work=1e4)) == {
        "a": 0.0,
        "head": 100.0,
        "long": 0.0,
    }
