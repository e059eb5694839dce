"""A head that lacks GPUs is not tried again before it could succeed, and not later either."""

from __future__ import annotations

import pytest
from tests.support import job
from tests.support.world import WorldCourse
from tests.unit.policies.begun import begun as begun_with

from skep.policies.pipeline import Pipeline


def begun(policy: str, *, steps: int) -> tuple[WorldCourse, Pipeline]:
    """Four jobs of two GPUs, then one that wants six and goes first of all, and later a short one."""
    small = [job(2, work=100.0 * (number + 1), at=0.0, id=f"small-{number}") for number in range(4)]
    jobs = (*small, job(6, work=1.0, at=10.0, id="wide"), job(2, work=500.0, at=20.0, id="late"))
    return begun_with(policy, *jobs, on="1x8", steps=steps)


def test_a_head_that_nothing_can_be_stopped_for_is_not_among_those_to_try() -> None:
    course, planner = begun("smallest:place=any", steps=2)
    assert course.state.jobs["wide"].allocation is None
    line = planner.pending.entries[course.state.jobs["wide"].seq][0]
    planner.walk_again()
    assert line not in [head[-1] for head in planner.walker.heads(course.state)]


@pytest.mark.parametrize(
    ("policy", "start_s"),
    [("smallest:place=any", 400.0), ("smallest", 400.0), ("fifo:walk=skip", 400.0), ("srsf:place=any", 10.0)],
)
def test_it_starts_as_soon_as_enough_is_free_or_can_be_freed(policy: str, start_s: float) -> None:
    course, _ = begun(policy, steps=0)
    course.finish()
    assert course.state.jobs["wide"].start_s == start_s


def test_policies_that_stop_jobs_for_other_reasons_than_their_order_do_not_rely_on_it() -> None:
    _, planner = begun("yarn-cs", steps=1)
    assert not planner.walker.keeps_hope
    assert begun("fifo", steps=1)[1].walker.keeps_hope
    assert not begun("las", steps=1)[1].walker.keeps_hope
    assert not begun("gandiva", steps=1)[1].walker.keeps_hope
