"""Decisions of the policy and their reasons, read from the log, so they are as durable as the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.core.cluster import Allocation
from skep.core.events import (
    ClusterChanged,
    Event,
    JobAltered,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeBack,
    NodeChanged,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeLost,
    NodeUndrained,
    OthersChanged,
    PolicyChanged,
    PriorityChanged,
    StopRequested,
    TasksExited,
    TasksMoved,
    TasksStarted,
    TimerDue,
)
from skep.core.memory import LENT, MemoryChange
from skep.core.plan import Decision
from skep.core.record import Entry, PlanRecord, decode
from skep.core.timers import BACK_OFF, LEASE, LIMIT, Timer
from skep.policies.adjust.effects import ADJUSTED, Adjustment
from skep.service.queries import about
from skep.service.store import Store
from skep.service.values import Json

if TYPE_CHECKING:
    from skep.service.reads import Reads

SCANNED_MAX = 5000
"""The most log entries that one query reads."""
NAMED_MAX = 3
"""The most events of an entry that are named; the others are counted."""

NODE_EVENTS = {
    NodeLost: "was lost",
    NodeBack: "came back",
    NodeDrained: "was drained",
    NodeUndrained: "is in use again",
    NodeLeft: "left",
    OthersChanged: "saw foreign tenants come or go",
}
JOB_EVENTS = {
    JobHeld: "was held",
    JobReleased: "was released",
    StopRequested: "was asked to stop",
    TasksStarted: "started",
    TasksMoved: "moved",
}


REASONS = {
    "suspend": "is suspended, and keeps its memory",
    "resume": "continues where it was suspended",
    "move": "continues elsewhere with the same number of GPUs",
}
"""Of the kinds of decisions that have one."""


def decisions(reads: Reads, last: int, before: int | None, job_id: str | None) -> Json:
    """Newest first; `next` is where to continue."""
    names: list[str] | None = [node.name for node in reads.writer.state.cluster.nodes]
    found: list[Json] = []
    rows = reads.store.reader.execute(
        "SELECT seq, entry FROM log WHERE seq < ? ORDER BY seq DESC", (before if before is not None else 1 << 62,)
    )
    if before is not None and is_older_cluster(reads, before):
        names = None
    following = None
    for scanned, (seq, data) in enumerate(rows, 1):
        entry = decode(data)
        found += [each for each in of_entry(reads, seq, entry, names) if job_id in (None, each["job"])]
        if any(isinstance(event, ClusterChanged | NodeJoined | NodeLeft) for event in entry.events):
            names = None  # node numbers may have belonged to other nodes before
        if len(found) >= last or scanned >= SCANNED_MAX:
            following = seq
            break
    return {"decisions": with_jobs(reads, found), "next": following}


def with_jobs(reads: Reads, found: list[Json]) -> list[Json]:
    """Decisions about visible jobs, with what is known about the jobs."""
    known = about(reads.store, {each["job"] for each in found}, reads.sight)
    shown = []
    for each in found:
        if each["job"] in known or reads.sight.is_whole:
            name, vc, user = known.get(each["job"], ("", "", ""))
            shown.append({**each, "reason": reads.without_others(each["reason"]), "name": name, "vc": vc, "user": user})
    return shown


def is_older_cluster(reads: Reads, before: int) -> bool:
    """True if the cluster changed since then, according to the notices."""
    at = reads.store.reader.execute("SELECT at_s FROM log WHERE seq >= ? ORDER BY seq LIMIT 1", (before,)).fetchone()
    if at is None:
        return False
    query = "SELECT 1 FROM events WHERE kind IN ('cluster', 'joined', 'left') AND at_s >= ? LIMIT 1"
    return reads.store.reader.execute(query, at).fetchone() is not None


def of_entry(reads: Reads, seq: int, entry: Entry, names: list[str] | None) -> list[Json]:
    """The decisions of one entry, last first."""
    made: list[Json] = []
    for plan in entry.plans:
        made += [of_decision(each, plan, names, reads.store) for each in plan.decisions if not is_between(each)]
        made += [of_measured(change, reads.store) for change in plan.memory if is_measured(change)]
        made += [of_reject(job_id, reason, reads.store) for job_id, reason in plan.rejects]
    if not made:
        return []
    because = because_of(entry.events, reads)
    return [{"seq": seq, "at_s": entry.at_s, **each, "because": because} for each in reversed(made)]


def of_decision(decision: Decision, plan: PlanRecord, names: list[str] | None, store: Store) -> Json:
    before, after = where(decision.before, names), where(decision.after, names)
    kind = decision.kind
    reason = REASONS.get(kind, "")
    if kind == "start":
        reason = f"{gpus_text(after)} free for it, and no job before it in the queue could use them"
        if any(change.key == decision.job_id and change.slot == LENT.name and change.value for change in plan.memory):
            reason = f"borrows {gpus_text(after)} that other VCs leave idle"
    elif kind == "preempt":
        reason = preempted_for(decision.cause, store)
    elif kind == "share" and decision.after is not None:
        reason = shared_text(decision.after)
    elif kind == "resize":
        reason = f"from {gpus_text(before)} to {gpus_text(after)}"
    for change in plan.memory:
        noted = adjustment_of(change)
        if noted is not None and noted.due_s is not None and change.key == decision.job_id:
            reason += f" ({change.slot.removeprefix(ADJUSTED)}: {noted.predicted:.2f} times the speed expected)"
    owner, task = store.owner(decision.job_id)
    return {
        "kind": kind,
        "job": owner,
        "reason": f"task {task}: {reason}" if task else reason,
        "before": before,
        "after": after,
    }


def is_between(decision: Decision) -> bool:
    """True for an intermediate step between two sets of terms within one plan."""
    return decision.after is not None and decision.after.is_parked


def shared_text(after: Allocation) -> str:
    mode = after.terms.mode
    if not mode:
        return f"has its {gpus_text(where(after, None))} to itself"
    return f"shares its {gpus_text(where(after, None))} in mode {mode}"


def adjustment_of(change: MemoryChange) -> Adjustment | None:
    """The record of an adjuster about a job, from the log."""
    if not change.slot.startswith(ADJUSTED) or change.value is None:
        return None
    return msgspec.convert(change.value, Adjustment)


def is_measured(change: MemoryChange) -> bool:
    noted = adjustment_of(change)
    return noted is not None and noted.measured is not None


def of_measured(change: MemoryChange, store: Store) -> Json:
    """The effect of an earlier adjustment."""
    noted = adjustment_of(change)
    assert noted is not None
    adjuster = change.slot.removeprefix(ADJUSTED)
    reason = f"{adjuster}: {noted.action} was expected to bring {noted.predicted:.2f} times the speed"
    reason += f", and brought {noted.measured:.2f}"
    return {"kind": "measured", "job": store.owner(change.key)[0], "reason": reason, "before": None, "after": None}


def of_reject(job_id: str, reason: str, store: Store) -> Json:
    return {"kind": "reject", "job": store.owner(job_id)[0], "reason": reason, "before": None, "after": None}


def preempted_for(cause: str, store: Store) -> str:
    """A policy names the job that needs the place; other causes are sentences."""
    owner, _ = store.owner(cause)
    return f"makes room for job {owner}" if owner.isdecimal() else cause or "preempted"


def gpus_text(place: Json | None) -> str:
    amount = place["gpus"] if place is not None else 0
    return f"{amount:g} GPU{'' if amount == 1 else 's'}"


def where(allocation: Allocation | None, names: list[str] | None) -> Json | None:
    """Without names of nodes if the cluster has changed since then."""
    if allocation is None:
        return None
    return {"nodes": [names[number] for number in allocation.nodes()] if names else [], "gpus": allocation.gpus}


def because_of(events: list[Event], reads: Reads) -> list[str]:
    said = [reads.without_others(text) for event in events[:NAMED_MAX] if (text := event_text(event, reads.store))]
    return [*said, *([f"and {len(events) - NAMED_MAX:,} more"] if len(events) > NAMED_MAX else [])]


TIMERS = {LIMIT: "time limit", BACK_OFF: "wait after a failure", LEASE: "lease"}


def timer_text(due: tuple[Timer, ...], store: Store) -> str:
    jobs = [f"the {TIMERS[timer.kind]} of job {store.owner(timer.job_id)[0]} was over" for timer in due if timer.job_id]
    return ", ".join(jobs) or "a time the policy had asked for"


def event_text(event: Event, store: Store) -> str:
    if isinstance(event, JobSubmitted | JobAltered):
        return f"job {store.owner(event.job.id)[0]} was {'submitted' if isinstance(event, JobSubmitted) else 'altered'}"
    if isinstance(event, TasksExited):
        return f"job {store.owner(event.job_id)[0]} left its GPUs ({event.exit})"
    if isinstance(event, PriorityChanged):
        return f"job {store.owner(event.job_id)[0]} got priority {event.priority}"
    if isinstance(event, PolicyChanged):
        return f"policy {event.policy} took over"
    if isinstance(event, ClusterChanged):
        return f"cluster {event.name} was applied"
    if isinstance(event, TimerDue):
        return timer_text(event.due, store)
    if isinstance(event, NodeJoined | NodeChanged):
        return f"node {event.spec.name} {'joined' if isinstance(event, NodeJoined) else 'changed'}"
    if type(event) in NODE_EVENTS:
        # The events of `NODE_EVENTS` have a node.
        return f"node {event.node} {NODE_EVENTS[type(event)]}"  # type: ignore[union-attr]
    if type(event) in JOB_EVENTS:
        # The events of `JOB_EVENTS` have a job.
        return f"job {store.owner(event.job_id)[0]} {JOB_EVENTS[type(event)]}"  # type: ignore[union-attr]
    return ""
