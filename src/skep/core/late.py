"""Plans of planners that work beside the writer, which may have become late: the commit keeps what still makes sense.

A planner that is too slow to be asked in line follows the log with a state of its own, plans on that, and sends a
`Proposal`. By the time it arrives the state may have a later version. Each bundle of decisions is then kept or dropped
as a whole, and so is each decision without a bundle. One is kept if

- every job it is about is as its decisions assume: in the same place, with as many launches, neither ending nor held;
- it can be carried out now: the shape is one that the job accepts, the nodes are up, and the ledger has room after the
  bundles before it. If nodes have joined, left or changed since, only stops can: their numbers may mean other nodes;
- a start with an end would still begin before that end.

What goes with the decisions:

- what is remembered of a job is dropped with a decision about it. What is remembered of VCs and of the whole planner
  may rest on every decision, so it is dropped if any was; the planner is attached again and works on from before that;
- a job waits in a scope only if it is still pending. The causes of scopes are kept: the next plan corrects them. A job
  whose start is dropped waits where it did; one whose stop is dropped runs on;
- a rejection is final, so it is dropped if nodes have joined, left or changed since; a setting, if the job has another
  launch; the end of a group, if it has ended;
- of the wake-up that was set and that of the plan the earlier one counts: if its time has passed, it is due at once.

The number of dropped steps is part of the logged plan, so a replay counts the same. If there are any, the state asks
for another decision about everything. News that came after the plan was made is kept for the planner.
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
    """A plan on its way to the writer."""

    version: int
    """Of the state on which it was made."""
    plan: PlanRecord
    launches: dict[str, int]
    """How often each job that it decides about had been launched by then."""


def propose(state: State, plan: Plan) -> Proposal:
    """A plan that was made on this state, which follows the log. The plan is taken back: the log will tell whether it
    was kept."""
    made = record(plan)
    launches = {decision.job_id: state.jobs[decision.job_id].launches for decision in made.decisions}
    proposal = decode(encode(Proposal(plan.version, made, launches)))
    plan.rollback(0)
    return proposal


def accept(state: State, proposal: Proposal) -> Plan:
    """Commit a proposal: whole if nothing has happened since it was made, else as far as it still makes sense.

    `BadPlan`, with the state as it was, if the planner made a mistake that being late does not explain.
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
    """What is kept, tried on this state."""
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
    """Decisions that need each other, and each that stands by itself, in the order in which they begin."""
    found: dict[tuple[int, int], list[Decision]] = {}
    for number, decision in enumerate(decisions):
        key = (decision.bundle, 0) if decision.bundle else (0, number)
        found.setdefault(key, []).append(decision)
    return list(found.values())


class Late:
    """The part of one proposal that has been kept so far."""

    def __init__(self, state: State, proposal: Proposal) -> None:
        self.state = state
        self.proposal = proposal
        self.plan = state.new_plan()
        self.plan.made_on = proposal.version
        self.is_reshaped = state.reshaped_at > proposal.version
        self.wanted: dict[str, Allocation | None] = {}
        """Where the plan has put jobs."""
        self.dropped: set[str] = set()
        """Jobs with a decision that was dropped."""

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
        """The job is as the decision assumes."""
        job = find(self.state, decision.job_id)
        if job.launches != self.proposal.launches.get(job.id) or job.is_ending or job.is_expired:
            raise InvariantBroken(f"{job!r} has another launch, or is ending")
        if decision.before != self.wanted.get(job.id, job.bound):
            raise InvariantBroken(f"{job!r} is in another place")
        if self.is_reshaped and decision.after is not None:
            raise InvariantBroken(f"the place for {job!r} may be on another node by now")
        if decision.until_s is not None and decision.until_s <= self.state.now_s:
            raise InvariantBroken(f"the start of {job!r} would already be over")

    def finish(self) -> None:
        """All but the decisions."""
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
