"""Singularity at 150 % load, three seeds: every premium and standard job has its part of each full hour."""

from __future__ import annotations

import pytest

from skep.core.job import JobState
from skep.verify.play import play_jobs
from skep.verify.tiers import PROMISED, hourly, overload

GPUS, HOURS = 64, 48.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_load_is_what_is_said(seed: int) -> None:
    jobs = overload(seed, gpus=GPUS, hours=HOURS)
    asked = dict.fromkeys(("premium", "standard", "basic"), 0.0)
    for job in jobs:
        assert job.spec.share is not None
        asked[job.spec.share.tier] += job.work_s * job.spec.shapes[0].gpus
    there = GPUS * max(job.submit_s for job in jobs)
    parts = [asked[tier] / there for tier in asked]
    assert parts == pytest.approx([0.3, 0.45, 0.75], rel=0.25), "drawn at random"
    assert sum(parts) == pytest.approx(1.5, rel=0.15)
    assert sum(PROMISED[tier] * part for tier, part in zip(PROMISED, parts, strict=False)) == pytest.approx(
        0.6, rel=0.2
    )


@pytest.mark.parametrize("restart_s", [30.0, 60.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_promise_is_kept_in_every_full_hour(seed: int, restart_s: float) -> None:
    jobs = overload(seed, gpus=GPUS, hours=HOURS)
    run = play_jobs("singularity", "8x8", jobs, restart_s=restart_s)
    hours = refused = promised = 0
    for at, job in enumerate(jobs):
        assert job.spec.share is not None
        part = PROMISED.get(job.spec.share.tier, 0.0)
        promised += part > 0
        if part and run.rows[at].state == JobState.UNRUNNABLE:
            refused += 1
            continue
        assert run.rows[at].state == JobState.SUCCEEDED
        got = list(hourly(run, at, restart_s)) if part else []
        assert all(each >= part - 1e-6 for each in got), (job.spec.id, got)
        hours += len(got)
    assert hours > 600
    assert refused < 0.2 * promised, "promises fit most of the time"
    assert run.summary.utilization > 0.9
    assert min(run.summary.preemptions, run.summary.migrations, run.summary.resizes) > 0
