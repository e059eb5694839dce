"""For training scripts: restore, checkpoint on request and periodically, report, stop in step with the other ranks.

    from skep import train
    job = train.join(model=model, optimizer=optimizer)
    for step in job.steps(1000):
        …
        job.report(loss=loss, samples=64)

It needs only the standard library and nothing else of Skep, and imports little, because every worker of every job pays
for it. torch and numpy are used only if the script has imported them. Outside a Skep job it writes nothing and stops
nothing.
"""

from __future__ import annotations

from skep.train.data import indices, shield_worker
from skep.train.job import TrainingJob, join
from skep.train.stop import STOPPED, Stopped

__all__ = ["STOPPED", "Stopped", "TrainingJob", "indices", "join", "shield_worker"]
