"""Bootstraps of a trace."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import skep
from skep.traces.bootstrap import JOB, blocks_of, bootstrap
from skep.traces.trace import Trace

DAY_S = 86400


def made(days: float, jobs: int, **columns: Any) -> Trace:
    return skep.trace(
        [
            {"job_id": f"j{number}", "submit_s": number * days * DAY_S / jobs, "duration_s": 60, "gpus": 1} | columns
            for number in range(jobs + 1)
        ]
    )


@pytest.mark.parametrize(
    ("days", "name", "count"),
    [(70, "week", 10), (27, "week", 4), (20, "day", 20), (1, "hour", 24), (0.1, JOB, 101)],
)
def test_the_longest_blocks_of_which_there_are_enough(days: float, name: str, count: int) -> None:
    found = blocks_of(made(days, 100))
    assert (found.name, found.count) == (name, count)


@pytest.mark.parametrize("days", [70, 0.1])
def test_a_draw_has_whole_blocks_at_their_places_and_is_always_the_same(days: float) -> None:
    trace = made(days, 100)
    blocks = blocks_of(trace)
    drawn = bootstrap(trace, blocks, 3)
    assert drawn == bootstrap(trace, blocks, 3)
    assert drawn != bootstrap(trace, blocks, 4)
    times = [job.submit_s for job in drawn.jobs]
    assert times == sorted(times)
    assert len({job.spec.id for job in drawn.jobs}) == len(drawn.jobs)
    assert 0 <= times[0] <= times[-1] <= days * DAY_S
    if blocks.name != JOB:
        length_s = days * DAY_S / blocks.count
        originals = {job.spec.id: job.submit_s for job in trace.jobs}
        for job in drawn.jobs:
            name, place = job.spec.id.split("/")
            moved = (job.submit_s - originals[name]) / length_s
            assert moved == pytest.approx(round(moved))
            assert int(place) * length_s <= job.submit_s + 1e-6


def test_every_block_is_drawn_equally_often() -> None:
    trace = made(70, 100)
    blocks = blocks_of(trace)
    counts = Counter(
        int(job.spec.id[1:].split("/")[0]) // 10 for n in range(1, 401) for job in bootstrap(trace, blocks, n).jobs
    )
    assert max(counts[block] for block in range(10)) < 1.2 * min(counts[block] for block in range(10))


def test_copies_of_jobs_need_copies_within_their_block() -> None:
    rows = [
        {"job_id": f"j{n}", "submit_s": n * DAY_S / 2, "duration_s": 60, "gpus": 1, "needs": f"j{n - 1}" if n else ""}
        for n in range(20)
    ]
    trace = skep.trace(rows)
    drawn = bootstrap(trace, blocks_of(trace), 1)
    present = {job.spec.id for job in drawn.jobs}
    needed = [need for job in drawn.jobs for need in job.spec.needs]
    assert needed
    assert set(needed) <= present
