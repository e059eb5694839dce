"""The changes that might let a waiting job start, of those that the one who asks may make. Whether they help is tried
out (`experiments/adviser.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from skep.core.cluster import NodeSpec
from skep.core.errors import InputError
from skep.core.events import (
    ClusterChanged,
    Event,
    JobAltered,
    JobReleased,
    NodeJoined,
    NodeUndrained,
    PriorityChanged,
    StopRequested,
)
from skep.core.job import Job, JobState
from skep.core.model import PRIORITIES
from skep.experiments.trial import Making
from skep.jobs.alter import Alteration, altered
from skep.jobs.request import Request
from skep.service.advice import Asker, Kind
from skep.service.alter import altered_specs
from skep.service.book import LIMIT, owner_of
from skep.service.copy import KeptCopy

STOPS_MAX = 12
"""Running jobs that are tried, those that have used least first."""
OTHERS_MAX = 8
"""Of GPU types, VCs and nodes each."""


class PossibleFix(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    text: str
    making: Making
    command: str = ""
    change: dict[str, int | str | bool] = {}
    group: str = ""
    """Of several in a group, the first that helps is enough."""
    lost_gpu_s: float = 0.0


class FixCase(msgspec.Struct, frozen=True):
    """The job that is asked about, by whom, and when."""

    kept: KeptCopy
    id: str
    request: Request
    members: list[Job]
    """Those that wait."""
    asker: Asker
    at_s: float


def case_of(kept: KeptCopy, job_id: str, request: Request, asker: Asker, at_s: float) -> FixCase | None:
    """None if the job does not wait."""
    pending = (job for job in kept.state.open_jobs.values() if job.state is JobState.PENDING)
    members = [job for job in pending if owner_of(kept.state, job.id) == job_id]
    return FixCase(kept, job_id, request, members, asker, max(at_s, kept.state.now_s)) if members else None


def candidates(case: FixCase) -> Iterator[PossibleFix]:
    """Those first that cost others nothing."""
    job = case.members[0]
    if job.hold:
        yield from releases(case)
        return
    if job.needs_left:
        return
    if case.asker.may_change:
        yield from sizes(case)
        yield from types(case)
        yield from vcs(case)
        yield from priorities(case)
    if case.asker.is_admin:
        yield from undrains(case)
    yield from ends(case)
    if case.asker.is_admin:
        yield from more_nodes(case)


def releases(case: FixCase) -> Iterator[PossibleFix]:
    """A job that waits for a limit is released by the limit alone."""
    if case.asker.may_change and not case.members[0].hold.startswith(LIMIT):
        events = tuple(JobReleased(job.id) for job in case.members if job.hold)
        command = f"skep release {case.id}"
        yield PossibleFix(
            kind="release", text="release it", making=Making(events), command=command, change={"hold": False}
        )


def sizes(case: FixCase) -> Iterator[PossibleFix]:
    """Fewer GPUs, as many as possible first."""
    gpus = case.request.gpus
    for wanted in sorted({gpus - 1, gpus * 3 // 4, gpus // 2, gpus // 4, 1}, reverse=True):
        if 0 < wanted < gpus:
            text = f"ask for {wanted} GPU{'s' if wanted > 1 else ''} instead of {gpus}"
            yield from altering(case, Alteration(gpus=wanted), text, f"--gpus {wanted}", "gpus")


def types(case: FixCase) -> Iterator[PossibleFix]:
    asked = {each for role in case.request.tasks.values() for each in role.gpu_type.split("|") if role.gpus}
    if asked == {""}:
        return
    there = sorted({pool.gpu_type for pool in case.kept.state.cluster.pools if pool.gpu_type} - asked)
    for each in there[:OTHERS_MAX]:
        yield from altering(case, Alteration(gpu_type=each), f"ask for GPUs of type {each}", f"--gpu-type {each}")


def vcs(case: FixCase) -> Iterator[PossibleFix]:
    layout = case.kept.ground.layout
    names = [
        vc for vc in (layout.vcs if layout is not None else ()) if vc != case.request.vc and case.asker.may_use(vc)
    ]
    for vc in names[:OTHERS_MAX]:
        yield from altering(case, Alteration(vc=vc), f"move it to VC {vc}", f"--vc {vc}")


def altering(case: FixCase, wanted: Alteration, text: str, option: str, group: str = "") -> Iterator[PossibleFix]:
    state = case.kept.state
    try:
        request = altered(case.request, wanted)
    except InputError:
        return  # of this job that cannot be changed
    members = [job.id for job in state.jobs.values() if owner_of(state, job.id) == case.id]
    if len(members) > len(case.members):
        return  # some of it runs
    yield PossibleFix(
        kind="alter",
        text=text,
        making=Making(
            tuple(JobAltered(spec) for spec in altered_specs(state, members, request)),
            stretch=case.request.gpus / request.gpus,
        ),
        command=f"skep alter {case.id} {option}",
        change=msgspec.to_builtins(wanted),
        group=group,
    )


def priorities(case: FixCase) -> Iterator[PossibleFix]:
    """The lowest first."""
    now, most = case.members[0].spec.priority, case.asker.priority
    for wanted in sorted({*PRIORITIES.values(), most}):
        if now < wanted <= most:
            yield PossibleFix(
                kind="priority",
                text=f"raise its priority from {now} to {wanted}",
                making=Making(tuple(PriorityChanged(job.id, wanted) for job in case.members)),
                command=f"skep priority {case.id} {wanted}",
                change={"priority": wanted},
                group="priority",
            )


def undrains(case: FixCase) -> Iterator[PossibleFix]:
    for node in sorted(case.kept.state.health.drained)[:OTHERS_MAX]:
        yield PossibleFix(
            kind="undrain",
            text=f"use node {node} again, which is drained",
            making=Making((NodeUndrained(node),)),
            command=f"skep undrain {node}",
            change={"node": node, "state": "up"},
        )


def ends(case: FixCase) -> Iterator[PossibleFix]:
    """Running jobs that end, or are stopped."""
    state = case.kept.state
    running: dict[str, list[Job]] = {}
    for job in state.held_jobs.values():
        if job.gpu_count:
            running.setdefault(owner_of(state, job.id), []).append(job)
    by_use = sorted(running.items(), key=lambda each: (used_gpu_s(each[1], case.at_s), each[1][0].seq))
    seen = [(owner, jobs) for owner, jobs in by_use if owner != case.id and case.asker.may_see(jobs[0].spec.vc)]
    for owner, jobs in seen[:STOPS_MAX]:
        is_whole = all(job.allocation is not None and not job.is_ending for job in jobs)
        names = tuple(job.id for job in jobs)
        if is_whole:
            yield PossibleFix(
                kind="wait", text=f"wait for job {owner} to end", making=Making(ends=names), change={"job": owner}
            )
        if is_whole and case.asker.may_stop(jobs[0].spec.user, jobs[0].spec.vc):
            yield stopping(case, owner, names, used_gpu_s(jobs, case.at_s))


def stopping(case: FixCase, owner: str, names: Iterable[str], lost_gpu_s: float) -> PossibleFix:
    """All of its members, those that wait too."""
    state = case.kept.state
    members = [job.id for job in state.open_jobs.values() if owner_of(state, job.id) == owner]
    events: tuple[Event, ...] = tuple(StopRequested(name, "") for name in members)
    return PossibleFix(
        kind="stop",
        text=f"stop job {owner}",
        making=Making(events),
        command=f"skep stop {owner}",
        change={"job": owner},
        lost_gpu_s=lost_gpu_s,
    )


def used_gpu_s(jobs: Iterable[Job], at_s: float) -> float:
    return sum(job.service_at(at_s) for job in jobs)


def more_nodes(case: FixCase) -> Iterator[PossibleFix]:
    """One more of each kind. In a cluster with VCs a node alone belongs to none of them."""
    if case.kept.ground.layout is not None:
        return
    ground = case.kept.ground
    applied = () if ground.discovery is not None else (ClusterChanged(ground.name, ground.text),)
    kinds: dict[tuple[int, str], NodeSpec] = {}
    for node in case.kept.state.cluster.nodes:
        if node.spec.gpus:
            kinds.setdefault((node.spec.gpus, node.spec.gpu_type), node.spec)
    for spec in list(kinds.values())[:OTHERS_MAX]:
        more = msgspec.structs.replace(spec, name=f"{spec.name}-more")
        of_type = f" of type {spec.gpu_type}" if spec.gpu_type else ""
        yield PossibleFix(
            kind="node",
            text=f"add a node like {spec.name} ({spec.gpus} GPUs{of_type})",
            making=Making((NodeJoined(more), *applied)),
            change={"like": spec.name},
        )
