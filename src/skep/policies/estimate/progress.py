"""How far is it? The part of its epochs that a job has done."""

from __future__ import annotations

import math

from skep.core.view import JobView


def epoch_progress(job: JobView, now_s: float) -> float:
    """Whole epochs done ÷ epochs asked for; without epochs, work done ÷ work expected; 0 where nothing is known."""
    expected = job.spec.expect_s
    if not expected:
        return 0.0
    done = min(job.work_at(now_s) / expected, 1.0)
    epochs = job.spec.epochs
    return math.floor(done * epochs + 1e-9) / epochs if epochs else done
