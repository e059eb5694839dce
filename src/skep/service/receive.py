"""Turns reports of an engine into events: what an exit means, and whether the job is retried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from skep.core.allocation import Seat, lowest_bits, part_of_extras
from skep.core.cluster import Allocation, Cluster, Slice, bits
from skep.core.events import (
    Event,
    Exit,
    JobHeld,
    NodeBack,
    NodeConditions,
    NodeLost,
    OthersChanged,
    ProgressReported,
    StopRequested,
    SuspendRefused,
    TasksExited,
    TasksMoved,
    TasksPlaced,
    TasksResumed,
    TasksStarted,
    TasksSuspended,
)
from skep.core.job import Job
from skep.core.nodes import Membership
from skep.core.reports import (
    Exited,
    Fenced,
    GivenSeat,
    LaunchFailed,
    Launching,
    Looked,
    Moved,
    Overrun,
    Progressed,
    Refused,
    Report,
    Resumed,
    ShareMeasured,
    Started,
    Suspended,
)
from skep.jobs.exits import classify, react
from skep.service.book import Record

if TYPE_CHECKING:
    from skep.service.turn import Turn
    from skep.service.writer import Writer

KILLED = 137
FULL_DISK = "full-disk"
NOT_STARTED = -310
TEXT_MAX = 300


class Received(msgspec.Struct):
    """The events of one report, and the text that describes an exit to users."""

    events: list[Event]
    job_id: str = ""
    launch: int = 0
    text: str = ""
    code: int | None = None
    advice: str = ""
    seconds: float = 0.0
    """How long it ran; 0 if not known."""


def receive(writer: Writer, now_s: float, report: Report) -> Received | None:
    """The events of a report; none if it is stale, a duplicate, or changes nothing."""
    state, has_vcs = writer.state, writer.ground.layout is not None
    if isinstance(report, Looked | Fenced | Membership | Overrun | Launching):
        return None  # The writer itself handles them.
    if isinstance(report, NodeLost | NodeBack):
        is_news = isinstance(report, NodeLost) != (report.node in state.health.lost)
        is_news = is_news and not (isinstance(report, NodeBack) and report.node in state.health.said_lost)
        return Received([report]) if is_news and report.node in state.cluster.by_name else None
    if isinstance(report, NodeConditions):
        if not has_vcs:  # a taint is a tag there, which a job may tolerate
            report = NodeConditions(report.node, tuple(each for each in report.conditions if each[:6] != "taint "))
        is_news = report.conditions != state.health.conditions.get(report.node, ())
        return Received([report]) if is_news and report.node in state.cluster.by_name else None
    if isinstance(report, OthersChanged):
        known = state.health.others.get(report.node)
        is_news = report.uses != (known.uses if known is not None else ())
        return Received([report]) if is_news and report.node in state.cluster.by_name else None
    job = state.jobs.get(report.job_id)
    record = writer.book.of(report.job_id)
    if job is None or record is None or job.held is None or report.launch < job.held_launch:
        return None
    if isinstance(report, Progressed):
        news = writer.reports.receive(state, job, report.values, now_s)
        return None if news is None else Received([news])
    if isinstance(report, ShareMeasured):
        measured = writer.reports.receive_share(state, job, report.share, now_s)
        return None if measured is None else Received([measured])
    if isinstance(report, Started):
        placed = placed_elsewhere(state.cluster, job, job.held, report, has_vcs=has_vcs)
        return Received([*placed, TasksStarted(job.id, None, now_s, report.launch)])
    if isinstance(report, Moved):
        if job.bound is None or report.launch != job.launches:
            return None
        placed = placed_elsewhere(state.cluster, job, job.bound, report, has_vcs=has_vcs)
        held = next((each.allocation for each in placed if each.allocation is not None), job.bound)
        return Received([*placed, TasksMoved(job.id, held, job.work_at(now_s), None, now_s, report.launch)])
    if isinstance(report, Suspended):
        return Received([TasksSuspended(job.id, job.work_at(now_s), report.memory, report.launch)])
    if isinstance(report, Resumed):
        return Received([TasksResumed(job.id, job.work_at(now_s), None, now_s, report.launch)])
    if isinstance(report, Refused) and report.action == "suspend":
        return Received([SuspendRefused(job.id, report.launch)])
    if isinstance(report, LaunchFailed):
        return _ended(record, job, Work(job, now_s), report.launch, NOT_STARTED, report.cause, report.reason)
    if isinstance(report, Exited):
        last = writer.reports.last(state, job)
        received = _exited(record, job, Work(job, now_s, last), report)
        received.seconds = report.seconds
        if last is not None:
            received.events.insert(0, last)
        return received
    return None


class Work:
    """The work of a job whose run has ended, and the part of it that is kept if it ended badly."""

    def __init__(self, job: Job, now_s: float, last: ProgressReported | None = None) -> None:
        self.now_s = now_s
        self.done_s = job.work_at(now_s)
        self.saved_s = job.saved_s
        if last is not None and last.work_s is not None:
            self.done_s = last.work_s
            self.saved_s = job.saved_s if last.saved_s is None else last.saved_s


def stop_overruns(writer: Writer, turn: Turn, reports: list[Report]) -> None:
    """Jobs that take too much of the disk are stopped, with all their tasks."""
    for report in reports:
        if not isinstance(report, Overrun):
            continue
        record, job = writer.book.of(report.job_id), writer.state.jobs.get(report.job_id)
        if record is None or job is None or job.is_ending or job.held is None or report.launch < job.held_launch:
            continue  # stale or duplicate
        turn.events += [StopRequested(name, report.reason) for name in record.members]
        turn.notify("stop-requested", report.reason, record.id)


def _exited(record: Record, job: Job, work: Work, report: Exited) -> Received:
    if report.was_stopped:
        text = "exited after SIGTERM, as requested"
        if report.cause == FULL_DISK:
            text = "killed, because the disk was nearly full"
        elif report.code == KILLED:
            text = "killed when its grace period was over"
        return _left(job, work.done_s, report, Exit.PREEMPTED, text)
    if report.cause in ("node-lost", "unreachable"):
        return _left(job, work.saved_s, report, Exit.NODE_LOST, classify(0, "", cause=report.cause).phrase)
    return _ended(record, job, work, report.launch, report.code, report.cause, report.log_tail)


def _left(job: Job, kept_s: float, report: Exited, exit: Exit, text: str) -> Received:
    event = TasksExited(job.id, exit, kept_s, report.launch)
    return Received([event], job.id, report.launch, text, report.code)


def _ended(record: Record, job: Job, work: Work, launch: int, code: int, cause: str, text: str) -> Received:
    """It exited by itself, successfully or not; a failure that a retry may cure is retried, perhaps after a
    back-off."""
    if code == 0:
        return Received([TasksExited(job.id, Exit.FINISHED, work.done_s, launch)], job.id, launch, "succeeded", 0)
    found = classify(code, text, cause=cause)
    request, member = record.request, job.spec.group
    tries = request.retries if request.gang or member is None else request.tasks[member.role].retries
    retry, delay_s = react(found, job.retries, tries)
    text = f"{found.phrase}: {text}" if code == NOT_STARTED else found.phrase
    exit = Exit.FAILED
    if retry:  # one that was asked to end meanwhile did not fail by itself
        exit = Exit.STOPPED if job.is_ending else Exit.RETRIED
    received = Received([TasksExited(job.id, exit, work.saved_s, launch)], job.id, launch, text, code, found.advice)
    if exit is Exit.RETRIED and delay_s > 0:
        reason = f"back-off of {delay_s:g} s after: {text[:TEXT_MAX]}"
        received.events.append(JobHeld(job.id, reason, work.now_s + delay_s))
    return received


def placed_elsewhere(
    cluster: Cluster, job: Job, wanted: Allocation | None, report: Started | Moved, *, has_vcs: bool
) -> list[TasksPlaced]:
    """An event if the engine gave the tasks other GPUs or nodes than was wanted. With VCs they may belong to the cells
    of another one, so the job cannot keep them."""
    if wanted is None or not report.given or report.launch != job.launches:
        return []
    given = allocation_given(cluster, wanted, report.given)
    return [] if given == wanted else [TasksPlaced(job.id, None if has_vcs else given, report.launch)]


def allocation_given(cluster: Cluster, wanted: Allocation, given: tuple[GivenSeat, ...]) -> Allocation | None:
    """The wanted allocation with these seats; None if it cannot be that. GPUs that the engine does not know are booked
    on those that were wanted or, on another node, on any free ones."""
    usual = wanted.seating()
    if len(given) != len(usual):
        return None
    picked: dict[int, int] = {}
    seats = []
    for seat, each in zip(usual, given, strict=True):
        node = cluster.by_name.get(each.node)
        if node is None:
            return None
        gpus = each.gpus
        if gpus is None:
            free = node.free_mask & ~picked.get(node.index, 0)
            gpus = seat.gpus if node.index == seat.node else tuple(bits(lowest_bits(free, len(seat.gpus))))
        if len(gpus) != len(seat.gpus) or any(gpu >= node.gpu_count for gpu in gpus):
            return None
        picked[node.index] = picked.get(node.index, 0) | mask_of(gpus)
        seats.append(Seat(seat.role, node.index, gpus))
    return wanted if seats == usual else reseated(wanted, seats)


def reseated(wanted: Allocation, seats: list[Seat]) -> Allocation | None:
    """None for workers that take turns on a GPU: they are not counted seat by seat."""
    if wanted.depth > 1:
        return None
    terms = {piece.role: piece for piece in reversed(wanted.slices)}
    together: dict[tuple[int, int], list[Seat]] = {}
    for seat in seats:
        together.setdefault((seat.role, seat.node), []).append(seat)
    slices = [slice_of(terms[role], node, each) for (role, node), each in together.items()]
    return Allocation(tuple(slices), wanted.gpus).seated(seats)


def slice_of(terms: Slice, node: int, seats: list[Seat]) -> Slice:
    return msgspec.structs.replace(
        terms,
        node=node,
        gpus=mask_of(gpu for seat in seats for gpu in seat.gpus),
        tasks=len(seats),
        cpu_milli=terms.cpu_milli // terms.tasks * len(seats),
        memory_mib=terms.memory_mib // terms.tasks * len(seats),
        extras=part_of_extras(terms, len(seats), terms.tasks),
    )


def mask_of(gpus: Iterable[int]) -> int:
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask
