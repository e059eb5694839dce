"""Orders by duration and size, each on a case where it decides differently from the others."""

from __future__ import annotations

import pytest

from skep.verify.play import finishes, play, starts

LONG_SMALL = (0, 100, 1)
SHORT_LARGE = (10, 30, 4)
"""30 s are less than the 90 s that are left of the other job; 120 GPU-seconds are more."""


def test_sjf_waits_for_the_running_job_and_then_takes_the_shortest() -> None:
    assert starts(play("sjf", "1x1", [(0, 100, 1), (1, 50, 1), (2, 10, 1)])) == (0, 110, 100)


def test_srtf_compares_remaining_times_and_srsf_remaining_services() -> None:
    assert finishes(play("srtf", "1x4", [LONG_SMALL, SHORT_LARGE])) == (130, 40)
    assert finishes(play("srsf", "1x4", [LONG_SMALL, SHORT_LARGE])) == (100, 130)


def test_a_running_job_that_is_nearly_done_is_not_preempted() -> None:
    assert finishes(play("srtf", "1x1", [(0, 100, 1), (85, 20, 1)])) == (100, 120)


@pytest.mark.parametrize(("policy", "expected"), [("smallest", (30, 0)), ("qssf:estimate=known", (0, 10))])
def test_smallest_counts_gpus_and_qssf_gpu_seconds(policy: str, expected: tuple[float, ...]) -> None:
    """40 GPU-seconds on four GPUs, 30 × 2 on two."""
    assert starts(play(policy, "1x4", [(0, 10, 4), (0, 30, 2)])) == expected


def test_qssf_learns_from_finished_jobs_of_the_same_user() -> None:
    """ann's first job was long, bob's short; the estimates of owners are not used."""
    rows = [(0, 500, 1), (0, 10, 1), (600, 50, 1), (601, 50, 1), (602, 50, 1)]
    users = ["ann", "bob", "carl", "ann", "bob"]
    assert starts(play("qssf:estimate=history", "1x1", rows, users=users))[2:] == (600, 700, 650)
