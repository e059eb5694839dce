"""Groups of jobs: the trials of a sweep, an application, a workflow, the tasks of an incremental job.

The members are ordinary jobs: each is ordered, placed and preempted by itself. The group holds what they have in
common: a weight for policies that share between groups, and the rule that ends the group before all members have ended.

A group is created when it is declared, when a job needs it, or by its first member. It has *ended* when its outcome is
known and no member is left; a member that is submitted later starts it anew.
"""

from __future__ import annotations

import enum
import math

import msgspec

from skep.core.job import JobState
from skep.core.model import GroupRef
from skep.core.search import SearchSpec, Trial


class GroupKind(enum.StrEnum):
    APPLICATION = "application"
    """Related jobs; also the default kind."""
    SWEEP = "sweep"
    """The same job with other parameters."""
    WORKFLOW = "workflow"
    """Stages that need each other."""
    INCREMENTAL = "incremental"
    """The tasks of one submitted job that start independently of each other; the group has the id of that job."""


class Enough(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of members of `role` (empty: of any role) that must succeed or fail to decide the outcome of the
    group."""

    role: str = ""
    succeeded: int | None = None
    failed: int | None = None


class EndsWhen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first rule that holds decides, and members that have not ended are stopped. Without a rule the group succeeds
    when all its members have ended, unless one of them was stopped."""

    rules: tuple[Enough, ...] = ()
    never: bool = False
    """Never by itself: only a plan or a `GroupEnded` ends it."""


ALL_ENDED = EndsWhen()
NEVER = EndsWhen(never=True)
FIRST_SUCCEEDED = EndsWhen((Enough(succeeded=1),))
FIRST_FAILED = EndsWhen((Enough(failed=1),))


class GroupSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    kind: GroupKind = GroupKind.APPLICATION
    weight: float = 1.0
    """Its weight against other groups, for policies that share between groups."""
    ends_when: EndsWhen = ALL_ENDED
    within: GroupRef | None = None
    """The group that this group is itself a member of."""
    name: str = ""
    """The name its owner gave it, if that is not its id."""
    search: SearchSpec | None = None
    """How its members are compared, if they are the trials of a search."""

    @property
    def title(self) -> str:
        if self.kind is GroupKind.INCREMENTAL:
            return f"job {self.id}"
        return f"group {self.name or self.id}"


class Group(msgspec.Struct):
    """The current state of a group. Only the state changes it."""

    spec: GroupSpec
    members: dict[str, JobState | None] = {}
    """By id, in the order of submission: how each member ended; None: it has not ended. A member may be a group."""
    left: int = 0
    """Members that have not ended."""
    failed: dict[str, int] = {}
    succeeded: dict[str, int] = {}
    """Members that failed, and those that succeeded, by role. Both count only until the outcome is known."""
    is_cut_short: bool = False
    """True if a member was stopped."""
    outcome: JobState | None = None
    """Succeeded, failed or stopped, once that is known; members may still be running."""
    reason: str = ""
    """Why it ended before all its members had ended."""
    needed_by: list[str] = []
    """Jobs that wait for it."""
    trials: dict[str, Trial] = {}
    """The members of a search that have reported."""
    deadline_at_s: float = math.inf
    """When its search ends."""

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def kind(self) -> GroupKind:
        return self.spec.kind

    @property
    def weight(self) -> float:
        return self.spec.weight

    @property
    def ends_when(self) -> EndsWhen:
        return self.spec.ends_when

    @property
    def start_up_s(self) -> float:
        """How long its trials run before they report for the first time; nine of ten take no longer."""
        begun = sorted(trial.begun_s for trial in self.trials.values())
        return begun[math.ceil(0.9 * len(begun)) - 1] if begun else 0.0

    @property
    def has_ended(self) -> bool:
        return self.outcome is not None and not self.left

    def join(self, member: str) -> None:
        self.members[member] = None
        self.left += 1

    def note_end(self, member: str, role: str, state: JobState) -> None:
        """Note that a member has ended; that may decide the outcome of the group."""
        self.members[member] = state
        self.left -= 1
        if self.outcome is not None:
            return
        if state is JobState.STOPPED:
            self.is_cut_short = self.spec.search is None  # of a search, most trials are
        else:
            counts = self.succeeded if state is JobState.SUCCEEDED else self.failed
            counts[role] = counts.get(role, 0) + 1
            for rule in self.ends_when.rules:
                if rule.role in ("", role):
                    self._follow(rule)
        if not self.left and self.outcome is None and not self.ends_when.never:
            self.outcome = JobState.STOPPED if self.is_cut_short else JobState.SUCCEEDED

    def _follow(self, rule: Enough) -> None:
        for outcome, counts, enough in (
            (JobState.FAILED, self.failed, rule.failed),
            (JobState.SUCCEEDED, self.succeeded, rule.succeeded),
        ):
            count = counts.get(rule.role, 0) if rule.role else sum(counts.values())
            if self.outcome is None and enough is not None and count >= enough:
                what = f"of role {rule.role}" if rule.role else "of its members"
                self.outcome, self.reason = outcome, f"{self.spec.title} ended: {count} {what} {outcome}"


Groups = dict[str, Group]
"""By id."""


def form(groups: Groups, spec: GroupSpec) -> Group:
    """A new group. If it is a member of one whose outcome is known, it is to be stopped like the other members."""
    group = groups[spec.id] = Group(spec)
    if spec.within is not None:
        outer = current(groups, spec.within.id)
        outer.join(spec.id)
        if outer.outcome is not None:
            group.outcome, group.reason = JobState.STOPPED, outer.reason
    return group


def current(groups: Groups, group_id: str) -> Group:
    """The group as a new member sees it: reset if it has ended."""
    group = groups.get(group_id)
    if group is None or group.has_ended:
        return form(groups, group.spec if group is not None else GroupSpec(group_id))
    return group


def forget(groups: Groups, ref: GroupRef, member: str) -> None:
    """A group is dropped with its last member, unless a job needs it."""
    group = groups.get(ref.id)
    if group is None or group.members.pop(member, None) is None or group.members or group.needed_by:
        return
    del groups[ref.id]
    if group.spec.within is not None:
        forget(groups, group.spec.within, group.id)
