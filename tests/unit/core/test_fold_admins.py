"""Changes of the policy and of the clock."""

from __future__ import annotations

import pytest
from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.actions import Stop
from skep.core.events import ClockStepped, ClusterChanged, PolicyChanged, PolicyFailed, TasksSuspended
from skep.core.job import JobState
from skep.core.memory import LENT, Of, Slot
from skep.core.refusal import Cause
from skep.core.timers import LIMIT, PLAN

NOTE = Slot("test", int, Of.JOB)


def changed(policy: str) -> PolicyChanged:
    return PolicyChanged(policy)


def failed(instead: str, vc: str = "") -> PolicyFailed:
    return PolicyFailed(policy="bad", error="ValueError", instead=instead, vc=vc)


def test_the_policy_before_is_the_one_to_go_back_to() -> None:
    world = ByHand()
    world.apply(changed("fifo"))
    assert (world.state.policy, world.state.previous_policy) == ("fifo", "")
    world.apply(changed("las"))
    assert (world.state.policy, world.state.previous_policy) == ("las", "fifo")
    world.apply(changed("las"))
    assert (world.state.policy, world.state.previous_policy) == ("las", "fifo"), "the same again is no change"


def test_after_a_failure_the_one_that_took_over_is_the_one_to_go_back_to() -> None:
    world = ByHand()
    world.apply(changed("bad"), failed("fifo"))
    assert (world.state.policy, world.state.previous_policy) == ("fifo", "")
    assert list(world.state.faults) == [""]
    world.apply(changed("las"))
    assert (world.state.policy, world.state.previous_policy, world.state.faults) == ("las", "fifo", {})


def test_the_failure_of_one_vc_leaves_the_policy_of_the_others() -> None:
    world = ByHand()
    world.apply(changed("las"), failed("las", vc="red"))
    assert (world.state.policy, list(world.state.faults)) == ("las", ["red"])


@pytest.mark.parametrize("event", [changed("las"), failed("fifo")], ids=["changed", "failed"])
def test_another_policy_stops_suspended_jobs_and_forgets_what_was_remembered(event: object) -> None:
    world = ByHand(job(id="a"), job(id="b"))
    world.start("a", gpus(0, 0b1))
    world.start("b", gpus(0, 0b10))
    world.suspend("a")
    world.apply(TasksSuspended("a", 0.0))
    world.decide(lambda plan: plan.remember(NOTE, "a", 1), lambda plan: plan.remember(NOTE, "b", 2))
    trigger = world.apply(event)  # type: ignore[arg-type]
    assert trigger.nodes_changed, "the new planner looks at everything"
    assert world["a"].state is JobState.STOPPING
    assert world["b"].state is JobState.RUNNING
    assert [type(action) for action in world.decide()] == [Stop]
    assert NOTE.all(world.state.memory) == {}


def test_a_failure_in_one_vc_touches_only_its_jobs() -> None:
    world = ByHand(job(id="a", vc="red"), job(id="b", vc="blue"))
    for name, mask in (("a", 0b1), ("b", 0b10)):
        world.start(name, gpus(0, mask))
        world.suspend(name)
        world.apply(TasksSuspended(name, 0.0))
    world.apply(failed("fifo", vc="red"))
    assert (world["a"].state, world["b"].state) == (JobState.STOPPING, JobState.SUSPENDED)


@pytest.mark.parametrize(("vc", "left"), [("", []), ("red", ["blue/line"])])
def test_scopes_of_the_policy_before_are_dropped(vc: str, left: list[str]) -> None:
    world = ByHand(job(id="a", vc="red"), job(id="b", vc="blue"))
    for name, scope in (("a", "red/line"), ("b", "blue/line")):
        world.decide(
            lambda plan, name=name, scope=scope: plan.wait(world[name], scope),  # type: ignore[misc]
            lambda plan, scope=scope: plan.refuse(scope, Cause.QUOTA),  # type: ignore[misc]
        )
    trigger = world.apply(failed("fifo", vc=vc))
    assert list(world.state.waiting) == left
    assert trigger.nodes_changed
    assert (world["a"].waiting, world["b"].waiting is None) == (None, not left)


def test_no_time_passes_for_any_job_while_the_clock_steps() -> None:
    world = ByHand(job(id="a", time_limit_s=100.0), job(id="b"), job(id="c"))
    world.start("a", gpus(0, 0b1))
    world.state.now_s = 10.0
    world.decide(lambda plan: plan.wait(world["b"], "line"), lambda plan: plan.refuse("line", Cause.QUOTA))
    before = {name: vars_of(world, name) for name in "ab"}
    world.state.wake_s = 40.0
    reports = world.state.report_count
    trigger = world.apply(ClockStepped(1000.0), at_s=1010.0)
    assert world.state.report_count == reports + 1  # planners do not rely on times from before
    assert {name: [value + 1000.0 for value in values] for name, values in before.items()} == {
        name: vars_of(world, name) for name in "ab"
    }
    assert trigger.nodes_changed
    assert world.state.wake_s == 1040.0
    assert world.state.waiting["line"].since_s == 1010.0
    assert [at_s for at_s, _ in world.state.knowledge.requests.saved().latest] == [1000.0] * 3
    assert world.state.timers.next_s == 1100.0
    assert [timer.kind for timer in world.state.due(1100.0)] == [LIMIT, PLAN]


def test_a_changed_cluster_gives_policies_of_vcs_another_chance() -> None:
    """The policy of all others stays out."""
    world = ByHand()
    world.apply(failed("fifo"), failed("fifo", vc="red"))
    trigger = world.apply(ClusterChanged("lab", "2x2"))
    assert list(world.state.faults) == [""]
    assert trigger.nodes_changed


def vars_of(world: ByHand, name: str) -> list[float]:
    job = world[name]
    return [
        job.pending_since_s,
        job.decided_s,
        job.held_since_s,
        job.progress_since_s,
        job.saving_since_s,
        job.halting_since_s,
    ]


def test_a_suspended_job_that_another_policy_stops_has_no_cells_of_its_vc_any_more() -> None:
    world = ByHand(job(id="a"), job(id="b"))
    for name, mask in (("a", 0b1), ("b", 0b10)):
        world.start(name, gpus(0, mask))
        world.decide(lambda plan, name=name: plan.remember(LENT, name, True))  # type: ignore[misc]
    world.suspend("a")
    world.apply(TasksSuspended("a", 0.0))
    world.apply(changed("las"))
    assert LENT.all(world.state.memory) == {"b": True}
