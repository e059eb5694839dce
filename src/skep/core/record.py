"""Log entries: the events and decisions of each step of the scheduler.

A replay repeats the logged decisions and never calls a planner, so a log stays valid when policies change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from skep.core.actions import JobSetting
from skep.core.cluster import Allocation
from skep.core.errors import InvariantBroken
from skep.core.events import Event
from skep.core.memory import At, MemoryChange
from skep.core.plan import Decision, GroupEnd, Plan
from skep.core.refusal import Cause
from skep.core.solving import OpenQuestion
from skep.core.state import State

NO_BUNDLE = contextlib.nullcontext()


class PlanRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan in a form that does not refer to the state it was made on."""

    decisions: list[Decision] = []
    joins: list[tuple[str, str]] = []
    refusals: list[tuple[str, Cause]] = []
    rejects: list[tuple[str, str]] = []
    memory: list[MemoryChange] = []
    settings: list[JobSetting] = []
    wake_s: float | None = None
    ends: list[GroupEnd] = []
    leases: list[tuple[str, float]] = []
    asks: list[tuple[At, OpenQuestion]] = []


class Entry(msgspec.Struct, frozen=True):
    """The events of one step, and the decisions about them."""

    at_s: float
    events: list[Event]
    plans: list[PlanRecord]


def record(plan: Plan) -> PlanRecord:
    return PlanRecord(
        decisions=plan.decisions,
        joins=[(job.id, scope) for job, scope in plan.joins],
        refusals=plan.refusals,
        rejects=[(job.id, reason) for job, reason in plan.rejects],
        settings=plan.settings,
        memory=list({change.name: change for change in plan.memory}.values()),
        wake_s=plan.wake_s,
        ends=plan.ends,
        asks=plan.asks,
        leases=[(job.id, until_s) for job, until_s in plan.leases],
    )


def replay(state: State, logged: PlanRecord) -> Plan:
    """The same decisions, tried on another state."""
    plan = state.new_plan()
    for together in joined(logged.decisions):
        repeat(state, plan, together)
    say(state, plan, logged)
    return plan


def say(state: State, plan: Plan, logged: PlanRecord) -> None:
    """Everything except the decisions."""
    for job_id, scope in logged.joins:
        plan.wait(state.jobs[job_id], scope)
    for job_id, reason in logged.rejects:
        plan.reject(state.jobs[job_id], reason)
    for scope, cause in logged.refusals:
        plan.refuse(scope, cause)
    plan.ends = logged.ends
    for change in logged.memory:
        plan.keep(change)
    for setting in logged.settings:
        plan.set(setting)
    plan.asks = logged.asks  # what they remember is among the memory
    for job_id, until_s in logged.leases:
        plan.extend(state.jobs[job_id], until_s)
    plan.wake(logged.wake_s)


def joined(decisions: Iterable[Decision]) -> list[list[Decision]]:
    """Decisions that are booked in one step, in order: most are alone."""
    found: list[list[Decision]] = []
    for decision in decisions:
        if decision.together and found:
            found[-1].append(decision)
        else:
            found.append([decision])
    return found


def repeat(state: State, plan: Plan, together: list[Decision]) -> None:
    with plan.bundle(bundle) if (bundle := together[0].bundle) else NO_BUNDLE:
        if len(together) == 1:
            _repeat(state, plan, together[0])
        else:
            plan.move_all([(state.jobs[each.job_id], wanted(each)) for each in together])


def wanted(move: Decision) -> Allocation:
    if move.after is None or move.before is None:
        raise InvariantBroken(f"job {move.job_id} is to move together with others, and has no place to leave or to go")
    return move.after


def _repeat(state: State, plan: Plan, decision: Decision) -> None:
    job = state.jobs[decision.job_id]
    if decision.after is None:
        plan.stop(job, decision.cause)
    elif decision.before is None:
        plan.start(job, decision.after, decision.until_s)
    elif decision.after.memory is not None:
        plan.suspend(job, decision.after.memory)
    elif decision.before.resumes_as is not None:
        plan.resume(job)
    elif decision.after.has_seats_of(decision.before):
        plan.reshare(job, decision.after)
    else:
        plan.move(job, decision.after)


def fold(state: State, entry: Entry) -> None:
    """Apply one entry of the log. The resulting actions were carried out when the entry was written."""
    state.advance(entry.at_s, entry.events)
    for logged in entry.plans:
        state.commit(replay(state, logged))
    state.send()


ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    return ENCODER.encode(entry)


def decode(data: bytes) -> Entry:
    return DECODER.decode(data)


def encode_plan(plan: Plan) -> bytes:
    return ENCODER.encode(record(plan))


PLAN_DECODER = msgspec.msgpack.Decoder(PlanRecord)


def decode_plan(data: bytes) -> PlanRecord:
    return PLAN_DECODER.decode(data)
