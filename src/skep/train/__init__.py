"""For training scripts: restore, checkpoint when asked and every so often, report, stop in step with the other ranks.

    from skep import train
    job = train.join(model=model, optimizer=optimizer)
    for step in job.steps(1000):
        …
        job.report(loss=loss, samples=64)

Needs nothing but the standard library and nothing else of Skep, and little of that at import: every worker of every job
pays for it. torch and numpy are used only where the script has imported them. Outside a Skep job it writes nothing and
stops nothing.
"""

from __future__ import annotations

from skep.train.data import indices, shield_worker
from skep.train.job import TrainingJob, join
from skep.train.stop import STOPPED, Stopped

__all__ = ["STOPPED", "Stopped", "TrainingJob", "indices", "join", "shield_worker"]
