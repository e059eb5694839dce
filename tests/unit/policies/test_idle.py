"""The planner of last resort: it decides nothing and says why."""

from __future__ import annotations

from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.ports import Planner
from skep.core.refusal import Cause
from skep.core.rounds import everything
from skep.policies.idle import Idle


def test_it_starts_nothing_and_stops_nothing() -> None:
    world = ByHand(job(id="a"), job(id="b"))
    world.start("a", gpus(0, 0b1))
    planner: Planner = Idle()
    planner.attach(world.state, world.state.memory)
    plan = planner.plan(world.state, world.state.memory, everything())
    assert (plan.decisions, plan.joins, plan.rejects, plan.wake_s) == ([], [], [], None)


def test_every_job_may_be_submitted_and_is_explained() -> None:
    world = ByHand(job(64, id="huge"))
    planner = Idle()
    assert planner.why_never(world.state, world["huge"]) == ""
    refusal = planner.explain(world.state, world.state.memory, world["huge"])
    assert (refusal.code, refusal.cause) == ("no-policy", Cause.ORDER)
    assert "skep policy use" in refusal.remedy
