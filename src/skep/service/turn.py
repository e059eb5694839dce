"""One turn of the writer: what is collected before the planner is called, and what is written afterwards; the notices
among it are events as sentences, for clients that follow a job or the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from skep.core.actions import Launch, Move, Stop
from skep.core.errors import SkepError
from skep.core.events import (
    Event,
    Exit,
    GroupEnded,
    JobAltered,
    JobHeld,
    JobReleased,
    JobSubmitted,
    ProgressReported,
    TasksExited,
    TasksMoved,
    TasksPlaced,
    TasksStarted,
    TimerDue,
    in_order,
)
from skep.core.fold.endings import NEEDS
from skep.core.group import GroupSpec
from skep.core.job import Job, JobState
from skep.core.record import PlanRecord
from skep.core.reports import Launching
from skep.core.state import State
from skep.core.timers import OF_SEARCHES
from skep.policies.search import Verdict
from skep.service.book import Record, held_gpus, new_attempt, node_names, owner_of
from skep.service.receive import Received
from skep.service.store import Attempt, Notice, Store, StoredJob, Writes

if TYPE_CHECKING:
    from skep.core.ports import EngineCommands
    from skep.service.writer import Writer


class Busy(SkepError):
    """The server cannot write any more; nothing was done."""


class NotYet(Exception):
    """Earlier commands of the same turn must be applied first."""


class Command(msgspec.Struct):
    """A command for the writer; `future` is completed when it is durable."""

    prepare: Callable[[Writer, Turn], object]
    future: Future[Any]  # the result of `prepare`


class Turn:
    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.events: list[Event] = []
        self.changes: list[list[Event]] = []
        """Changes of policy or cluster: each is a step by itself."""
        self.touched: set[str] = set()
        """Jobs, by their owners' ids, with commands that the state has not applied yet."""
        self.then: list[Callable[[EngineCommands, int], None]] = []
        """Calls of the engine besides actions, made once this turn is durable, with the server's epoch."""
        self.writes = Writes()
        self.answers: list[tuple[Future[Any], object]] = []  # each with its result
        self.formed: dict[str, GroupSpec] = {}
        """Groups, by id, with changes that the state has not applied yet."""
        self.keys: dict[tuple[str, str], tuple[str, list[str]]] = {}
        """Idempotency keys of this turn, which the store does not have yet."""

    @property
    def has_writes(self) -> bool:
        return self.writes != Writes()

    def notify(self, kind: str, text: str, job: str | None = None, who: str = "") -> None:
        self.writes.notices.append(Notice(self.at_s, kind, text, job, who))

    def take_events(self) -> list[Event]:
        """All collected events, in order."""
        events, self.events, self.touched, self.formed = self.events, [], set(), {}
        return in_order(events)

    def take_changes(self) -> list[list[Event]]:
        changes, self.changes = self.changes, []
        return changes

    def alone(self) -> None:
        """For commands that must see the effect of all earlier ones."""
        if self.events:
            raise NotYet

    def row(self, seq: int, store: Store) -> StoredJob | None:
        """A job as it is listed, including the changes of this turn."""
        if seq in self.writes.jobs:
            return self.writes.jobs[seq]
        new = next((row for row, _ in self.writes.new_jobs if row.seq == seq), None)
        kept = store.job(seq) if new is None else None
        return kept[0] if kept is not None else new


PIECE = 250
"""The number of jobs that are processed before the lock is lent: a few milliseconds."""

T = TypeVar("T")


