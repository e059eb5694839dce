"""The replica of the released Tiresias simulator: its order, its preemptions and its quirks."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, trace

from skep.core.errors import InputError
from skep.metrics.run import JobRow
from skep.traces.trace import TraceJob


def run(policy: str, on: str, *jobs: TraceJob) -> dict[str, JobRow]:
    return {row.job_id: row for row in World(trace(*jobs), cluster(on), f"{policy}:compat=true,place=any").run().rows()}


def test_all_jobs_are_placed_again_in_order_and_the_rest_is_preempted() -> None:
    found = run("srtf", "1x2", job(2, id="long", work=100.0), job(1, id="short", at=10.0, work=10.0))
    assert (found["short"].start_s, found["short"].finish_s) == (10.0, 20.0)
    assert (found["long"].preemptions, found["long"].finish_s) == (1, 110.0)


def test_a_job_that_does_not_fit_is_skipped() -> None:
    found = run("smallest", "1x4", job(3, id="a"), job(2, id="b", at=1.0), job(1, id="c", at=2.0))
    assert [found[name].start_s for name in "abc"] == [0.0, 1.0, 2.0]
    assert found["a"].preemptions == 1


def test_only_numbers_of_gpus_count() -> None:
    found = run("srsf", "2x2", job(1, id="a"), job(1, id="b"), job(2, id="spread"))
    assert found["spread"].start_s == 0.0


def test_a_job_that_is_larger_than_the_cluster_is_rejected() -> None:
    course = World(trace(job(5, id="a")), cluster("1x4"), "srtf:compat=true,place=any").run()
    assert course.state.jobs["a"].reason == "asks for 5 GPUs, the cluster has 4"


def test_parts_of_gpus_are_refused() -> None:
    with pytest.raises(InputError, match="only whole GPUs"):
        run("srtf", "1x1", job(1, id="a", gpu_milli=500))
