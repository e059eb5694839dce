"""The units of a job that must each fit on one node."""

from __future__ import annotations

import functools
import math

import msgspec

from skep.core.allocation import WHOLE
from skep.core.model import Extras, Role, Shape


class Task(msgspec.Struct, frozen=True, cache_hash=True):
    """A demand on one node: the same part of a number of GPUs, CPUs and memory."""

    gpus: int = 0
    milli: int = WHOLE
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_mem_mib: int = 0
    gpu_types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    extras: Extras = ()

    @property
    def total_milli(self) -> int:
        return self.gpus * self.milli

    @property
    def is_share(self) -> bool:
        return bool(self.gpus) and self.milli < WHOLE


class Unit(msgspec.Struct, frozen=True):
    """Tasks of one role that go to one node together, and what they need there."""

    role: int
    tasks: int
    task: Task


@functools.cache
def needs(role: Role) -> tuple[int, int, int]:
    """Thousandths of a CPU, MiB of memory and MiB of each GPU for one task."""
    return (
        math.ceil(role.cpu * 1000 - 1e-6),
        math.ceil(role.memory_gib * 1024 - 1e-6),
        math.ceil(role.gpu_mem_gib * 1024 - 1e-6),
    )


def task_of(role: Role, gpu_types: tuple[str, ...], tasks: int) -> Task:
    """A number of tasks of a role on one node."""
    cpu_milli, memory_mib, gpu_mem_mib = needs(role)
    gpus, milli, types = (tasks * role.gpus, role.gpu_milli, gpu_types) if role.gpus else (0, WHOLE, ())
    return Task(
        gpus,
        milli,
        cpu_milli * tasks,
        memory_mib * tasks,
        gpu_mem_mib if gpus else 0,
        types,
        role.tags,
        times(role.extras, tasks),
    )


def times(extras: Extras, count: int) -> Extras:
    return tuple((name, each * count) for name, each in extras)


def is_loose(role: Role) -> bool:
    """True if each task may be placed independently: tasks without GPUs, and parts of a GPU that may share one."""
    return not role.gpus or (role.gpu_milli < WHOLE and not role.is_apart)


@functools.lru_cache(4096)
def units_of(shape: Shape, gpus_most: int) -> tuple[Unit, ...]:
    """The units of a job that go to one node each: the tasks of a role together, as many as a node of `gpus_most` GPUs
    can hold, or one by one if they are independent."""
    found: list[Unit] = []
    for number, role in enumerate(shape.roles):
        rest, most = role.count, 1 if is_loose(role) else max(gpus_most // role.gpus, 1)
        while rest:
            tasks = min(rest, most)
            found.append(Unit(number, tasks, task_of(role, shape.gpu_types, tasks)))
            rest -= tasks
    return tuple(found)


@functools.lru_cache(4096)
def fits_nodes(shape: Shape, gpus_most: int) -> bool:
    """True if no role has more GPUs than a node, so that none must be divided."""
    wanted = sum(role.count if is_loose(role) else 1 for role in shape.roles)
    return len(units_of(shape, gpus_most)) == wanted
