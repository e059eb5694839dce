"""Least attained service, continuous and in queues, worked out by hand."""

from __future__ import annotations

import pytest

from skep.core.errors import InputError
from skep.verify.play import finishes, play, starts


def test_a_new_job_takes_over_when_the_running_one_is_ahead_by_the_lead() -> None:
    assert starts(play("las:lead=30", "1x1", [(0, 200, 1), (10, 20, 1)])) == (0, 30)
    assert finishes(play("las:lead=30", "1x1", [(0, 200, 1), (10, 20, 1)])) == (220, 50)


@pytest.mark.parametrize(("service", "expected"), [("gpu-seconds", 10), ("seconds", 40)])
def test_service_counts_gpus_or_only_time(service: str, expected: float) -> None:
    """Four GPUs attain 40 GPU-seconds in 10 s."""
    assert starts(play(f"las:queues=40,service={service}", "1x4", [(0, 200, 4), (5, 20, 1)]))[1] == expected


@pytest.mark.parametrize("knobs", ["queues=0", "queues=20+10", "queues=10+10", "lead=0"])
def test_knobs_that_would_switch_without_end_are_refused(knobs: str) -> None:
    with pytest.raises(InputError):
        play(f"las:{knobs}", "1x1", [(0, 10, 1)])
