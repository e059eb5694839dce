"""What a planner wants, built up step by step with an undo log.

Each step changes the wanted state at once, so that the next question ("does this fit?") sees it; `rollback` takes
steps back exactly. Gangs and preemption become simple: try, look, take back. A finished plan is a plain list of
decisions: it can be logged, and applied again elsewhere by repeating them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from skep.core.cluster import Allocation
from skep.core.errors import InvariantBroken
from skep.core.job import Job, JobState
from skep.core.refusal import Cause

if TYPE_CHECKING:
    from skep.core.state import State


class Decision(msgspec.Struct, frozen=True):
    """From `before` to `after`: a start has no before, a stop no after, a move or resize both."""

    job_id: str
    before: Allocation | None
    after: Allocation | None
    cause: str = ""


GroupEnd = tuple[str, JobState, str]
"""A group by id, how it ends (succeeded, failed or stopped) and why."""

Before = tuple[Job, JobState, Allocation | None]


class Plan:
    """The decisions of one planner call."""

    __slots__ = ("_state", "_steps", "decisions", "ends", "joins", "memory", "refusals", "rejects", "wake_s")

    def __init__(self, state: State) -> None:
        self._state = state
        self.decisions: list[Decision] = []
        self._steps: list[tuple[Job, JobState, Allocation | None, bool]] = []
        """The way back: a job as it was before each step, and whether that step is a decision."""
        self.joins: list[tuple[Job, str]] = []
        """Jobs that wait in this scope from now on."""
        self.refusals: list[tuple[str, Cause]] = []
        """Scopes that wait for another cause from now on."""
        self.rejects: list[tuple[Job, str]] = []
        """Jobs that can never run here, and why."""
        self.ends: list[GroupEnd] = []
        """Groups that are over: their members are stopped for good."""
        self.memory: dict[str, Any] = {}
        """What the policy wants to remember; `None` forgets."""
        self.wake_s: float | None = None
        """When the planner wants to be asked again if nothing happens before."""

    def start(self, job: Job, allocation: Allocation) -> None:
        if job.state is not JobState.PENDING:
            raise InvariantBroken(f"start of {job!r}: only a pending job can be started")
        self._state.cluster.take(allocation)
        self._steps.append((job, job.state, job.allocation, True))
        job.allocation = allocation
        job.state = JobState.LAUNCHING
        self.decisions.append(Decision(job.id, None, allocation))

    def stop(self, job: Job, cause: str) -> None:
        before = job.allocation
        if before is None or job.state not in (JobState.RUNNING, JobState.LAUNCHING):
            raise InvariantBroken(f"stop of {job!r}: only a job that runs or is about to can be stopped")
        self._state.cluster.give(before)
        self._steps.append((job, job.state, before, True))
        job.allocation = None
        job.state = JobState.STOPPING
        self.decisions.append(Decision(job.id, before, None, cause))

    def move(self, job: Job, allocation: Allocation) -> None:
        """Let a running job go on elsewhere, or with another number of gpus."""
        before = job.allocation
        if before is None or job.state is not JobState.RUNNING:
            raise InvariantBroken(f"move of {job!r}: only a running job can be moved")
        self._state.cluster.give(before)
        self._state.cluster.take(allocation)
        self._steps.append((job, job.state, before, True))
        job.allocation = allocation
        self.decisions.append(Decision(job.id, before, allocation))

    def end_group(self, group_id: str, why: str, *, succeeded: bool = False) -> None:
        """No member of it is to run any more: the best trial is found, or none is worth going on."""
        group = self._state.groups.get(group_id)
        if group is None or group.outcome is not None:
            raise InvariantBroken(f"end of group {group_id}, which {'has ended' if group else 'is not there'}")
        outcome = JobState.SUCCEEDED if succeeded else JobState.STOPPED
        self.ends.append((group_id, outcome, f"{group.spec.title} ended: {why}"))

    def befores(self) -> list[Before]:
        """The job of each decision as it was before it."""
        return [(job, state, allocation) for job, state, allocation, is_decision in self._steps if is_decision]

    def translate(self, before: Before, decision: Decision) -> None:
        """A decision that was made on a part of the cluster, in terms of the whole, where the caller has booked it."""
        self._steps.append((*before, True))
        self.decisions.append(decision)

    def see_as(self, job: Job, allocation: Allocation) -> None:
        """What the job has is called so from now on; nothing is decided."""
        self._steps.append((job, job.state, job.allocation, False))
        job.allocation = allocation

    def mark(self) -> int:
        return len(self._steps)

    def rollback(self, mark: int) -> None:
        """Take back every step since that mark, the last first."""
        while len(self._steps) > mark:
            job, state, allocation, is_decision = self._steps.pop()
            if is_decision:
                undone = self.decisions.pop()
                if undone.after is not None:
                    self._state.cluster.give(undone.after)
                if undone.before is not None:
                    self._state.cluster.take(undone.before)
            job.allocation = allocation
            job.state = state
