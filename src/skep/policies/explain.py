"""The refusal of one job as text, computed on demand, and why a job can never run."""

from __future__ import annotations

from collections.abc import Sequence

from skep.core.cluster import WHOLE
from skep.core.model import Shape
from skep.core.refusal import Cause, Refusal
from skep.core.view import ClusterView, JobView, View

REMEDIES = {
    Cause.QUOTA: "jobs within its quota ending, or a larger quota",
    Cause.FRAGMENTATION: "free GPUs closer together: jobs ending on one node, or accepting to be spread",
    Cause.CAPACITY: "enough running jobs ending, or asking for less",
    Cause.ORDER: "the jobs before it starting first",
    Cause.CONSTRAINT: "the required resource becoming available",
}


NAMED_MAX = 5


def refusal_of(view: View, job: JobView, cause: Cause | None, ahead: Sequence[JobView] = ()) -> Refusal:
    """`cause` is why its request does not fit now, `ahead` are the jobs before it in its line."""
    if cause is None:
        left = [name for name in job.spec.needs if name not in view.jobs or view.jobs[name].finish_s is None]
        reason = f"waits for {', '.join(left)}" if left else f"is {job.state}"
        return Refusal("not-in-line", Cause.ORDER, reason, "those jobs succeeding")
    if ahead:
        reason = f"{names_of(ahead)} goes first and does not fit either"
        if len(ahead) > 1:
            reason = f"{names_of(ahead)} go first, and job {ahead[0].id} does not fit either"
        return Refusal("behind", Cause.ORDER, reason, REMEDIES[Cause.ORDER])
    shape = job.spec.shapes[0]
    free = view.cluster.free_gpus(shape.gpu_types, shape.gpu_milli)
    if shape.gpu_milli < WHOLE:
        there = f"{gpus_of(free)} {'has' if free == 1 else 'have'} so much left"
    else:
        there = f"{free} {'is' if free == 1 else 'are'} free"
    reason = f"asks for {asked(shape)}, {there}"
    return Refusal("does-not-fit", cause, reason, REMEDIES[cause])


def names_of(jobs: Sequence[JobView]) -> str:
    """`job 3, job 4 and 12 more`: in this form, so that ids can be hidden from users who may not see them."""
    some = ", ".join(f"job {job.id}" for job in jobs[:NAMED_MAX])
    return some + (f" and {len(jobs) - NAMED_MAX:,} more" if len(jobs) > NAMED_MAX else "")


def never_fits(cluster: ClusterView, shape: Shape) -> str:
    pools = cluster.pools_for(shape.gpu_types)
    kind = f" of type {' or '.join(shape.gpu_types)}" if shape.gpu_types else ""
    there = sum(pool.total for pool in pools)
    if shape.gpus > there:
        return f"asks for {asked(shape)}{kind}, the cluster has {there}"
    largest = max((role.gpus for role in shape.roles), default=0)
    most = max((pool.size_max for pool in pools), default=0)
    if largest > most:
        return f"asks for {gpus_of(largest)}{kind} in one task, no node has more than {most}"
    return f"asks for {asked(shape)}{kind}, which the placement cannot fit even on the empty cluster"


def asked(shape: Shape) -> str:
    """Its GPUs, with the part of each if all are shared equally."""
    parts = {role.gpu_milli for role in shape.roles if role.gpus}
    if len(parts) != 1 or parts == {WHOLE}:
        return gpus_of(shape.gpus)
    return f"{parts.pop()}/{WHOLE} of {f'each of {shape.gpus} GPUs' if shape.gpus > 1 else 'a GPU'}"


def gpus_of(count: int) -> str:
    return f"{count} GPU{'s' if count != 1 else ''}"
