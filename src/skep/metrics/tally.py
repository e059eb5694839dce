"""Numbers that must be collected during a run: idle GPUs that jobs could not use, and the use while jobs arrived."""

from __future__ import annotations

from skep.core.cluster import WHOLE
from skep.core.fragments import Typical
from skep.core.state import State
from skep.metrics.ended import JobTally
from skep.metrics.fragments import IdleGpus


class GpuTally:
    """What is idle over time. Call `note` at every instant with events, when everything that follows is done."""

    def __init__(self, state: State, ended: JobTally, *, jobs: int, typical: Typical) -> None:
        self.state = state
        self.ended = ended
        self.gpus = IdleGpus(state.cluster, typical)
        self.idle = self.fragments = 0
        """What is idle now, and the part of it that typical tasks cannot use: both as in `IdleGpus`."""
        self.idle_s = self.fragments_s = 0.0
        """Both over time since the first submission."""
        self.jobs = jobs
        """The number of jobs that will be submitted."""
        self.since_s = 0.0
        self.unusable = 0
        """GPUs that are free now while a job waits that finds enough of them but in no acceptable shape."""
        self.fragmented_gpu_s = 0.0
        self.arrival_service_gpu_s: float | None = None
        """GPU-seconds held up to the last submission."""

    def note(self, at_s: float) -> None:
        if self.idle:
            past_s = at_s - self.since_s
            self.idle_s += past_s * self.idle
            self.fragments_s += past_s * self.fragments
            if self.unusable:
                self.fragmented_gpu_s += past_s * self.unusable
        self.since_s = at_s
        self.idle, self.fragments = self.gpus.now()
        state = self.state
        self.unusable = self._unusable() if self.idle and state.waits.fragmented else 0
        if self.arrival_service_gpu_s is None and state.submitted_count == self.jobs:
            self.arrival_service_gpu_s = self.ended.service_at(at_s)
        self.ended.collect()

    def _unusable(self) -> int:
        is_fragmented = self.state.waits.is_fragmented
        return sum([pool.free for pool in self.state.cluster.pools]) if is_fragmented else 0

    @property
    def idle_gpu_s(self) -> float:
        return self.idle_s / WHOLE

    @property
    def fragment_gpu_s(self) -> float:
        return self.fragments_s / (WHOLE * self.gpus.fragments.scale)
