"""Held, busy and useful GPU time, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import cluster, job, trace

from skep.core.share import Share
from skep.experiments.simulate import Experiment, Options
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob

PROFILE = read_native(
    """
reference: v100
default:
  types: {v100: 1.0, a100: 2.0, k80: 0.5}
models:
  light: {use: {sm: 0.3}}
  dense: {use: {sm: 0.4}, sharing: {dense: 0.98}}
""",
    "test",
)


def times(policy: str, where: str, *jobs: TraceJob, profile: bool = False, **options: object) -> tuple[float, ...]:
    experiment = Experiment(
        trace(*jobs),
        cluster(where),
        Options(**options),
        PROFILE.speed if profile else None,  # type: ignore[arg-type]
    )
    found = experiment.run(policy).summary
    assert found.utilization is not None
    assert found.busy is not None
    assert found.fre is not None
    return found.utilization, found.busy, found.fre


def test_a_job_alone_holds_uses_and_needs_its_gpus() -> None:
    assert times("fifo", "1x4", job(2, work=100.0)) == (0.5, 0.5, 0.5)


def test_a_restart_is_held_and_not_busy() -> None:
    """a runs 0-50, b 50-60, a restarts until 90 and ends at 140: 30 of 140 s."""
    jobs = (job(1, work=100.0, id="a"), job(1, work=10.0, at=50.0, id="b"))
    assert times("srtf", "1x1", *jobs) == pytest.approx((1.0, 110 / 140, 110 / 140))


def test_work_that_a_failure_loses_is_busy_and_not_useful(tmp_path: Path) -> None:
    """The node is away from 50 to 60 and takes 50 s of work with it; then 30 s of restart and all 100 s again."""
    outages, name = tmp_path / "outages.csv", cluster("1x1").nodes[0].name
    outages.write_text(f"node,down_s,up_s\n{name},50,60\n")
    found = times("fifo", "1x1", job(1, work=100.0), failures=str(outages))
    assert found == pytest.approx((180 / 190, 150 / 190, 100 / 190))


def test_two_packed_jobs_hold_half_of_a_gpu_each_however_fast_they_are() -> None:
    jobs = [job(1, work=98.0, id=name, model="dense", share=Share("pack")) for name in "ab"]
    assert times("lucid:nodes=0", "1x1", *jobs, profile=True) == pytest.approx((1.0, 1.0, 1.0))


def test_a_guaranteed_job_that_lends_holds_what_nobody_else_uses() -> None:
    """It uses 0.3 of the GPU, but nobody else can have it."""
    host = job(1, work=100.0, id="host", model="light")
    assert times("antman", "1x1", host, profile=True) == (1.0, 1.0, 1.0)
    assert times("fifo", "1x1", host, profile=True) == (1.0, 1.0, 1.0)
    guest = job(1, work=100.0, id="guest", model="light", share=Share(claim="opportunistic"))
    assert times("antman", "1x1", host, guest, profile=True) == pytest.approx((1.0, 1.0, 1.0))


@pytest.mark.parametrize(("gpu_type", "useful"), [("v100", 1.0), ("a100", 1.0), ("k80", 0.5)])
def test_a_gpu_second_is_at_most_one_useful_one(gpu_type: str, useful: float) -> None:
    found = times("fifo", f"1x1:{gpu_type}", job(1, work=100.0, model="light"), profile=True)
    assert found == pytest.approx((1.0, 1.0, useful))


def test_members_of_a_group_hold_their_turns_and_lose_the_switches() -> None:
    held, busy, useful = times("gandiva:pack=false", "1x1", *(job(1, work=600.0) for _ in range(2)))
    assert (held, busy) == pytest.approx((1.0, 1.0))
    assert 0.99 < useful < 1.0


def test_a_part_of_a_gpu_is_a_part_of_the_time() -> None:
    part = job(1, work=100.0, gpu_milli=300)
    assert times("kubeshare", "1x1", part) == times("fifo", "1x1", part) == pytest.approx((0.3, 0.3, 0.3))
