"""What a user submits: jobs made of task roles, in one or several acceptable shapes.

All are values: frozen and comparable. Equal requests are equal objects, so that a question about a shape (does it fit?
why not?) is answered once for all jobs of that shape.

A policy decides by what it declares (`Need`): figures that could tell how long a job will run are not shown to it
otherwise. Reading one raises `NeedNotDeclared`, whatever the policy does with it. What is declared is read directly, so
a check costs nothing.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec

from skep.core.errors import InputError
from skep.core.share import Share

if TYPE_CHECKING:
    from skep.core.memory import At, Memory
    from skep.core.solving import SolverProblem
    from skep.core.view import View


class Need(enum.StrEnum):
    HISTORY = "history"
    """Finished jobs and how long they took."""
    PROGRESS = "progress"
    """How far jobs are: their total steps or epochs, and how many are done. In a simulation that follows from the true
    durations."""
    DEADLINE = "deadline"
    """The deadlines of jobs. Those of a trace may be derived from durations, as Gavel's are."""
    THROUGHPUT = "throughput"
    """Measured speeds, by model, GPU type, number of GPUs and neighbours."""
    ORACLE = "oracle"
    """How long a job will run, before it has: the true duration in a simulation, which only a trace has, its owner's
    estimate in a server."""
    CHECKPOINT = "checkpoint"
    """A stopped job continues later from where it was."""
    SUSPEND = "suspend"
    """A job can be suspended without leaving its GPUs."""
    RESIZE = "resize"
    """A running job can continue with more or fewer GPUs."""
    SHARE = "share"
    """Several jobs run on one GPU."""
    MIGRATE = "migrate"
    """A running job can continue elsewhere."""
    TUNE = "tune"
    """A running job takes another batch size."""
    INSTANT = "instant"
    """A job takes a GPU from another within milliseconds: only simulated."""


INFORMS = frozenset({Need.HISTORY, Need.PROGRESS, Need.DEADLINE, Need.THROUGHPUT, Need.ORACLE})
"""Needs that are knowledge: what is declared of them can be read."""


class NeedNotDeclared(InputError):
    """A policy reads what it has not declared."""

    def __init__(self, name: str, need: Need) -> None:
        how = f'with `needs = {{"{need}"}}` in its class'
        super().__init__(f"the policy reads {name} and does not declare that it needs `{need}`: declare it {how}")
        self.need = need


class UndeclaredField:
    """A descriptor instead of a field that must not be read."""

    def __init__(self, name: str, need: Need) -> None:
        self.name = name
        self.need = need

    def __get__(self, obj: object, owner: type | None = None) -> object:
        if obj is None:
            return self
        raise NeedNotDeclared(f"`{self.name}` of a job", self.need)


class Declares:
    """What most planners have in common: needs that are the same for the jobs of every VC, and no solver."""

    drifts = False
    declared: frozenset[Need] = frozenset()
    """What the policy declares; set when the planner is built."""

    def needs_in(self, vc: str) -> frozenset[Need]:
        return self.declared

    def problem(self, view: View, memory: Memory, at: At) -> SolverProblem:
        raise NotImplementedError("a planner that asks has a problem")


DEFAULT_VC = "default"

PRIORITIES = {"oppo": -1, "test": 10, "prod": 100}
"""Priorities by name. -1 is opportunistic work, 0 to 1000 is guaranteed."""


Extras = tuple[tuple[str, int], ...]
"""Amounts of countable resources beside GPUs, CPUs and memory, by name."""


class Role(msgspec.Struct, frozen=True, cache_hash=True):
    """`count` equal tasks, each indivisible and on one node."""

    count: int = 1
    gpus: int = 0
    """GPUs of one task."""
    gpu_milli: int = 1000
    """Thousandths of each of these GPUs; below 1000 the GPU is shared."""
    gpu_mem_gib: float = 0.0
    cpu: float = 0.0
    memory_gib: float = 0.0
    name: str = "task"
    is_apart: bool = False
    """True if no two of its tasks may share a GPU with each other."""
    tags: tuple[str, ...] = ()
    """What its nodes must have, as expressions (`core/tags.py`)."""
    extras: Extras = ()
    """What one task needs of other countable resources."""


class Shape(msgspec.Struct, frozen=True, cache_hash=True):
    """One form in which a job accepts to run: its roles and the acceptable GPU types (empty: any)."""

    roles: tuple[Role, ...]
    gpu_types: tuple[str, ...] = ()
    spans_types: bool = False
    """True if the gang may use several GPU types at once."""
    gpus: int = 0
    """GPUs of all tasks together (derived)."""
    gpu_milli: int = 1000
    """The smallest part of a GPU that a task requests (derived)."""
    is_plain: bool = False
    """True if it requests single whole GPUs and nothing else, so that only numbers of free GPUs matter (derived)."""

    def __post_init__(self) -> None:
        gpus = sum(role.count * role.gpus for role in self.roles)
        role = self.roles[0]
        plain = len(self.roles) == 1 and role == Role(count=role.count, gpus=1, name=role.name)
        milli = min((role.gpu_milli for role in self.roles if role.gpus), default=1000)
        msgspec.structs.force_setattr(self, "gpus", gpus)
        msgspec.structs.force_setattr(self, "gpu_milli", milli)
        msgspec.structs.force_setattr(self, "is_plain", plain)


