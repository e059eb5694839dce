"""E-LAS: attained service together with epoch progress, so that a job near its end is finished, not preempted."""

from __future__ import annotations

from skep.core.job import Job
from skep.policies.estimate.progress import epoch_progress
from skep.policies.order.base import RISES, Order

FORMS = ("sum", "product", "remaining")


class ProgressAndService(Order):
    """Little service and much progress go first. Looked at when jobs come and go, not in between."""

    moves = RISES

    def __init__(self, *, form: str, weight: float, scale: float, lead: float) -> None:
        self.form = form
        self.weight = weight
        self.scale = scale
        self.lead = lead

    def key(self, job: Job, now_s: float) -> float:
        service = job.service_at(now_s)
        left = 1.0 - epoch_progress(job, now_s)
        if self.form == "sum":
            return self.weight * service / (service + self.scale) + (1 - self.weight) * left
        if self.form == "product" or left == 1.0:
            return service * left
        return service * left / (1.0 - left)

    def running_key(self, job: Job, now_s: float) -> float:
        return self.key(job, now_s) - self.lead
