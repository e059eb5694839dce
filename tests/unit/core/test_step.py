"""One step: who is asked, how often, and what a change of policy or cluster brings."""

from __future__ import annotations

import math

import pytest
from tests.support import cluster

from skep.core.actions import Launch
from skep.core.cluster import Allocation, Slice
from skep.core.errors import InvariantBroken
from skep.core.events import JobSubmitted, NodeLost, PolicyChanged, TasksStarted, TimerDue
from skep.core.memory import Memory
from skep.core.model import JobSpec, gpu_shape
from skep.core.plan import Plan
from skep.core.state import State
from skep.core.step import PLANS_MAX, PlannerChange, Scheduler
from skep.core.view import Trigger, View
from skep.policies.idle import Idle
from skep.policies.registry import Setting, build_planner


class Noting(Idle):
    """Decides nothing, and notes what it was asked with."""

    def __init__(self, round_s: float = 0.0) -> None:
        super().__init__()
        self.round_s = round_s
        self.asked: list[Trigger] = []
        self.attached = 0

    def attach(self, view: View, memory: Memory) -> None:
        self.attached += 1

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        self.asked.append(trigger)
        return view.new_plan()


def submitted(name: str, gpus: int = 1) -> JobSubmitted:
    return JobSubmitted(JobSpec(name, (gpu_shape(gpus),)))


def test_all_events_of_an_instant_are_one_trigger() -> None:
    planner = Noting()
    scheduler = Scheduler(State(cluster("1x2")), planner)
    assert scheduler.step(3.0, [submitted("a"), submitted("b")]) == []
    assert [[job.id for job in trigger.submitted] for trigger in planner.asked] == [["a", "b"]]
    assert (scheduler.state.now_s, len(scheduler.plans), planner.attached) == (3.0, 1, 1)
    scheduler.step(4.0, [])
    assert (len(planner.asked), scheduler.plans) == (1, []), "nothing happened: the planner is not asked"


def test_decisions_become_actions() -> None:
    on = cluster("1x2")
    scheduler = Scheduler(State(on), build_planner("fifo", Setting(on)))
    actions = scheduler.step(0.0, [submitted("a"), submitted("b", 2)])
    assert [(type(each), each.job_id) for each in actions] == [(Launch, "a")]
    assert scheduler.step(1.0, [TasksStarted("a", 1.0, 1.0, 1)]) == []


def test_a_planner_with_rounds_is_asked_at_their_boundaries_with_all_since() -> None:
    planner = Noting(round_s=10.0)
    scheduler = Scheduler(State(cluster("1x2")), planner)
    scheduler.step(3.0, [submitted("a")])
    assert (planner.asked, scheduler.state.wake_s) == ([], 10.0)
    scheduler.step(7.0, [submitted("b")])
    scheduler.step(10.0, [TimerDue(scheduler.state.due(10.0))])
    assert [[job.id for job in trigger.submitted] for trigger in planner.asked] == [["a", "b"]]
    assert (planner.asked[0].is_timer, scheduler.state.wake_s) == (True, 20.0)
    scheduler.step(20.0, [TimerDue(scheduler.state.due(20.0))])
    assert [job.id for job in planner.asked[1].submitted] == []


def test_an_idle_cluster_has_no_rounds() -> None:
    planner = Noting(round_s=10.0)
    scheduler = Scheduler(State(cluster("1x2")), planner)
    scheduler.step(3.0, [NodeLost(scheduler.state.cluster.nodes[0].name)])
    assert scheduler.state.wake_s == float("inf")


def test_another_policy_is_attached_and_asked() -> None:
    before, after = Noting(), Noting()
    scheduler = Scheduler(State(cluster("1x2")), before)
    scheduler.step(0.0, [submitted("a")])
    scheduler.step(1.0, [PolicyChanged("las")], PlannerChange(lambda on: after))
    assert (scheduler.planner, after.attached, len(after.asked), len(before.asked)) == (after, 1, 1, 1)


def test_a_planner_that_never_settles_is_a_bug() -> None:
    class Restless(Noting):
        def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
            """Withdraws its own start, after which the job is pending again and must be looked at."""
            plan, job = super().plan(view, memory, trigger), view.jobs["a"]
            plan.start(job, Allocation((Slice(0, 0b1),), 1))
            plan.stop(job, "another start")
            return plan

    planner = Restless()
    scheduler = Scheduler(State(cluster("1x2")), planner)
    with pytest.raises(InvariantBroken, match=f"does not settle: {PLANS_MAX} decisions"):
        scheduler.step(0.0, [submitted("a")])
    assert len(planner.asked) == PLANS_MAX


class Restless(Noting):
    """Asks to be woken at once."""

    after_s = 0.0001

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = super().plan(view, memory, trigger)
        plan.wake(view.now_s + self.after_s)
        return plan


def test_a_wake_up_time_is_a_number() -> None:
    planner = Restless()
    planner.after_s = math.nan
    scheduler = Scheduler(State(cluster("1x2")), planner)
    with pytest.raises(InvariantBroken, match="its wake-up time is not a number"):
        scheduler.step(0.0, [submitted("a")])


def test_only_wake_ups_in_a_row_without_a_decision_are_in_vain() -> None:
    planner = Restless()
    scheduler = Scheduler(State(cluster("1x2")), planner)

    def wake(at_s: float) -> int:
        scheduler.step(at_s, [TimerDue(scheduler.state.due(at_s))])
        return scheduler.wakes_in_vain

    scheduler.step(0.0, [submitted("a")])
    assert scheduler.wakes_in_vain == 0, "something had happened"
    assert [wake(0.0001), wake(0.0002)] == [1, 2]
    scheduler.step(0.0002, [submitted("b")])
    assert scheduler.wakes_in_vain == 0
    assert wake(0.0003) == 1
    planner.after_s = 60.0
    assert wake(0.0004) == 0, "it wants to be woken later"
