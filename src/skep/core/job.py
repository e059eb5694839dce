"""A job as the scheduler knows it: what was asked, what is wanted for it, what was seen of it.

    pending ──Launch──► launching ──TasksStarted──► running ──TasksExited──► succeeded · failed · stopped
       ▲                    │                         │ ▲
       │                    │                 Suspend ▼ │ Resume
       │                    │                       suspended
       │                    │                          │
       └──── TasksExited ◄──┴──────── stopping ◄─Stop──┘      (preempted, or its node was lost)

`allocation` (as `bound`) is wanted, `held` was sent or seen: they differ while a launch, a stop or a suspension is in
flight. A job whose owner wants it to end (`is_ending`), or whose lease is over (`is_expired`), stays in the books
unchanged until its tasks have exited.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from skep.core.actions import Setting
from skep.core.cluster import WHOLE, Allocation
from skep.core.model import JobSpec, Shape
from skep.core.refusal import Waiting

if TYPE_CHECKING:
    from skep.core.view import JobView


class JobState(enum.StrEnum):
    PENDING = "pending"
    LAUNCHING = "launching"
    RUNNING = "running"
    SUSPENDED = "suspended"
    """It has no compute but keeps its memory."""
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    UNRUNNABLE = "unrunnable"

    @property
    def is_final(self) -> bool:
        return self in FINAL


PENDING, RUNNING = JobState.PENDING, JobState.RUNNING
SUSPENDED, STOPPING = JobState.SUSPENDED, JobState.STOPPING

FINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED, JobState.UNRUNNABLE})


# Who writes which field of a job. Wanted: plans, and owners who end a job. Sent: `State.send`, until the engine
# answers. Seen: events. Derived: whatever changes a field that it follows from.
WANTED = ("allocation", "bound", "decided_s", "is_ending", "reason")
SENT = ("halting_since_s", "held", "held_launch", "launches", "limit_milli", "settings")
SEEN = (
    *("busy_gpu_s", "gpu_count", "held_gpus", "held_since_s", "hold", "id", "is_expired", "is_rate_known"),
    *("migrations", "pending_since_s", "preemptions", "progress_since_s", "rate", "resizes", "restart_left_s"),
    *("retries", "run_s", "saved_s", "saving_since_s", "seq", "service_gpu_s", "share", "share_since_s", "spec"),
    *("start_s", "submit_s", "work_s"),
)
DERIVED = (
    *("ended", "finish_s", "fragmentation_s", "gpus", "is_ready", "mark_fragmentation_s", "mark_quota_s"),
    *("needs_left", "quota_s", "rank", "shapes", "state", "waiting"),
)


class Job:
    """Counters are valid up to the last change; the `…_at` methods add what has accrued since."""

    __slots__ = (*WANTED, *SENT, *SEEN, *DERIVED)

    def __init__(self, spec: JobSpec, seq: int, now_s: float) -> None:
        self.id = spec.id
        self.seq = seq
        """The submission number; it ends every tie."""
        self.ask(spec)
        self.submit_s = now_s
        self.pending_since_s = now_s
        self.state = PENDING
        self.ended: JobState | None = None
        """How the job ended, once it has."""
        self.reason = ""
        self.needs_left = 0
        self.hold = ""
        """Why it is held and must not be started; empty: it is not held."""
        self.is_ready = True
        """True if the job may be started: it is not held and needs no other job."""
        self.is_ending = False
        self.is_expired = False
        """True if its lease is over: it is stopped as if preempted."""
        self.allocation: Allocation | None = None
        """The wanted allocation as its policy sees it: in a VC, virtual GPUs."""
        self.bound: Allocation | None = None
        """The same on the physical cluster; a different object only with virtual clusters."""
        self.held: Allocation | None = None
        self.decided_s = 0.0
        """Since when this allocation is wanted."""
        self.start_s: float | None = None
        self.finish_s: float | None = None
        self.launches = 0
        """The number of launches."""
        self.held_launch = 0
        """The launch that holds its allocation; reports of earlier launches are stale."""
        self.limit_milli = WHOLE
        """The most it may use of each of its GPUs while it runs, in thousandths."""
        self.settings: dict[str, Setting] = {}
        """Settings that were sent to it since it started."""
        self.retries = 0
        self.held_since_s = 0.0
        self.held_gpus: float = 0
        self.share: float | None = None
        """The part of the time of each of its GPUs that it gets, as last measured. None: not measured; service then
        counts the requested amount."""
        self.share_since_s: float | None = None
        """Since when it gets that share, if that changed after it got its GPUs; service is booked up to then."""
        self.run_s = 0.0
        self.service_gpu_s = 0.0
        self.busy_gpu_s = 0.0
        """The part of its service in which it ran: without restarts and without the copying of its memory."""
        self.work_s = 0.0
        """Work done and saved, as reported."""
        self.rate = 0.0
        """Work per second, as booked."""
        self.is_rate_known = False
        """True if the rate was measured; otherwise it is assumed to be proportional to the GPUs."""
        self.progress_since_s = 0.0
        """Since then work grows by `rate` per second."""
        self.saved_s = 0.0
        """Work at the last checkpoint, as reported when the present rate began."""
        self.saving_since_s = 0.0
        """Since then the job makes periodic checkpoints."""
        self.halting_since_s = 0.0
        """When it was last sent a suspension."""
        self.restart_left_s = 0.0
        """The end of the restart that was in progress at that time."""
        self.preemptions = 0
        self.migrations = 0
        self.resizes = 0
        self.waiting: Waiting | None = None
        self.mark_quota_s = 0.0
        self.mark_fragmentation_s = 0.0
        self.quota_s = 0.0
        self.fragmentation_s = 0.0

    def ask(self, spec: JobSpec) -> None:
        """What it asks for, when it is submitted and when it is altered."""
        self.spec = spec
        self.rank = -spec.priority
        self.shapes = spec.shapes
        """The requested ones, without GPU types on which it makes no progress (`core/standstill.py`)."""
        shape = spec.shapes[0]
        self.gpus: float = shape.gpus if shape.is_plain else amount_of(shape)
        self.gpu_count = shape.gpus
        """The number of GPUs it uses or last used. A shared GPU counts as one, because the end of the job may free all
        of it."""

    @property
    def known_rate(self) -> float | None:
        """Work per second if known: 1 at its reference."""
        return self.rate if self.is_rate_known else None

    @property
    def is_halted(self) -> bool:
        """True if the engine reported it suspended."""
        return self.held is not None and self.held.resumes_as is not None

    def service_at(self, now_s: float) -> float:
        """GPU-seconds held so far."""
        if self.held_gpus:
            return self.service_gpu_s + self.unbooked_at(now_s)
        return self.service_gpu_s

    def unbooked_at(self, now_s: float) -> float:
        """GPU-seconds since service was last booked, if the job is not suspended."""
        if self.share is None:
            return (now_s - self.held_since_s) * self.held_gpus
        since_s = self.held_since_s if self.share_since_s is None else self.share_since_s
        return (now_s - since_s) * self.share * self.gpu_count

    def busy_at(self, now_s: float) -> float:
        """GPU-seconds of `service_at` in which it ran."""
        return self.busy_gpu_s + self.busy_unbooked_at(now_s)

    def busy_unbooked_at(self, now_s: float) -> float:
        """GPU-seconds since busy time was last booked."""
        since_s = self.held_since_s if self.share_since_s is None else self.share_since_s
        if self.progress_since_s > since_s:
            since_s = self.progress_since_s
        if not self.rate or not self.held_gpus or now_s <= since_s:
            return 0.0
        return (now_s - since_s) * (self.held_gpus if self.share is None else self.share * self.gpu_count)

    def run_at(self, now_s: float) -> float:
        """For how many seconds it has held GPUs, all launches together."""
        state = self.state
        if (state is RUNNING or state is STOPPING or state is SUSPENDED) and not self.is_halted:
            return self.run_s + now_s - self.held_since_s
        return self.run_s

    def work_at(self, now_s: float) -> float:
        """Work done so far, in seconds at the job's reference speed."""
        if self.rate and now_s > self.progress_since_s:
            return self.work_s + (now_s - self.progress_since_s) * self.rate
        return self.work_s

    def set_ready(self) -> None:
        """Call it after a change of `needs_left` or `hold`."""
        self.is_ready = not self.needs_left and not self.hold

    def join(self, waiting: Waiting, now_s: float) -> None:
        """From now on this job waits in this scope."""
        if self.waiting is not None:
            self.leave(now_s)
        waiting.settle(now_s)
        waiting.jobs += 1
        self.waiting = waiting
        self.mark_quota_s = waiting.quota_s
        self.mark_fragmentation_s = waiting.fragmentation_s

    def leave(self, now_s: float) -> None:
        """Add the scope's waiting time since this job joined it."""
        waiting = self.waiting
        if waiting is not None:
            waiting.settle(now_s)
            waiting.jobs -= 1
            self.quota_s, self.fragmentation_s = self.waited_for()
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
        return f"Job({self.id!r}, {self.gpus} GPUs, {self.state})"


