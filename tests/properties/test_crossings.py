"""`Rising` and `Drifting` give what looking at every running job at every decision gives."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_live_faults import Trial
from tests.support import World
from tests.support.naive_crossings import naive
from worlds import examples, worlds

from skep.core.plan import Decision
from skep.core.record import PlanRecord, decode
from skep.service.recover import recompute


@pytest.mark.parametrize("name", ["las", "e-las"])
@examples(100)
@given(data=st.data())
def test_worlds_run_as_with_naive_crossings(name: str, data: st.DataObject) -> None:
    """Simulated, with outages, priorities, all kinds of requests and adjusters."""
    world: World = data.draw(worlds(name))
    with naive():
        expected = world.begin()
        expected.finish()
    course = world.begin()
    course.finish()
    assert course.csv() == expected.csv()


LIVE = ["las", "las:lead=20", "las:lead=20,place=any", "e-las:lead=0.01", "e-las:form=product,lead=0.001"]


@pytest.mark.parametrize("policy", LIVE)
@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 16, 2))])
def test_live_decisions_are_those_of_naive_crossings(tmp_path: Path, policy: str, seed: int) -> None:
    """Slow launches, late and lost reports, other priorities, crashes after which a planner is attached."""
    trial = Trial(tmp_path, seed, policies=(policy,))
    trial.run(150)
    trial.finish()
    entries = [decode(data) for data in trial.store.entries()]
    trial.store.close()
    with naive():
        different = recompute(entries)
    assert [plans for entry, plans in different if steps(plans) != steps(entry.plans)] == []


def steps(plans: list[PlanRecord]) -> list[Decision]:
    """Without the numbers of bundles: an attempt that fails takes one too."""
    return [msgspec.structs.replace(each, bundle=0) for plan in plans for each in plan.decisions]
