"""The groups of a request: the one it names, and its own if its tasks start one by one."""

from __future__ import annotations

import re

from skep.core.group import ALL_ENDED, FIRST_FAILED, FIRST_SUCCEEDED, NEVER, EndsWhen, Enough, GroupKind, GroupSpec
from skep.core.model import GroupRef
from skep.jobs.request import Request

ENDS_WHEN = {
    "all-ended": ALL_ENDED,
    "first-succeeded": FIRST_SUCCEEDED,
    "first-failed": FIRST_FAILED,
    "never": NEVER,
}
KINDS = tuple(str(kind) for kind in GroupKind if kind is not GroupKind.INCREMENTAL)

COUNT = re.compile(r"min_(succeeded|failed)=([1-9][0-9]{0,5})")


def read_ends_when(text: str) -> EndsWhen | None:
    """None if it is not such a rule."""
    match = COUNT.fullmatch(text)
    if match is None:
        return ENDS_WHEN.get(text)
    count = int(match[2])
    return EndsWhen((Enough(succeeded=count) if match[1] == "succeeded" else Enough(failed=count),))


def groups_of(request: Request, job_id: str) -> list[GroupSpec]:
    """The descriptions of its groups, to be submitted before the job, the outer one first."""
    ref = named_ref(request)
    found = [named_spec(request, ref)] if ref is not None else []
    if not request.gang:
        rules = tuple(
            Enough(name, role.completion.min_succeeded, role.completion.min_failed)
            for name, role in request.tasks.items()
        )
        found.append(GroupSpec(job_id, GroupKind.INCREMENTAL, ends_when=EndsWhen(rules), within=ref))
    return found


def named_ref(request: Request) -> GroupRef | None:
    """Users cannot end each other's jobs: the same name of another user or VC is another group."""
    if not request.group:
        return None
    return GroupRef(f"{request.vc}/{request.user}/{request.group}", request.of_group.role, request.of_group.index)


def named_spec(request: Request, ref: GroupRef) -> GroupSpec:
    asked = request.of_group
    ends_when = read_ends_when(asked.ends_when) or ALL_ENDED
    return GroupSpec(ref.id, GroupKind(asked.kind), asked.weight, ends_when, name=request.group)


def says_more(request: Request) -> bool:
    """True if it gives more than the name of its group; that then applies to all members."""
    asked = request.of_group
    return (asked.kind, asked.weight, asked.ends_when) != (GroupKind.APPLICATION, 1.0, "all-ended")


def task_name(ref: GroupRef) -> str:
    """A task in the form shown to people."""
    return f"{ref.role}-{ref.index}"


def member_id(job_id: str, task: str) -> str:
    """The job of the core for one task of an incremental job."""
    return f"{job_id}/{task}"
