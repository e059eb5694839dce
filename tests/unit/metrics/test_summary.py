"""The numbers of a summary, each on a trace small enough to work them out by hand."""

from __future__ import annotations

import pytest

from skep.clusters.read import read_cluster
from skep.core.model import JobSpec, gpu_shape
from skep.experiments.simulate import Experiment
from skep.metrics.run import Summary
from skep.metrics.summary import jain
from skep.traces.trace import Trace, TraceJob


def job(id: str, submit_s: float, work_s: float, gpus: int = 1, **more: object) -> TraceJob:
    return TraceJob(submit_s, work_s, JobSpec(id, (gpu_shape(gpus),), expect_s=work_s, **more))  # type: ignore[arg-type]


def summary(cluster: str, policy: str, *jobs: TraceJob) -> Summary:
    return Experiment(Trace("t", "native", list(jobs)), read_cluster(cluster)).run(policy).summary


def test_jain_is_1_where_all_are_equal_and_1_nth_where_one_has_everything() -> None:
    assert jain([2.0, 2.0, 2.0]) == 1.0
    assert jain([5.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([]) is None


def test_jain_is_over_users_and_not_over_jobs() -> None:
    """Both jobs of u run at once, as does v's: everybody gets an even share, whoever has more jobs."""
    found = summary("3x1", "fifo", job("a", 0, 100, user="u"), job("b", 0, 100, user="u"), job("c", 0, 100, user="v"))
    assert found.jain == 1.0


def test_who_waits_lowers_jain() -> None:
    found = summary("1x1", "fifo", job("a", 0, 100, user="u"), job("b", 0, 100, user="v"))
    # a: 100 s against 100 s × (1.67 jobs on average …); b: 200 s. The index follows from both.
    assert found.jain is not None
    assert 0.5 < found.jain < 1.0


def test_a_deadline_is_missed_by_a_late_end_only() -> None:
    found = summary(
        "1x1", "fifo", job("a", 0, 100, deadline_s=100.0), job("b", 0, 100, deadline_s=199.0), job("c", 0, 9)
    )
    assert found.deadline_misses == 1


def test_p95_lies_between_its_neighbours() -> None:
    found = summary("4x1", "fifo", *(job(str(at), 0, 10.0 * (at + 1)) for at in range(4)))
    assert found.jct_p95_s == pytest.approx(38.5)  # 30 + 0.85 × 10
    assert found.queue_p95_s == 0.0


def test_free_gpus_count_as_fragmented_while_a_job_could_use_them_in_another_shape() -> None:
    """From 200 to 1000 each node has one free GPU, and d wants two on one node; it ends at 1100."""
    jobs = [job("a", 0, 1000), job("b", 0, 100), job("c", 0, 1000), job("d", 200, 100, 2)]
    found = summary("2x2", "fifo:place=first-fit", *jobs)
    assert found.makespan_s == 1100
    assert found.fragmented_gpus == pytest.approx(2 * 800 / 1100)


def test_nothing_is_fragmented_where_too_little_is_free() -> None:
    assert summary("1x2", "fifo", job("a", 0, 100), job("b", 0, 100, 2)).fragmented_gpus == 0.0


def test_utilization_while_jobs_arrive_leaves_the_end_out() -> None:
    """Two GPUs: one is held all the time, the other from 0 to 10; the last job arrives at 100."""
    found = summary("2x1", "fifo", job("a", 0, 1000), job("b", 0, 10), job("c", 100, 10))
    assert found.arrival_utilization == pytest.approx((100 + 10) / 200)
    assert found.utilization == pytest.approx((1000 + 20) / 2000)


def test_decisions_are_timed() -> None:
    found = summary("1x1", "fifo", job("a", 0, 100))
    assert 0 < found.decision_avg_ms <= found.decision_p99_ms * 2


def test_fragments_are_what_typical_tasks_of_the_trace_cannot_use() -> None:
    """2x2: spread leaves one GPU of each node idle from 0 to 100 and from 200 to 300. Typical: one GPU (2 of 3), two
    GPUs (1 of 3). A node with one idle GPU is fragment to those with two."""
    jobs = [job("a", 0, 100), job("b", 0, 100), job("c", 200, 100, 2)]
    found = summary("2x2", "fifo:place=spread", *jobs)
    assert found.makespan_s == 300
    assert found.idle_gpus == pytest.approx((2 * 100 + 4 * 100 + 2 * 100) / 300)
    assert found.fragment_gpus == pytest.approx(2 * 200 / 3 / 300)
    packed = summary("2x2", "fifo:place=consolidate", *jobs)
    assert packed.idle_gpus == found.idle_gpus
    assert packed.fragment_gpus == 0.0


def test_parts_of_gpus_that_are_too_small_for_others_are_fragments() -> None:
    """1x1: 0.6 of the GPU is taken from 0 to 100, and nobody wants less: 0.4 is fragment."""
    half = TraceJob(0, 100, JobSpec("a", (gpu_shape(1, gpu_milli=600),)))
    found = summary("1x1", "fifo", half)
    assert (found.idle_gpus, found.fragment_gpus) == (pytest.approx(0.4), pytest.approx(0.4))
