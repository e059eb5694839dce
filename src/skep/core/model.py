"""What a user submits: jobs made of task roles, in one or several acceptable shapes.

These are values: frozen, comparable, and equal requests are equal objects, so that everything which
holds for one job of a shape (does it fit? why not?) is worked out once for all of them.
"""

from __future__ import annotations

import msgspec

from skep.core.share import Share

DEFAULT_VC = "default"

PRIORITIES = {"oppo": -1, "test": 10, "prod": 100}
"""Priorities by name; -1 is opportunistic work, 0 to 1000 is guaranteed."""


class Role(msgspec.Struct, frozen=True, cache_hash=True):
    """`count` equal tasks, each indivisible and on one node."""

    count: int = 1
    gpus: int = 0
    """Gpus of one task."""
    gpu_milli: int = 1000
    """Thousandths of each of these gpus; below 1000 the gpu is shared."""
    gpu_mem_gib: float = 0.0
    cpu: float = 0.0
    memory_gib: float = 0.0
    name: str = "task"
    is_apart: bool = False
    """Whether no two of its tasks may share a gpu with each other."""


class Shape(msgspec.Struct, frozen=True, cache_hash=True):
    """One form in which a job accepts to run: its roles, and the gpu types that will do (none named: any)."""

    roles: tuple[Role, ...]
    gpu_types: tuple[str, ...] = ()
    spans_types: bool = False
    """Whether the gang may sit on several gpu types at once."""
    gpus: int = 0
    """Gpus of all tasks together (derived)."""
    gpu_milli: int = 1000
    """The smallest part of a gpu that a task asks for (derived)."""
    is_plain: bool = False
    """Single whole gpus and nothing else: only numbers of free gpus matter (derived)."""

    def __post_init__(self) -> None:
        gpus = sum(role.count * role.gpus for role in self.roles)
        role = self.roles[0]
        plain = len(self.roles) == 1 and role == Role(count=role.count, gpus=1, name=role.name)
        milli = min((role.gpu_milli for role in self.roles if role.gpus), default=1000)
        msgspec.structs.force_setattr(self, "gpus", gpus)
        msgspec.structs.force_setattr(self, "gpu_milli", milli)
        msgspec.structs.force_setattr(self, "is_plain", plain)


class GroupRef(msgspec.Struct, frozen=True, array_like=True):
    """The group that a job belongs to (`core/group.py`), and what it is there: a task of a role, a trial."""

    id: str
    role: str = ""
    index: int = 0


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job as submitted. What it really needs to finish is not here: that belongs to the engine."""

    id: str
    shapes: tuple[Shape, ...]
    """In order of preference; nearly always one."""
    vc: str = DEFAULT_VC
    user: str = ""
    model: str = ""
    priority: int = 0
    min_gpus: int | None = None
    max_gpus: int | None = None
    """An elastic job runs with anything from `min_gpus` to `max_gpus`: more or fewer tasks of its elastic role."""
    preemptible: bool = True
    """Whether it may be stopped for others once it runs. One that may not never runs on lent cells."""
    expect_s: float | None = None
    """How long its owner expects it to run in its first shape, alone and well placed."""
    deadline_s: float | None = None
    """Seconds after submission."""
    steps: int | None = None
    epochs: int | None = None
    group: GroupRef | None = None
    needs: tuple[str, ...] = ()
    """Jobs that must have succeeded before this one may start."""
    needs_groups: tuple[str, ...] = ()
    """Groups that must have."""
    pinned: str = ""
    """The pinned cell of its VC that it runs in and nowhere else; nothing: it runs in none of them."""
    time_limit_s: float | None = None
    """It ends when it has held what it runs on for so long."""
    share: Share | None = None
    """How it wants to share its GPUs; none: it says nothing about that."""

    @property
    def elastic_role(self) -> int:
        """The number of tasks changes in one role: the first of its first shape that has gpus."""
        return next((number for number, role in enumerate(self.shapes[0].roles) if role.gpus), 0)

    @property
    def gpu_range(self) -> tuple[int, int] | None:
        """The fewest and the most gpus of the elastic role, in whole tasks; none for a job that is not elastic.

        Without an explicit end, the requested one applies.
        """
        if self.min_gpus is None and self.max_gpus is None:
            return None
        role = self.shapes[0].roles[self.elastic_role]
        if not role.gpus or role.gpu_milli < 1000:
            return None
        asked = role.count * role.gpus
        low = self.min_gpus if self.min_gpus is not None else min(asked, self.max_gpus or asked)
        high = self.max_gpus if self.max_gpus is not None else max(asked, low)
        low, high = max(-(-low // role.gpus), 1) * role.gpus, high // role.gpus * role.gpus
        return (low, high) if low <= high else None

    def resized(self, gpus: int) -> Shape:
        """Its first shape with so many gpus in the elastic role."""
        asked = self.shapes[0]
        roles = list(asked.roles)
        role = roles[self.elastic_role]
        roles[self.elastic_role] = msgspec.structs.replace(role, count=gpus // role.gpus)
        return Shape(tuple(roles), asked.gpu_types, asked.spans_types)


def gpu_shape(
    gpus: int,
    *,
    gpu_types: tuple[str, ...] = (),
    gpu_milli: int = 1000,
    gpu_mem_gib: float = 0.0,
    cpu: float = 0.0,
    memory_gib: float = 0.0,
    is_apart: bool = True,
    spans_types: bool = False,
) -> Shape:
    """The shape of a trace's job: one task per gpu, cpu and memory of the job spread evenly over them.

    Without gpus it is one task that wants cpus and memory. Parts of several gpus are parts of different ones, but for
    independent instances (`is_apart=False`).
    """
    tasks = max(gpus, 1)
    role = Role(
        count=tasks,
        gpus=min(gpus, 1),
        gpu_milli=gpu_milli,
        gpu_mem_gib=gpu_mem_gib,
        cpu=cpu / tasks,
        memory_gib=memory_gib / tasks,
        is_apart=is_apart and gpus > 1 and gpu_milli < 1000,
    )
    return Shape(roles=(role,), gpu_types=gpu_types, spans_types=spans_types)
