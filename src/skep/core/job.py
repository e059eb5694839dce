"""A job as the scheduler knows it: what was asked, what is wanted for it, what was seen of it.

    pending ──Launch──► launching ──TasksStarted──► running ──TasksExited──► succeeded · failed · stopped
       ▲                    │                         │ ▲
       │                    │                 Suspend ▼ │ Resume
       │                    │                       suspended
       │                    │                          │
       └──── TasksExited ◄──┴──────── stopping ◄─Stop──┘      (preempted, or its node was lost)

`allocation` (as `bound`) is wanted, `held` is seen: they differ while a launch, a stop or a suspension is under way. A
job whose owner wants it to end (`is_ending`), or whose lease is over (`is_expired`), goes on in the books as it was
until its tasks have gone.
"""

from __future__ import annotations

import enum

from skep.core.actions import Setting
from skep.core.cluster import WHOLE, Allocation
from skep.core.model import JobSpec, Shape
from skep.core.refusal import Waiting


class JobState(enum.StrEnum):
    PENDING = "pending"
    LAUNCHING = "launching"
    RUNNING = "running"
    SUSPENDED = "suspended"
    """It has no compute and keeps its memory."""
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    UNRUNNABLE = "unrunnable"

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED, JobState.UNRUNNABLE})


class Job:
    """Counters hold up to the last change; the `…_at` methods add what has passed since."""

    __slots__ = (
        "allocation",
        "bound",
        "decided_s",
        "finish_s",
        "fragmentation_s",
        "gpu_count",
        "gpus",
        "halting_since_s",
        "held",
        "held_gpus",
        "held_launch",
        "held_since_s",
        "hold",
        "id",
        "is_ending",
        "is_expired",
        "is_rate_known",
        "launches",
        "limit_milli",
        "mark_fragmentation_s",
        "mark_quota_s",
        "migrations",
        "needs_left",
        "pending_since_s",
        "preemptions",
        "progress_since_s",
        "quota_s",
        "rank",
        "rate",
        "reason",
        "resizes",
        "restart_left_s",
        "retries",
        "run_s",
        "saved_s",
        "saving_since_s",
        "seq",
        "service_gpu_s",
        "settings",
        "share",
        "share_since_s",
        "spec",
        "start_s",
        "state",
        "submit_s",
        "waiting",
        "work_s",
    )

    def __init__(self, spec: JobSpec, seq: int, now_s: float) -> None:
        self.spec = spec
        self.id = spec.id
        self.seq = seq
        """Counts submissions: ties in any order end here."""
        self.rank = -spec.priority
        shape = spec.shapes[0]
        self.gpus: float = shape.gpus if shape.is_plain else amount_of(shape)
        self.gpu_count = shape.gpus
        """Gpus it touches, or last did: a share counts as one, for its end can free the whole gpu."""
        self.submit_s = now_s
        self.pending_since_s = now_s
        self.state = JobState.PENDING
        self.reason = ""
        self.needs_left = 0
        self.hold = ""
        """Why it is not to be started before it is released; nothing: it may be."""
        self.is_ending = False
        self.is_expired = False
        """Whether its lease is over: it leaves as if it were preempted."""
        self.allocation: Allocation | None = None
        """Wanted, in terms of what its policy sees as the cluster: of a VC, virtual gpus."""
        self.bound: Allocation | None = None
        """The same on the physical cluster; another object only where there are virtual clusters."""
        self.held: Allocation | None = None
        self.decided_s = 0.0
        """Since when it is wanted where it is."""
        self.start_s: float | None = None
        self.finish_s: float | None = None
        self.launches = 0
        """Starts asked for."""
        self.held_launch = 0
        """The launch that holds its allocation; reports of earlier launches are stale."""
        self.limit_milli = WHOLE
        """Thousandths of each of its gpus that it may use as long as it runs."""
        self.settings: dict[str, Setting] = {}
        """Settings that were sent since it runs."""
        self.retries = 0
        self.held_since_s = 0.0
        self.held_gpus: float = 0
        self.share: float | None = None
        """The part of the time of each of its GPUs that it gets, as last measured; none: nobody has measured it, and
        service counts what it asked for."""
        self.share_since_s: float | None = None
        """Since when it gets that, where that changed after it was given its GPUs; service is booked up to then."""
        self.run_s = 0.0
        self.service_gpu_s = 0.0
        self.work_s = 0.0
        """Work done and kept, as reported."""
        self.rate = 0.0
        """Work per second, as it is booked."""
        self.is_rate_known = False
        """True if the rate was measured; else it is assumed to be in proportion to the GPUs."""
        self.progress_since_s = 0.0
        """Since then work grows by `rate` per second."""
        self.saved_s = 0.0
        """Work at the last checkpoint, as reported when the present rate began."""
        self.saving_since_s = 0.0
        """Since then checkpoints are made every so often."""
        self.halting_since_s = 0.0
        """When it was last told to suspend."""
        self.restart_left_s = 0.0
        """Of a restart that was under way then."""
        self.preemptions = 0
        self.migrations = 0
        self.resizes = 0
        self.waiting: Waiting | None = None
        self.mark_quota_s = 0.0
        self.mark_fragmentation_s = 0.0
        self.quota_s = 0.0
        self.fragmentation_s = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether it waits for nothing but its turn."""
        return not self.needs_left and not self.hold

    @property
    def known_rate(self) -> float | None:
        """Work per second if it is known: 1 at its reference."""
        return self.rate if self.is_rate_known else None

    @property
    def is_halted(self) -> bool:
        """True if the engine reported it suspended."""
        return self.held is not None and self.held.resumes_as is not None

    def service_at(self, now_s: float) -> float:
        """Gpu-seconds held so far."""
        if self.held_gpus:
            return self.service_gpu_s + self.unbooked_at(now_s)
        return self.service_gpu_s

    def unbooked_at(self, now_s: float) -> float:
        """GPU-seconds since service was last booked, of a job that is not suspended."""
        if self.share is None:
            return (now_s - self.held_since_s) * self.held_gpus
        since_s = self.held_since_s if self.share_since_s is None else self.share_since_s
        return (now_s - since_s) * self.share * self.gpu_count

    def run_at(self, now_s: float) -> float:
        """Seconds it has held what it runs on."""
        state = self.state
        is_there = state is JobState.RUNNING or state is JobState.STOPPING or state is JobState.SUSPENDED
        if is_there and not self.is_halted:
            return self.run_s + now_s - self.held_since_s
        return self.run_s

    def work_at(self, now_s: float) -> float:
        """Work done so far, in seconds at the job's reference speed."""
        if self.rate and now_s > self.progress_since_s:
            return self.work_s + (now_s - self.progress_since_s) * self.rate
        return self.work_s

    def join(self, waiting: Waiting, now_s: float) -> None:
        """From now on this job waits for whatever that scope waits for."""
        self.leave(now_s)
        waiting.settle(now_s)
        waiting.jobs += 1
        self.waiting = waiting
        self.mark_quota_s = waiting.quota_s
        self.mark_fragmentation_s = waiting.fragmentation_s

    def leave(self, now_s: float) -> None:
        """Take this job's part of the waiting its scope has booked."""
        if self.waiting is not None:
            self.waiting.settle(now_s)
            self.quota_s, self.fragmentation_s = self.waited_for()
            self.waiting.jobs -= 1
            self.waiting = None

    def waited_for(self) -> tuple[float, float]:
        """Seconds waited for quota and for fragmentation, up to the last change of cause."""
        waiting = self.waiting
        if waiting is None:
            return self.quota_s, self.fragmentation_s
        return (
            self.quota_s + waiting.quota_s - self.mark_quota_s,
            self.fragmentation_s + waiting.fragmentation_s - self.mark_fragmentation_s,
        )

    def __repr__(self) -> str:
        return f"Job({self.id!r}, {self.gpus} gpus, {self.state})"


def amount_of(shape: Shape) -> float:
    """Gpus of all roles, shares as fractions; a whole number where it is one."""
    milli = sum(role.count * role.gpus * role.gpu_milli for role in shape.roles)
    return milli / WHOLE if milli % WHOLE else milli // WHOLE


def in_proportion(job: JobSpec, allocation: Allocation) -> float:
    """The rate where no speeds were measured: an elastic job with twice the gpus it asked for is twice as fast, a gang
    spliced onto half of its gpus half as fast."""
    return 1 / allocation.depth if job.gpu_range is None else allocation.gpus / amount_of(job.shapes[0])