def state_of(job: Job, has_started: bool) -> JobState:
    """The state of a job, of which `job.state` is a cache. `has_started`: its tasks run, or ran until they were
    suspended."""
    if job.ended is not None:
        return job.ended
    if job.bound is None:
        return PENDING if job.held is None else STOPPING
    if job.bound.is_suspended:
        return SUSPENDED
    return RUNNING if has_started else JobState.LAUNCHING


def amount_of(shape: Shape) -> float:
    """GPUs of all roles, shared ones as fractions; an int if it is a whole number."""
    if shape.gpu_milli == WHOLE:
        return shape.gpus
    milli = sum(role.count * role.gpus * role.gpu_milli for role in shape.roles)
    return milli / WHOLE if milli % WHOLE else milli // WHOLE


def in_proportion(job: JobSpec, allocation: Allocation) -> float:
    """The rate if no speed was measured: an elastic job with twice the requested GPUs is twice as fast, a gang spliced
    onto half of its GPUs half as fast."""
    return 1 / allocation.depth if job.gpu_range is None else allocation.gpus / amount_of(job.shapes[0])


def is_beside_others(job: JobView) -> bool:
    """True if the job may have neighbours on its GPUs."""
    return job.held_gpus < job.gpu_count or (job.held is not None and job.held.mode() != "")
