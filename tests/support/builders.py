"""Compact builders for tests: `trace(job(4, work=100), job(1, at=10))` on `cluster("2x4:v100")`."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.clusters.spec import parse_spec
from skep.core.cluster import UNLIMITED, Cluster, NodeSpec
from skep.core.group import GroupSpec
from skep.core.model import JobSpec, Role, Shape, gpu_shape
from skep.core.state import State
from skep.core.view import Trigger
from skep.traces.trace import Trace, TraceJob

SHAPE = ("gpu_milli", "gpu_mem_gib", "cpu", "memory_gib", "spans_types")


def job(
    gpus: int = 1,
    *,
    work: float = 100.0,
    at: float = 0.0,
    id: str = "",
    expect: float | None = -1.0,
    gpu_type: str = "",
    roles: tuple[Role, ...] = (),
    **more: Any,
) -> TraceJob:
    """A job of a trace. `more` goes to its shape (gpu_milli, CPU, …) or its spec (vc, priority, needs, …).

    Its owner's estimate is true unless `expect` is given; `roles` replace the one role of a GPU job.
    """
    types = tuple(gpu_type.split("|")) if gpu_type else ()
    wants = {name: more.pop(name) for name in SHAPE if name in more}
    shape = Shape(roles, types) if roles else gpu_shape(gpus, gpu_types=types, **wants)
    if expect == -1.0:
        expect = work if work < float("inf") else None
    return TraceJob(at, work, JobSpec(id, (shape,), expect_s=expect, **more))


def role(count: int = 1, gpus: int = 0, **more: Any) -> Role:
    return Role(count=count, gpus=gpus, **more)


def trace(*jobs: TraceJob, name: str = "test", groups: tuple[GroupSpec, ...] = ()) -> Trace:
    """The jobs in order of submission; those without an id are called j0, j1, … by their position in the call."""
    named = [
        entry if entry.spec.id else msgspec.structs.replace(entry, spec=msgspec.structs.replace(entry.spec, id=f"j{n}"))
        for n, entry in enumerate(jobs)
    ]
    return Trace(name, "native", sorted(named, key=lambda entry: entry.submit_s), groups=groups)


def cluster(spec: str | list[NodeSpec]) -> Cluster:
    """From a spec such as `2x4:v100+1x8`, or from nodes made with `node`."""
    if isinstance(spec, str):
        return Cluster(parse_spec(spec), spec)
    named = [
        entry if entry.name else msgspec.structs.replace(entry, name=f"n{number}") for number, entry in enumerate(spec)
    ]
    return Cluster(named, "nodes")


def node(
    gpus: int = 8,
    gpu_type: str = "",
    *,
    rack: str = "",
    cpu: int | None = None,
    memory_gib: int | None = None,
    gpu_mem_gib: int | None = None,
    inner: tuple[tuple[str, int], ...] = (),
    name: str = "",
) -> NodeSpec:
    return NodeSpec(
        name,
        gpus,
        gpu_type,
        gpu_mem_mib=UNLIMITED if gpu_mem_gib is None else gpu_mem_gib * 1024,
        cpu_milli=UNLIMITED if cpu is None else cpu * 1000,
        memory_mib=UNLIMITED if memory_gib is None else memory_gib * 1024,
        within=(("rack", rack),) if rack else (),
        inner=inner,
    )


def take_trigger(state: State) -> Trigger:
    """What the planner has not seen yet; from now on it counts as seen."""
    trigger, state.trigger, state.is_woken = state.trigger, Trigger(), False
    return trigger
