"""The scheduler's view of a request: its jobs, and its groups (the one it names, and its own if its tasks start one by
one)."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from skep.core.group import ALL_ENDED, FIRST_FAILED, FIRST_SUCCEEDED, NEVER, EndsWhen, Enough, GroupKind, GroupSpec
from skep.core.model import GroupRef, JobSpec, Role, Shape
from skep.core.share import Share
from skep.core.tags import TAINT
from skep.jobs.request import OfShare, Request, TaskRole

PODS = "pods"
"""The extra of which every pod needs one."""


class Needed(NamedTuple):
    """What a job needs, as ids of the core."""

    jobs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


NOTHING = Needed()


def to_core(request: Request, job_id: str, needs: Needed = NOTHING, *, in_pods: bool = False) -> list[JobSpec]:
    """A gang is one job of the core. Otherwise every task is one, a member of the job's group, and starts when it can.
    The caller resolves what the request needs. `in_pods`: tasks are pods, on nodes with labels and taints."""
    if in_pods:
        request = as_pods(request)
    if request.gang:
        return [_spec(request, job_id, _shape(request), named_ref(request), needs)]
    return [
        _spec(request, member_id(job_id, task_name(ref)), shape, ref, needs)
        for name, role in request.tasks.items()
        for shape in [Shape((_role(name, role, count=1),), gpu_types(role))]
        for ref in (GroupRef(job_id, name, index) for index in range(role.count))
    ]


def as_pods(request: Request) -> Request:
    """The selector and the tolerations of a job as tags that its nodes must have. Each task counts as one pod."""
    asked = request.kubernetes
    tags = (*(f"{key}={value}" for key, value in asked.node_selector.items()), TAINT + "|".join(asked.tolerations))
    tasks = {
        name: msgspec.structs.replace(role, node_tags=(*role.node_tags, *tags), extras={**role.extras, PODS: 1})
        for name, role in request.tasks.items()
    }
    return msgspec.structs.replace(request, tasks=tasks)


def task_of(spec: JobSpec, request: Request) -> str:
    """The task that this job of the core consists of; empty for a gang."""
    return "" if request.gang or spec.group is None else task_name(spec.group)


def _spec(request: Request, job_id: str, shape: Shape, group: GroupRef | None, needs: Needed) -> JobSpec:
    least, most = _gpu_range(request)
    return JobSpec(
        id=job_id,
        shapes=(shape,),
        vc=request.vc,
        pinned=request.pinned,
        user=request.user,
        model=request.model,
        priority=request.priority,
        preemptible=request.preemptible,
        min_gpus=least,
        max_gpus=most,
        expect_s=request.expect_s,
        deadline_s=request.deadline_s,
        group=group,
        needs=needs.jobs,
        needs_groups=needs.groups,
        time_limit_s=request.time_limit_s,
        share=_share(request.share),
        weight=request.weight,
    )


def _share(asked: OfShare | None) -> Share | None:
    if asked is None:
        return None
    return Share(
        mode=asked.mode,
        limit_milli=round((asked.limit or 0.0) * 1000),
        weight=asked.weight,
        affinity=asked.affinity,
        anti_affinity=asked.anti_affinity,
        exclusion=asked.exclusion,
        persistent_gib=asked.persistent_gib,
        ephemeral_gib=asked.ephemeral_gib,
        claim=asked.claim,
        promise_milli=round(asked.promise * 1000),
        tier=asked.tier,
    )


def _gpu_range(request: Request) -> tuple[int | None, int | None]:
    """In an elastic job only the elastic role has GPUs, so its range is that of the job."""
    if request.elastic is None:
        return None, None
    each = request.tasks[request.elastic.role].gpus
    return request.elastic.min * each, request.elastic.max * each


def _shape(request: Request) -> Shape:
    roles = tuple(_role(name, role, count=role.count) for name, role in request.tasks.items())
    types = next((found for role in request.tasks.values() if (found := gpu_types(role))), ())
    return Shape(roles, types, request.spans_types)


def _role(name: str, role: TaskRole, *, count: int) -> Role:
    return Role(
        count=count,
        gpus=role.gpus,
        gpu_milli=role.gpu_milli,
        gpu_mem_gib=role.gpu_mem_gib,
        cpu=role.cpu,
        memory_gib=role.memory_gib,
        name=name,
        tags=role.node_tags,
        extras=tuple(sorted(role.extras.items())),
    )


def gpu_types(role: TaskRole) -> tuple[str, ...]:
    """Types joined by `|`, any of which is acceptable."""
    return tuple(role.gpu_type.split("|")) if role.gpu_type else ()


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
    return GroupSpec(ref.id, GroupKind(asked.kind), asked.weight, ends_when, name=request.group, search=asked.search)


def says_more(request: Request) -> bool:
    """True if it gives more than the name of its group; that then applies to all members."""
    asked = request.of_group
    usual = (GroupKind.APPLICATION, 1.0, "all-ended", None)
    return (asked.kind, asked.weight, asked.ends_when, asked.search) != usual


def task_name(ref: GroupRef) -> str:
    """A task in the form shown to people."""
    return f"{ref.role}-{ref.index}"


def member_id(job_id: str, task: str) -> str:
    """The job of the core for one task of an incremental job."""
    return f"{job_id}/{task}"