class Lendable:
    """The lock of the state, which the writer lends to readers during long operations.

    A thread that waits for a plain lock wakes up too late if it is released and acquired again at once. This lock is
    fair: no thread overtakes the one that waited first, so each time the lock is lent at least one reader gets it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line = threading.Lock()
        """Held by the first waiting thread."""

    def __enter__(self) -> None:
        with self._line:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the lock. The caller holds it, and does not need it meanwhile."""
        self._lock.release()
        try:
            yield
        finally:
            self.__enter__()

    def in_pieces(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over these, for a caller that holds the lock and can lend it between any two of them."""
        for number, item in enumerate(items, 1):
            yield item
            if number % PIECE == 0:
                with self.lent():
                    pass


LATE_S = 5.0
"""An exit that is received within this time counts as of the moment of receipt."""

KINDS = {
    Exit.FINISHED: "succeeded",
    Exit.FAILED: "failed",
    Exit.RETRIED: "retried",
    Exit.PREEMPTED: "preempted",
    Exit.NODE_LOST: "node-lost",
    Exit.STOPPED: "stopped",
}


def notify_started(turn: Turn, record: Record, job: Job, event: TasksStarted) -> None:
    attempt = record.attempts.get(event.job_id)
    if attempt is None or attempt.start_s is not None or attempt.launch != event.launch:
        return  # stale or duplicate
    attempt.start_s = turn.at_s
    attempt.outcome, attempt.phrase = "running", ""
    turn.writes.attempts.append(attempt)
    again = f", attempt {attempt.launch}" if attempt.launch > 1 else ""
    turn.notify("started", f"{which(record, job)}runs on {', '.join(attempt.nodes)}{again}", record.id)


def note_placed(state: State, record: Record, job: Job, event: TasksPlaced) -> None:
    """The attempt is where the engine has put it; the notice of its start follows."""
    attempt = record.attempts.get(job.id)
    if attempt is not None and attempt.launch == event.launch:
        attempt.nodes, attempt.held = node_names(state.cluster, job), held_gpus(state.cluster, job)


def notify_launching(turn: Turn, record: Record, job: Job, report: Launching) -> bool:
    """What a launch waits for. True if that is news."""
    attempt = record.attempts.get(job.id)
    if attempt is None or attempt.start_s is not None or attempt.launch != report.launch:
        return False  # stale
    if attempt.phrase == report.reason or job.state is not JobState.LAUNCHING:
        return False
    attempt.phrase = report.reason
    turn.writes.attempts.append(attempt)
    turn.notify("launching", f"{which(record, job)}{report.reason}", record.id)
    return True


def notify_exited(turn: Turn, record: Record, job: Job, event: TasksExited, received: Received) -> None:
    attempt = record.attempts.pop(event.job_id, None)
    if attempt is None:
        return  # duplicate
    is_stopped = job.state is JobState.STOPPED
    set_times(attempt, turn.at_s, received.seconds)
    if job.state.is_final and attempt.end_s != turn.at_s:
        record.ended[job.id] = attempt.end_s or turn.at_s
    attempt.outcome = KINDS[Exit.STOPPED if is_stopped else event.exit]
    before = f"{attempt.phrase}; " if attempt.phrase and event.exit is Exit.PREEMPTED else ""
    attempt.code, attempt.phrase, attempt.advice = received.code, f"{before}{received.text}", received.advice
    turn.writes.attempts.append(attempt)
    text = job.reason if is_stopped else received.text
    if event.exit in (Exit.FAILED, Exit.RETRIED) and not is_stopped:
        text += f", exit code {received.code}" if received.code and received.code > 0 else ""
        record.why_failed = f"{which(record, job)}{text}"
    turn.notify(attempt.outcome, f"{which(record, job)}{text}", record.id)


def set_times(attempt: Attempt, now_s: float, seconds: float) -> None:
    """The attempt has ended. If the exit was reported late (no server was up), its end is computed from how long it
    ran."""
    attempt.end_s = now_s
    if seconds and attempt.start_s == now_s:  # its start was not received either
        attempt.start_s = now_s - seconds
    elif seconds and attempt.start_s is not None and attempt.start_s + seconds < now_s - LATE_S:
        attempt.end_s = attempt.start_s + seconds


def notify_moved(turn: Turn, state: State, record: Record, job: Job, event: TasksMoved, gpus_before: float) -> None:
    is_resized = job.held_gpus != gpus_before
    before = record.attempts.get(event.job_id)
    if before is not None and before.launch >= event.launch:
        return  # duplicate
    if before is not None:
        before.end_s, before.outcome = turn.at_s, "resized" if is_resized else "moved"
        turn.writes.attempts.append(before)
    attempt = new_attempt(record, state.cluster, job, event.launch, turn.at_s, "running")
    record.attempts[job.id] = attempt
    turn.writes.attempts.append(attempt)
    nodes = attempt.nodes
    if is_resized:
        turn.notify("resized", f"from {gpus_before:g} to {job.held_gpus:g} GPUs, on {', '.join(nodes)}", record.id)
    else:
        turn.notify("moved", f"to {', '.join(nodes)}", record.id)


def preemptors(plans: Iterable[PlanRecord]) -> dict[str, str]:
    """The cause of each stop in these plans: the id of another job, or a reason."""
    stops = (decision for plan in plans for decision in plan.decisions if decision.after is None)
    return {decision.job_id: decision.cause for decision in stops}


def notify_action(
    turn: Turn, state: State, record: Record, action: Launch | Stop | Move, preemptors: dict[str, str]
) -> None:
    job = state.jobs[action.job_id]
    if isinstance(action, Launch):
        attempt = new_attempt(record, state.cluster, job, action.launch, None, "launching")
        record.attempts[job.id] = attempt
        turn.writes.attempts.append(attempt)
    elif isinstance(action, Stop) and not job.is_ending:
        cause = preemptors.get(job.id, "")
        why = f"preempted by job {owner_of(state, cause)}" if cause in state.jobs else cause or action.cause
        if (present := record.attempts.get(job.id)) is not None:
            present.phrase = why  # until the outcome of the attempt is known
        turn.notify("stopping", f"{which(record, job)}asked to checkpoint and exit: {why}", record.id)


def notify_stopped_by_group(turn: Turn, state: State, record: Record) -> None:
    """The group whose other members ended it. Not reported for a job's own tasks, which end together."""
    ref = state.jobs[record.members[0]].spec.group
    group = state.groups.get(ref.id) if ref is not None else None
    if record.request.gang and group is not None and group.reason and group.reason == record.row.reason:
        turn.notify("stop-requested", group.reason, record.id)


def notify_verdict(turn: Turn, record: Record, event: Verdict) -> None:
    """What the rule of its search says of a trial."""
    if isinstance(event, JobReleased):
        turn.notify("released", "its search lets it go on", record.id)
    else:
        turn.notify("held" if isinstance(event, JobHeld) else "stop-requested", event.reason, record.id)


def notify_needs_failed(turn: Turn, state: State, record: Record) -> None:
    """It has ended without having run, because a job that it needs did not succeed."""
    job = state.jobs[record.members[0]]
    has_needs = job.spec.needs or job.spec.needs_groups
    if has_needs and job.state.is_final and job.reason.startswith(NEEDS):
        turn.notify(record.row.state, job.reason, record.id)


def add_names(writes: Writes, records: dict[str, Record]) -> None:
    """The names of the jobs of all notices. A job with a notice is open, or changed in this turn."""
    rows = {**writes.jobs, **{row.seq: row for row, _ in writes.new_jobs}}
    for notice in writes.notices:
        if notice.job is not None:
            record, row = records.get(notice.job), rows.get(int(notice.job))
            notice.name = record.row.name if record is not None else row.name if row is not None else ""


def which(record: Record, job: Job) -> str:
    """Names the task if a job's tasks start one by one."""
    task = record.task_of(job)
    return f"task {task}: " if task else ""


def notify_rejected(turn: Turn, record: Record, job: Job) -> None:
    turn.notify("failed", f"{which(record, job)}can never run: {job.reason}", record.id)


def job_of(event: Event) -> str:
    """The job of the core that the event is about, if any."""
    return event.job.id if isinstance(event, JobSubmitted | JobAltered) else getattr(event, "job_id", "")


def changed_by(events: list[Event], plans: list[PlanRecord]) -> set[str]:
    """Jobs whose description may have changed."""
    changed = {name for event in events if not isinstance(event, ProgressReported) and (name := job_of(event))}
    due = (timer for event in events if isinstance(event, TimerDue) for timer in event.due)
    changed |= {timer.job_id for timer in due if timer.job_id}
    changed |= {decision.job_id for plan in plans for decision in plan.decisions}
    changed |= {job_id for plan in plans for job_id, _ in plan.rejects}
    return changed


def ended_by(events: list[Event], plans: list[PlanRecord]) -> list[str]:
    """Groups that were ended by an event and not by their rule."""
    asked = [event.group_id for event in events if isinstance(event, GroupEnded)]
    due = (timer for event in events if isinstance(event, TimerDue) for timer in event.due)
    asked += [timer.job_id for timer in due if timer.kind in OF_SEARCHES]
    return asked + [group_id for plan in plans for group_id, _, _ in plan.ends]
