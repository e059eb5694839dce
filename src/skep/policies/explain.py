"""The refusal of a job in words, and why a job can never run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from skep.core.cluster import WHOLE
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.refusal import Cause, Change, End, Refusal, Undrain, Wait, listed, ready, remedy_of
from skep.core.standstill import NOWHERE
from skep.core.tags import UNTAINTED
from skep.core.view import ClusterView, JobView, View
from skep.policies.place import Place

if TYPE_CHECKING:
    from skep.policies.missing import Ahead, Missing


class Short(msgspec.Struct, frozen=True):
    """What there is too little of: `text` goes on after what the job asks for."""

    cause: Cause
    text: str


def put_into_words(lack: Missing, shape: Shape, ahead: Ahead, allowance: str, view: View) -> Refusal:
    """Why a job waits: what it asks for, what is short and who has it, who goes first."""
    said, changes = [], list[Change]()
    if lack.short is not None:
        said.append(f"asks for {asked(shape)}{types_of(shape)}{lack.short.text}")
    if lack.until_s < math.inf:
        said.append(f"in {max(lack.until_s - view.now_s, 0):,.0f} s it accepts to be spread")
        changes.append(Wait(lack.until_s))
    if lack.nodes:
        said.append(nodes_out(view, lack.nodes))
        changes.append(Undrain(lack.nodes))
    if allowance and lack.short is not None:
        said.append(allowance)
    ended = [*lack.holders, *ahead.first]
    if lack.holders:
        verb = "holds" if len(lack.holders) == 1 else "hold"
        said.append(f"{names_of(lack.holders)} {verb} what it needs")
    if ahead.count:
        said.append(f"{names_of(ahead.first, ahead.count)} {'goes' if ahead.count == 1 else 'go'} first")
    if ended:
        changes.append(End(tuple(job.id for job in ended), ahead.count - len(ahead.first)))
    if not said:
        return ready(view.now_s)
    code, cause = code_of(lack, ahead, allowance)
    return Refusal(code, cause, "; ".join(said), remedy_of(changes, view.now_s), tuple(changes))


def code_of(lack: Missing, ahead: Ahead, allowance: str) -> tuple[str, Cause]:
    if ahead.count:
        return "behind", Cause.ORDER
    assert lack.short is not None
    if lack.nodes:
        return "node-out-of-use", Cause.CONSTRAINT
    if lack.until_s < math.inf:
        return "locality", lack.short.cause
    return "does-not-fit", Cause.QUOTA if allowance else lack.short.cause


def nodes_out(view: View, names: Sequence[str]) -> str:
    words = view.unusable()
    said = listed([f"node {name}" for name in names])
    return f"{said} {'is' if len(names) == 1 else 'are'} {' or '.join(sorted({words[name] for name in names}))}"


def names_of(jobs: Sequence[JobView], count: int | None = None) -> str:
    """`job 3, job 4 and 12 more`: in this form, so that ids can be hidden from users who may not see them."""
    return listed([f"job {job.id}" for job in jobs], count)


# What is short -------------------------------------------------------------------------------------------------------

EXTRAS, TAGS = "extras", "nodes with its tags"
RESOURCES: dict[str, dict[str, float | tuple[()]]] = {  # by the fields of a role and their values without it
    "CPUs": {"cpu": 0.0},
    "memory": {"memory_gib": 0.0},
    "GPU memory": {"gpu_mem_gib": 0.0},
    EXTRAS: {"extras": ()},
    TAGS: {"tags": ()},
}


def short_of(view: View, plan: Plan, place: Place, job: JobView, shape: Shape) -> Short:
    """Why the job does not fit in this trial: too few GPUs, too little beside them, or not together."""
    cluster = view.cluster
    free, where = place.reach(job, shape, cluster.free_gpus(shape.gpu_types, shape.gpu_milli))
    if shape.gpus > free and not (shape.gpu_milli < WHOLE and free):
        return Short(cluster.why_not(shape.gpus, free), f", {left_of(shape, free)}{where}")

    names = too_much(shape, lambda less: place.find(cluster, plan, job, less, view.now_s) is not None)
    if names or not shape.gpus:
        return Short(Cause.CAPACITY, beside(shape, names or wanted_of(shape)))
    most = max(
        (node.free for pool in cluster.pools_for(shape.gpu_types) for node in pool.nodes if node.is_up), default=0
    )
    where += f", at most {most} on one node" if most < shape.gpus and shape.gpu_milli == WHOLE else ""
    return Short(cluster.why_not(shape.gpus, free), f", {left_of(shape, free)}{where}, but in no shape that it accepts")


def too_much(shape: Shape, fits: Callable[[Shape], bool]) -> list[str]:
    """The resources that are short: with less of them it would fit. Empty if something else is short."""
    wanted = wanted_of(shape)
    for names in (*([name] for name in wanted), wanted):
        left = {key: value for name in names for key, value in RESOURCES[name].items()}
        roles = tuple(msgspec.structs.replace(role, **left) for role in shape.roles)
        if fits(Shape(roles, shape.gpu_types, shape.spans_types)):
            return names
    return []


def wanted_of(shape: Shape) -> list[str]:
    return [name for name in RESOURCES if amount(shape, name)]


def left_of(shape: Shape, free: int) -> str:
    if shape.gpu_milli < WHOLE:
        return f"{gpus_of(free)} {'has' if free == 1 else 'have'} so much left"
    return f"{free} {'is' if free == 1 else 'are'} free"


def beside(shape: Shape, names: Sequence[str]) -> str:
    """`with 8 CPUs for a task; too few CPUs are left on the nodes with enough free GPUs`."""
    if TAGS in names:
        return f"{amounts_of(shape, names)}; too little is left on the nodes that have them"
    where = " with enough free GPUs" if shape.gpus else ""
    short = " and ".join(f"too {'few' if name in COUNTED else 'little'} {name}" for name in names)
    are = "is" if len(names) == 1 and names[0] not in COUNTED else "are"
    return f"{amounts_of(shape, names)}; {short} {are} left on the nodes{where}"


def amounts_of(shape: Shape, names: Sequence[str]) -> str:
    return f" with {' and '.join(said(shape, name) for name in names)} for a task"


COUNTED = ("CPUs", EXTRAS)
UNITS = {"CPUs": "CPUs", "memory": "GiB of memory", "GPU memory": "GiB of GPU memory"}


def said(shape: Shape, name: str) -> str:
    if name == TAGS:
        tags = dict.fromkeys(tag for role in shape.roles for tag in role.tags)
        return f"the tags {' and '.join('no taint' if tag == UNTAINTED else tag for tag in tags)}"
    if name == EXTRAS:
        found = dict.fromkeys(f"{count} {what}" for role in shape.roles for what, count in role.extras)
        return " and ".join(found)
    return f"{amount(shape, name):g} {UNITS[name]}"


def amount(shape: Shape, name: str) -> float:
    """The most that one task asks for; of tags and extras, their number."""
    [field] = RESOURCES[name]
    values = [getattr(role, field) for role in shape.roles]
    return max((len(value) if isinstance(value, tuple) else value for value in values), default=0.0)


# What can never be ---------------------------------------------------------------------------------------------------


def why_never_fits(cluster: ClusterView, job: JobView, shape: Shape, fits: Callable[[Shape], bool]) -> str:
    """Why this shape of a job fits nowhere even if the cluster is empty; `fits` tries others there."""
    still = standstill_of(job, shape)
    if shape.gpu_types == NOWHERE:
        return f"asks for {asked(shape)}: {still}"
    return never_fits(cluster, shape, fits) + (f"; {still}" if still else "")


def standstill_of(job: JobView, shape: Shape) -> str:
    """That the job accepts fewer GPU types than it says; empty if it accepts all of them."""
    if shape.gpu_types == NOWHERE:
        return f"model {job.spec.model} makes no progress on any GPU type that it may use here (speed 0 in the profile)"
    if any(shape.gpu_types == each.gpu_types for each in job.spec.shapes):
        return ""
    return f"model {job.spec.model} makes no progress on other GPU types (speed 0 in the profile)"


def never_fits(cluster: ClusterView, shape: Shape, fits: Callable[[Shape], bool]) -> str:
    pools = cluster.pools_for(shape.gpu_types)
    there = sum(pool.total for pool in pools)
    if shape.gpus > there:
        return f"asks for {asked(shape)}{types_of(shape)}, the cluster has {there}"
    largest = max((role.gpus for role in shape.roles), default=0)
    most = max((pool.size_max for pool in pools), default=0)
    if largest > most:
        return f"asks for {gpus_of(largest)}{types_of(shape)} in one task, no node has more than {most}"
    if names := too_much(shape, fits):
        if TAGS in names:
            return f"asks for {asked(shape)}{types_of(shape)}{amounts_of(shape, names)}, which too few nodes have"
        where = " beside enough GPUs" if shape.gpus else ""
        return f"asks for {asked(shape)}{types_of(shape)}{amounts_of(shape, names)}, more than any node has{where}"
    return f"asks for {asked(shape)}{types_of(shape)}, which the placement cannot fit even on the empty cluster"


def asked(shape: Shape) -> str:
    """Its GPUs, with the part of each if all are shared equally."""
    parts = {role.gpu_milli for role in shape.roles if role.gpus}
    if len(parts) != 1 or parts == {WHOLE}:
        return gpus_of(shape.gpus)
    return f"{parts.pop()}/{WHOLE} of {f'each of {shape.gpus} GPUs' if shape.gpus > 1 else 'a GPU'}"


def types_of(shape: Shape) -> str:
    return f" of type {' or '.join(shape.gpu_types)}" if shape.gpu_types else ""


def gpus_of(count: int) -> str:
    return f"{count} GPU{'s' if count != 1 else ''}"
