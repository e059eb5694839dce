"""A head that lacks GPUs starts as soon as it can."""

from __future__ import annotations

import pytest
from tests.support import job
from tests.unit.policies.begun import begun


@pytest.mark.parametrize(
    ("policy", "start_s"),
    [("smallest:place=any", 400.0), ("smallest", 400.0), ("fifo:walk=skip", 400.0), ("srsf:place=any", 10.0)],
)
def test_it_starts_as_soon_as_enough_is_free_or_can_be_freed(policy: str, start_s: float) -> None:
    """Four jobs of two GPUs, then one that wants six and goes first of all, and later a short one."""
    small = [job(2, work=100.0 * (number + 1), at=0.0, id=f"small-{number}") for number in range(4)]
    jobs = (*small, job(6, work=1.0, at=10.0, id="wide"), job(2, work=500.0, at=20.0, id="late"))
    course, _ = begun(policy, *jobs, on="1x8", steps=0)
    course.finish()
    assert course.state.jobs["wide"].start_s == start_s
