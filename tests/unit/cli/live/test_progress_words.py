"""How far a job is, in the words of a person."""

from __future__ import annotations

import pytest

from skep.cli.live import progress_of
from skep.cli.show import share_of


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, ""),
        ({"step": 7}, "step 7"),
        ({"step": 1150, "steps": 5000, "loss": 0.0086206}, "step 1,150 of 5,000, loss 0.008621"),
        (
            {"loss": None, "samples_per_s": 19.87, "step": 3, "steps": 9, "left": False, "done": False, "at_s": 1.79e9},
            "step 3 of 9, 19.9 samples/s",
        ),
        ({"step": 3, "checkpoint_step": 2, "note": "text"}, "step 3, checkpoint at step 2"),
    ],
)
def test_step_series_and_rate_are_named_and_no_internals(values: dict[str, object], said: str) -> None:
    assert progress_of(values) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ({}, ""),
        ({"mode": "slice", "share": None, "limit_milli": 1000}, "slice: not measured yet"),
        ({"mode": "slice", "share": 0.4981, "cpu": 0.97, "idle_s": 0.2}, "slice: got 49.8% of the time, 0.97 CPUs"),
        (
            {"mode": "token", "share": 0.3, "guaranteed_milli": 300, "limit_milli": 600, "idle_s": 75},
            "token: got 30.0% of the time, guaranteed 0.3, at most 0.6, has used no CPU for 1:15",
        ),
        ({"mode": "lend", "share": 0.05, "duty": 0.25}, "lend: got 5.0% of the time, may run 25% of the time"),
        ({"mode": "", "share": 0.3, "limit_milli": 300}, "alone: got 30.0% of the time, at most 0.3"),
    ],
)
def test_what_a_job_gets_of_a_shared_gpu(share: dict[str, object], said: str) -> None:
    assert share_of(share) == said
