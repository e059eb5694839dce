"""The state itself: its version, its timers, who is placed, and copies without content."""

from __future__ import annotations

import math

from tests.support import job, take_trigger
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.cluster import Slice
from skep.core.events import JobSubmitted, NodeLost, TasksStarted, TimerDue
from skep.core.model import JobSpec, gpu_shape
from skep.core.timers import LIMIT, PLAN, Timer


def test_events_and_decisions_make_a_later_version() -> None:
    world = ByHand(job(id="a"))
    assert (world.state.version, world.state.event_count, world.state.decision_count) == (1, 1, 0)
    version = world.state.version
    world.apply(JobSubmitted(JobSpec("b", (gpu_shape(1),))))
    assert world.state.version == version + 1
    decisions, events = world.state.decision_count, world.state.event_count
    world.decide()
    assert world.state.version == version + 2
    assert (world.state.decision_count, world.state.event_count) == (decisions + 1, events)


def test_the_next_decision_is_told_which_jobs_have_started_once() -> None:
    world = ByHand(job(id="a"))
    world.decide(lambda plan: plan.start(world["a"], gpus(0, 0b1)))
    world.state.advance(world.state.now_s, [TasksStarted("a", 1.0, world.state.now_s, 1)])
    assert not world.state.is_woken, "a start alone does not wake the planner"
    assert take_trigger(world.state).started == [world["a"]]
    assert take_trigger(world.state).started == []


def test_the_next_timer_is_that_of_a_job_or_of_the_planner() -> None:
    world = ByHand(job(id="a", time_limit_s=50.0))
    assert world.state.next_timer_s == math.inf
    world.decide(lambda plan: plan.wake(70.0))
    assert (world.state.next_timer_s, world.state.due(69.0), world.state.due(70.0)) == (70.0, (), (Timer(70.0, PLAN),))
    world.start("a", gpus(0, 0b1))
    assert (world.state.wake_s, world.state.next_timer_s) == (math.inf, 50.0), "a plan without a wake-up has none"
    world.decide(lambda plan: plan.wake(40.0))
    assert world.state.next_timer_s == 40.0
    assert [timer.kind for timer in world.state.due(50.0)] == [LIMIT, PLAN]


def test_a_job_knows_when_it_was_last_decided_about() -> None:
    world = ByHand(job(id="a"), job(id="b"))
    world.state.now_s = 10.0
    world.start("a", gpus(0, 0b1))
    world.state.now_s = 20.0
    world.decide(lambda plan: plan.move(world["a"], gpus(1, 0b1)))
    assert (world["a"].decided_s, world["b"].decided_s) == (20.0, 0.0)


def test_a_wake_up_comes_once() -> None:
    world = ByHand()
    world.decide(lambda plan: plan.wake(70.0))
    assert world.apply(TimerDue(world.state.due(70.0)), at_s=70.0).is_timer
    assert (world.state.wake_s, world.state.due(80.0)) == (math.inf, ())


def test_a_job_that_is_submitted_on_hold_is_no_news_for_the_planner() -> None:
    world = ByHand()
    trigger = world.apply(JobSubmitted(JobSpec("a", (gpu_shape(1),)), "its owner waits for data"))
    assert (trigger.submitted, world["a"].hold) == ([], "its owner waits for data")


def test_every_submission_is_known_as_a_request_of_its_vc() -> None:
    world = ByHand(job(1, vc="red"), job(2, vc="blue"), job(4, vc="red"))
    known = world.state.knowledge
    assert [shape.gpus for shape in known.requests.shapes()] == [1, 2, 4]
    assert [shape.gpus for shape in known.vc_requests["red"].shapes()] == [1, 4]


def test_jobs_that_run_are_placed_before_those_that_are_about_to() -> None:
    world = ByHand(job(id="a"), job(id="b"), job(id="c"))
    world.decide(lambda plan: plan.start(world["a"], gpus(0, 0b1)))
    world.start("b", gpus(0, 0b10))
    assert [each.id for each in world.state.placed_jobs()] == ["b", "a"]


def test_the_trigger_is_taken_once() -> None:
    world = ByHand()
    world.state.advance(world.state.now_s, [JobSubmitted(JobSpec("a", (gpu_shape(1),)))])
    assert [each.id for each in take_trigger(world.state).submitted] == ["a"]
    assert not take_trigger(world.state).wakes()


def test_a_blank_state_has_the_same_cluster_and_nothing_on_it() -> None:
    world = ByHand(job(2, id="a"))
    world.start("a", gpus(0, 0b11))
    blank = world.state.blank()
    assert (blank.jobs, blank.version) == ({}, 0)
    assert [each.free_mask for each in blank.cluster.nodes] == [0b11, 0b11]
    assert world.state.cluster.nodes[0].holders == {0b11: world["a"].seq}
    blank.cluster.take(gpus(1, 0b1), 9)
    assert world.state.cluster.nodes[1].free_mask == 0b11
    assert Slice(0, 0b11, tasks=2) in world["a"].held.slices  # type: ignore[union-attr]


def test_a_trial_with_the_nodes_that_are_out_of_use_leaves_them_so() -> None:
    world = ByHand(job(id="a"), on="2x2")
    world.apply(NodeLost("n0"))
    nodes, free = world.state.cluster.nodes, [pool.free for pool in world.state.cluster.pools]
    with world.state.with_nodes(["n0", "n1"]) as plan:
        assert [node.is_up for node in nodes] == [True, True]
        plan.start(world["a"], gpus(0, 0b1))
    assert [node.is_up for node in nodes] == [False, True]
    assert [pool.free for pool in world.state.cluster.pools] == free
