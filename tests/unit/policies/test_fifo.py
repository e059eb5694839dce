"""First come, first served, worked out by hand: what each walk lets pass, and that priorities preempt."""

from __future__ import annotations

import pytest
from tests.support import job

from skep.verify.play import finishes, play, play_jobs, starts

BLOCKED = [(0, 100, 2), (0, 10, 4), (0, 10, 1), (0, 200, 1)]
"""The second job needs the whole node."""


@pytest.mark.parametrize(
    ("walk", "expected"),
    [("strict", (0, 100, 110, 110)), ("skip", (0, 200, 0, 0)), ("easy", (0, 100, 0, 110))],
)
def test_what_may_pass_a_job_that_does_not_fit(walk: str, expected: tuple[float, ...]) -> None:
    """With `easy` only jobs that end before the blocked one can start."""
    assert starts(play(f"fifo:walk={walk}", "1x4", BLOCKED)) == expected


def test_equal_jobs_run_in_the_order_of_submission() -> None:
    assert finishes(play("fifo", "1x1", [(0, 30, 1), (1, 20, 1), (2, 10, 1)])) == (30, 50, 60)


def test_a_higher_priority_preempts_the_last_of_the_lower_ones() -> None:
    jobs = [job(1, id="a"), job(1, id="b"), job(1, id="c", at=40.0, priority=1)]
    rows = {row.job_id: row for row in play_jobs("fifo", "1x2", jobs).rows}
    assert (rows["c"].start_s, rows["a"].preemptions, rows["b"].preemptions) == (40, 0, 1)
    assert rows["b"].finish_s == 160