class GroupRef(msgspec.Struct, frozen=True, array_like=True):
    """The group of a job (`core/group.py`), and the job's role there: a task of a role, a trial."""

    id: str
    role: str = ""
    index: int = 0


class OpenSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that the owner of a job said."""

    id: str
    shapes: tuple[Shape, ...]
    """In order of preference; usually one."""
    vc: str = DEFAULT_VC
    user: str = ""
    model: str = ""
    priority: int = 0
    min_gpus: int | None = None
    max_gpus: int | None = None
    """An elastic job runs with `min_gpus` to `max_gpus` GPUs: more or fewer tasks of its elastic role."""
    preemptible: bool = True
    """True if it may be preempted while it runs. A job that may not never runs on borrowed cells."""
    expect_s: float | None = None
    """The run time that its owner expects in its first shape, alone and well placed."""
    deadline_s: float | None = None
    """Seconds after submission."""
    steps: int | None = None
    epochs: int | None = None
    group: GroupRef | None = None
    needs: tuple[str, ...] = ()
    """Jobs that must succeed before this one may start."""
    needs_groups: tuple[str, ...] = ()
    """Groups that must succeed before this one may start."""
    pinned: str = ""
    """The pinned cell of its VC that it must run in; empty: it runs outside pinned cells."""
    time_limit_s: float | None = None
    """It ends after it has held its allocation for this long."""
    share: Share | None = None
    """How it wants to share its GPUs; None: no preference."""
    weight: float = 1.0
    """Its weight against other jobs, for policies that divide GPU time between jobs."""
    batch_size: int | None = None
    """Samples of a training step, of all GPUs together."""
    min_batch: int | None = None
    max_batch: int | None = None
    """The range in which a policy may tune that; without both the job keeps its own."""

    @property
    def elastic_role(self) -> int:
        """The role in which the number of tasks changes: the first role of its first shape that has GPUs."""
        return next((number for number, role in enumerate(self.shapes[0].roles) if role.gpus), 0)

    @property
    def gpu_range(self) -> tuple[int, int] | None:
        """The smallest and largest number of GPUs of the elastic role, in whole tasks; None for a job that is not
        elastic.

        A missing bound is the requested number.
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

    @property
    def batch_range(self) -> tuple[int, int] | None:
        """None for a job that keeps its batch size."""
        return None if self.min_batch is None or self.max_batch is None else (self.min_batch, self.max_batch)

    def resized(self, gpus: int) -> Shape:
        """Its first shape with this many GPUs in the elastic role."""
        asked = self.shapes[0]
        roles = list(asked.roles)
        role = roles[self.elastic_role]
        roles[self.elastic_role] = msgspec.structs.replace(role, count=gpus // role.gpus)
        return Shape(tuple(roles), asked.gpu_types, asked.spans_types)


GUARDED = {"expect_s": Need.ORACLE, "deadline_s": Need.DEADLINE, "steps": Need.PROGRESS, "epochs": Need.PROGRESS}
"""Fields that tell, or may tell, how long a job will run, and the need with which a planner may read them."""


class JobSpec(OpenSpec, frozen=True, omit_defaults=True):
    """A job as submitted. The work that it really needs is not here: only the engine knows it. What may tell its length
    cannot be read here but by planners that declare it (`shown_to`); others than planners read `told`."""

    if not TYPE_CHECKING:
        locals().update({name: UndeclaredField(name, need) for name, need in GUARDED.items()})


@functools.cache
def _class_for(needs: frozenset[Need]) -> type[JobSpec]:
    """The class of specs on which what these needs allow is read as any other field."""
    if needs != needs & READABLE:
        return _class_for(needs & READABLE)
    fields = {name: vars(OpenSpec)[name] for name, need in GUARDED.items() if need in needs}
    if not fields:
        return JobSpec
    return cast("type[JobSpec]", types.new_class("JobSpec", (JobSpec,), {}, lambda space: space.update(fields)))


def shown_to(needs: frozenset[Need], spec: JobSpec) -> JobSpec:
    """The spec as a planner with these needs sees it."""
    shown = _class_for(needs)
    return spec if type(spec) is shown else shown(*msgspec.structs.astuple(spec))


READABLE = frozenset(GUARDED.values())


def told(spec: JobSpec) -> JobSpec:
    """All of it, for all readers but planners."""
    return shown_to(READABLE, spec)


# The same of single fields, without a copy of the spec.
deadline_of: Callable[[JobSpec], float | None] = vars(OpenSpec)["deadline_s"].__get__
steps_of: Callable[[JobSpec], int | None] = vars(OpenSpec)["steps"].__get__
epochs_of: Callable[[JobSpec], int | None] = vars(OpenSpec)["epochs"].__get__


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
    """The shape of a trace's job: one task per GPU, with the CPUs and memory of the job divided evenly among them.

    Without GPUs it is one task with CPUs and memory. Parts of several GPUs are parts of different GPUs, except for
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
