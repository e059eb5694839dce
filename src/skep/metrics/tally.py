"""What only shows while a run goes on: free GPUs that no waiting job could use, and the use while jobs arrived."""

from __future__ import annotations

from skep.core.events import Event
from skep.core.state import State


class Tally:
    """Call it with every batch of events."""

    def __init__(self, state: State, *, jobs: int) -> None:
        self.state = state
        self.jobs = jobs
        """How many will be submitted."""
        self.since_s = 0.0
        self.unusable = 0
        """GPUs that are free now, where a job waits that finds enough of them but in no acceptable shape."""
        self.fragmented_gpu_s = 0.0
        self.arrival_service_gpu_s: float | None = None
        """GPU-seconds held up to the last submission."""

    def __call__(self, at_s: float, events: list[Event]) -> None:
        state = self.state
        if self.unusable:
            self.fragmented_gpu_s += (at_s - self.since_s) * self.unusable
        self.since_s = at_s
        self.unusable = sum(pool.free for pool in state.cluster.pools) if state.waits.is_fragmented else 0
        if self.arrival_service_gpu_s is None and state.submitted_count == self.jobs:
            self.arrival_service_gpu_s = sum(job.service_at(at_s) for job in state.jobs.values())
