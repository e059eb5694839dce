"""Late plans: plans made beside the writer on an earlier version of the state. The commit keeps the part that is still
valid.

A planner that is too slow to be called synchronously follows the log with a state of its own, plans on that, and sends
a `Proposal`. By then the server's state may have a later version. Each bundle of decisions, and each decision without a
bundle, is then kept or dropped as a whole. It is kept if

- every job in it is as its decisions assume: the same place, the same number of launches, neither ending nor held;
- it can be carried out now: the job accepts the shape, the nodes are up, and the ledger has enough free resources after
  the bundles before it. If nodes have joined, left or changed since, only stops are kept, because node numbers may have
  changed;
- a start with an end time would still begin before that end.

The rest of the plan follows the decisions:

- memory about a job is dropped with a decision about the job. Memory about VCs and about the whole planner may depend
  on every decision, so it is dropped if any decision was; the planner is then attached again to the earlier memory;
- a job joins a scope only if it is still pending. The causes of scopes are kept; the next plan corrects them. A job
  whose start is dropped keeps waiting where it did; a job whose stop is dropped runs on;
- a rejection is final, so it is dropped if nodes have joined, left or changed since; a setting is dropped if the job
  has another launch; the end of a group is dropped if the group has ended;
- the earlier of the present wake-up and that of the plan is used; if its time has passed, it is due at once.

The number of dropped steps is part of the logged plan, so a replay counts the same. If there are any, the planner
decides again about everything. Events that happened after the plan was made are kept for the planner.
"""

from __future__ import annotations

import math

import msgspec

from skep.core.checked import BadPlan, check_decision, check_settings, check_wake, check_words, checked_plan, find
from skep.core.cluster import Allocation
from skep.core.errors import InvariantBroken
from skep.core.job import JobState
from skep.core.memory import MemoryChange, Of
from skep.core.plan import Decision, Plan
from skep.core.record import PlanRecord, record, repeat, say
from skep.core.state import State


class Proposal(msgspec.Struct, frozen=True):
    """A plan that is sent to the writer."""

    version: int
    """The version of the state on which it was made."""
    plan: PlanRecord
    launches: dict[str, int]
    """The number of launches of each job in the plan at that time."""


def propose(state: State, plan: Plan) -> Proposal:
    """A proposal from a plan made on this state, which follows the log. The plan is rolled back: the log will show
    whether it was kept."""
    made = record(plan)
    launches = {decision.job_id: state.jobs[decision.job_id].launches for decision in made.decisions}
    proposal = decode(encode(Proposal(plan.version, made, launches)))
    plan.rollback(0)
    return proposal


def accept(state: State, proposal: Proposal) -> Plan:
    """Commit a proposal: as a whole if the state has not changed since, otherwise the part that is still valid.

    Raises `BadPlan` and leaves the state unchanged if the plan has an error that lateness does not explain.
    """
    if proposal.version == state.version:
        plan = checked_plan(state, proposal.plan)
    elif proposal.version < state.version:
        plan = late_plan(state, proposal)
    else:
        raise BadPlan(f"it was made on version {proposal.version}, and the state has only version {state.version}")
    state.commit(plan)
    return plan


def late_plan(state: State, proposal: Proposal) -> Plan:
    """The part to keep, tried on this state."""
    late = Late(state, proposal)
    try:
        for bundle in bundles_of(proposal.plan.decisions):
            late.take(bundle)
        late.finish()
    except InvariantBroken as error:
        late.plan.rollback(0)
        raise BadPlan(str(error)) from error
    return late.plan


def bundles_of(decisions: list[Decision]) -> list[list[Decision]]:
    """Bundles, and decisions without a bundle, in the order of their first decisions."""
    found: dict[tuple[int, int], list[Decision]] = {}
    for number, decision in enumerate(decisions):
        key = (decision.bundle, 0) if decision.bundle else (0, number)
        found.setdefault(key, []).append(decision)
    return list(found.values())


class Late:
    """The part of a proposal that has been kept so far."""

    def __init__(self, state: State, proposal: Proposal) -> None:
        self.state = state
        self.proposal = proposal
        self.plan = state.new_plan()
        self.plan.made_on = proposal.version
        self.is_reshaped = state.reshaped_at > proposal.version
        self.wanted: dict[str, Allocation | None] = {}
        """Where the plan has put jobs."""
        self.dropped: set[str] = set()
        """Jobs with a dropped decision."""

    def take(self, bundle: list[Decision]) -> None:
        mark, wanted = self.plan.mark(), dict(self.wanted)
        try:
            for decision in bundle:
                self._check(decision)
                check_decision(self.state, decision)
                repeat(self.state, self.plan, decision)
                self.wanted[decision.job_id] = decision.after
        except InvariantBroken:
            self.plan.rollback(mark)
            self.wanted = wanted
            self.plan.dropped += len(bundle)
            self.dropped.update(decision.job_id for decision in bundle)

    def _check(self, decision: Decision) -> None:
        """Raises if the job is not as the decision assumes."""
        job = find(self.state, decision.job_id)
        if job.launches != self.proposal.launches.get(job.id) or job.is_ending or job.is_expired:
            raise InvariantBroken(f"{job!r} has another launch, or is ending")
        if decision.before != self.wanted.get(job.id, job.bound):
            raise InvariantBroken(f"{job!r} has another allocation")
        if self.is_reshaped and decision.after is not None:
            raise InvariantBroken(f"the nodes have changed since {job!r} was placed")
        if decision.until_s is not None and decision.until_s <= self.state.now_s:
            raise InvariantBroken(f"the end time for the start of {job!r} has passed")

    def finish(self) -> None:
        """Everything except the decisions."""
        state, plan, made = self.state, self.plan, self.proposal.plan
        rejects = [each for each in made.rejects if not self.is_reshaped and self._is_pending(each[0])]
        settings = [each for each in made.settings if self._runs(each.job_id, each.launch)]
        ends = [each for each in made.ends if (group := state.groups.get(each[0])) and group.outcome is None]
        plan.dropped += len(made.rejects) - len(rejects)
        plan.dropped += len(made.settings) - len(settings)
        plan.dropped += len(made.ends) - len(ends)
        check_wake(made.wake_s)
        wake_s = state.wake_s if made.wake_s is None else min(state.wake_s, made.wake_s)
        kept = PlanRecord(
            decisions=plan.decisions,
            joins=[each for each in made.joins if self._is_pending(each[0]) and state.jobs[each[0]].is_ready],
            refusals=made.refusals,
            rejects=rejects,
            memory=[change for change in made.memory if self._remembers(change)],
            settings=settings,
            wake_s=wake_s if wake_s < math.inf else None,
            ends=ends,
        )
        check_words(state, kept)
        check_settings(state, kept)
        say(state, plan, kept)

    def _is_pending(self, job_id: str) -> bool:
        job = self.state.jobs.get(job_id)
        return job is not None and job.state is JobState.PENDING

    def _runs(self, job_id: str, launch: int) -> bool:
        job = self.state.jobs.get(job_id)
        return job is not None and job.state is JobState.RUNNING and job.held_launch == launch

    def _remembers(self, change: MemoryChange) -> bool:
        if change.of is not Of.JOB:
            return not self.plan.dropped
        job = self.state.jobs.get(change.key)
        return job is not None and not job.state.is_final and change.key not in self.dropped


ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Proposal)


def encode(proposal: Proposal) -> bytes:
    return ENCODER.encode(proposal)


def decode(data: bytes) -> Proposal:
    return DECODER.decode(data)
