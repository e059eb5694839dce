"""An untrusted plan is tried as a whole: what is wrong with it is named, and the state stays as it was."""

from __future__ import annotations

import math

import pytest
from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.checked import BadPlan, checked_plan
from skep.core.job import JobState
from skep.core.plan import Decision
from skep.core.record import PlanRecord
from skep.core.snapshot import dump

FREE = gpus(0, 0b1)
TAKEN = gpus(1, 0b1)


@pytest.fixture
def world() -> ByHand:
    """Job `a` runs on GPU 0 of node 1; `b`, of one GPU, and `c`, of two, are pending."""
    world = ByHand(job(id="a"), job(id="b"), job(2, id="c"))
    world.start("a", TAKEN)
    return world


def test_a_plan_that_can_be_carried_out_is_tried(world: ByHand) -> None:
    plan = checked_plan(world.state, PlanRecord(decisions=[Decision("b", None, FREE)]))
    world.state.commit(plan)
    assert world["b"].bound == FREE


@pytest.mark.parametrize(
    ("logged", "says", "whose"),
    [
        (PlanRecord(decisions=[Decision("nosuch", None, FREE)]), "there is no job nosuch", "nosuch"),
        (PlanRecord(decisions=[Decision("b", None, TAKEN)]), "b", "b"),
        (PlanRecord(decisions=[Decision("c", None, FREE)]), "did not request: 1 GPUs", "c"),
        (PlanRecord(decisions=[Decision("b", None, gpus(0, 0b100))]), "does not have", "b"),
        (PlanRecord(decisions=[Decision("b", None, gpus(7, 0b1))]), "a node that does not exist", "b"),
        (PlanRecord(decisions=[Decision("b", None, FREE), Decision("b", None, FREE)]), "b", "b"),
        (PlanRecord(joins=[("a", "line")]), "lets job a wait, which is running", ""),
        (PlanRecord(wake_s=math.nan), "wake-up", ""),
        (PlanRecord(ends=[("nosuch", JobState.FAILED, "over")]), "no such group", ""),
        (PlanRecord(rejects=[("b", "no"), ("b", "no")]), "rejects a job twice", ""),
    ],
    ids=str,
)
def test_a_plan_that_cannot_is_refused_as_a_whole(world: ByHand, logged: PlanRecord, says: str, whose: str) -> None:
    before = dump(world.state)
    with pytest.raises(BadPlan, match=says) as caught:
        checked_plan(world.state, logged)
    assert caught.value.job_id == whose
    assert dump(world.state) == before
