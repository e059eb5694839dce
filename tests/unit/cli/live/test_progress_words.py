"""How far a job is, in the words of a person."""

from __future__ import annotations

import pytest

from skep.cli.live import progress_of


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
