"""Deflation, throttling, rebalancing within a node, and what adjusters write down."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from tests.support import World, cluster, job, trace
from tests.support.adjusters import ADJUSTED
from tests.support.world import WorldCourse

from skep.core.cluster import WHOLE, Allocation, Slice
from skep.core.events import JobSubmitted, ProgressReported, TasksStarted
from skep.core.job import Job
from skep.core.state import State
from skep.core.view import Trigger
from skep.policies.adjust.effects import Adjustment
from skep.policies.adjust.throttle import Throttle
from skep.policies.seats import Seats
from skep.traces.trace import TraceJob


def begin(adjust: str, where: str, *jobs: TraceJob) -> WorldCourse:
    return World(trace(*jobs), cluster(where), f"{ADJUSTED}:adjusted={adjust},placed=consolidate").begin()


def until(course: WorldCourse, at_s: float) -> dict[str, Job]:
    while course.state.now_s < at_s and course.advance():
        pass
    return course.state.jobs


def gpus_of(found: Job) -> float:
    return found.allocation.gpus if found.allocation is not None else 0


# Deflation ------------------------------------------------------------------------------------------------------


def test_a_job_of_lower_priority_shrinks_instead_of_being_killed_and_grows_back() -> None:
    jobs = [job(4, work=1000.0, min_gpus=1, id="low"), job(2, work=50.0, at=10.0, priority=1, id="high")]
    course = begin("deflate", "1x4", *jobs)
    found = until(course, 10.0)
    assert found["high"].start_s == 10.0
    assert gpus_of(found["low"]) == 1
    course.finish()
    assert found["low"].preemptions == 0
    assert found["low"].resizes == 2


def test_jobs_of_the_same_priority_do_not_shrink_for_each_other() -> None:
    course = begin("deflate", "1x4", job(4, work=100.0, min_gpus=1), job(2, work=50.0, at=10.0))
    course.finish()
    assert course.state.jobs["j1"].start_s == 100.0


def test_a_job_that_cannot_shrink_is_stopped_as_before() -> None:
    course = begin("deflate", "1x4", job(4, work=100.0), job(2, work=50.0, at=10.0, priority=1))
    found = until(course, 10.0)
    assert found["j1"].start_s == 10.0
    assert found["j0"].preemptions == 1


def test_nobody_shrinks_if_that_is_not_enough() -> None:
    course = begin("deflate", "1x4", job(4, work=100.0, min_gpus=3), job(2, work=50.0, at=10.0, priority=1))
    found = until(course, 10.0)
    assert gpus_of(found["j0"]) == 4
    course.finish()
    assert found["j1"].start_s == 100.0


# Rebalancing ----------------------------------------------------------------------------------------------------


def test_within_a_node_the_last_to_join_moves_to_a_free_gpu_of_it() -> None:
    """Node 0 has two GPUs, both shared; both jobs of the first end. A free GPU of another node is not looked at."""
    jobs = [job(1, work=work, at=float(at)) for at, work in enumerate((10.0, 2000.0, 10.0, 2000.0))]
    course = begin("turns+rebalance", "1x2", *jobs)
    until(course, 100.0)
    held = [each.allocation for each in course.state.jobs.values() if each.allocation is not None]
    assert sorted(each.slices[0].gpus for each in held) == [1, 2]
    assert [each.migrations for each in course.state.jobs.values()] == [0, 0, 0, 1]


def test_a_free_gpu_of_another_node_is_left_alone() -> None:
    jobs = [job(1, work=10.0), job(1, work=2000.0, at=1.0), job(1, work=2000.0, at=2.0)]
    course = begin("turns+rebalance", "1x1:a+1x1:b", *jobs)
    found = until(course, 500.0)
    assert [each.migrations for each in found.values()] == [0, 0, 0]


# Throttling -----------------------------------------------------------------------------------------------------


class Lent:
    """A guaranteed job and an opportunistic one on one GPU, at speeds that the engine reports."""

    def __init__(self) -> None:
        self.state = State(cluster("1x1"))
        owner, guest = trace(job(1, work=math.inf, id="owner"), job(1, work=math.inf, id="guest")).jobs
        for entry in (owner, guest):
            self.state.advance(self.state.now_s, [JobSubmitted(entry.spec)])
        plan = self.state.new_plan()
        for name, milli in (("owner", WHOLE), ("guest", 0)):
            seats = Slice(0, 1, milli=milli, limit=WHOLE, mode="lend")
            plan.start(self.state.jobs[name], Allocation((seats,), 1))
        self.state.commit(plan)
        self.state.send()
        for name in ("owner", "guest"):
            self.state.advance(self.state.now_s, [TasksStarted(name, 1.0, 0.0)])
        self.throttle = Throttle(cool_down_s=30.0)
        self.throttle.attach(self.state)
        self.seats = Seats()
        self.seats.nodes = self.state.cluster.nodes
        for each in self.state.jobs.values():
            self.seats.add(each)

    def look(self, at_s: float, owner_speed: float) -> tuple[int, float]:
        """The limit of the opportunistic job afterwards, and when it wants to be asked again."""
        self.state.now_s = at_s
        self.state.advance(self.state.now_s, [ProgressReported("owner", 0.0, owner_speed, 0.0)])
        plan = self.state.new_plan()
        wake_s = self.throttle.adjust(self.state, plan, Trigger(), SimpleNamespace(seats=self.seats))  # type: ignore[arg-type]
        self.state.commit(plan)
        self.state.send()
        return self.state.jobs["guest"].limit_milli, wake_s


def test_a_neighbour_is_halved_while_the_guaranteed_job_suffers_and_recovers_step_by_step() -> None:
    lent = Lent()
    limits = [lent.look(30.0 * at, speed)[0] for at, speed in enumerate((0.9, 0.8, 0.96, 1.0, 1.0), start=1)]
    assert limits == [500, 250, 250, 350, 450]


def test_nobody_is_throttled_below_the_least() -> None:
    lent = Lent()
    assert min(lent.look(30.0 * at, 0.5)[0] for at in range(1, 12)) == 20


def test_a_limit_is_left_alone_within_the_cool_down() -> None:
    lent = Lent()
    assert lent.look(30.0, 0.9) == (500, 60.0)
    assert lent.look(40.0, 0.9)[0] == 500


# What is written down -------------------------------------------------------------------------------------------


def test_an_effect_is_predicted_when_it_is_decided_and_measured_later() -> None:
    course = begin("deflate", "1x4", job(4, work=1000.0, min_gpus=1, id="low"), job(2, work=900.0, at=10.0, priority=1))
    until(course, 10.0)
    noted = course.state.memory.jobs["low"]["adjusted deflate"]
    assert noted == Adjustment("deflate", 10.0, 0.25, {"gpus": 4.0, "speed": 1.0}, None, 600.0)
    until(course, 600.0)
    noted = course.state.memory.jobs["low"]["adjusted deflate"]
    assert noted == Adjustment("deflate", 10.0, 0.25, {"gpus": 4.0, "speed": 1.0}, pytest.approx(0.25), None)
