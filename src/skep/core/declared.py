"""What a policy needs, and what happens if it reads something that it has not declared.

A policy decides by what it declares: figures that could tell how long a job will run are not shown to it otherwise.
Reading one raises `NeedNotDeclared`, whatever the policy does with it. What is declared is read directly, so a check
costs nothing.
"""

from __future__ import annotations

import enum

from skep.core.errors import InputError


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
    """The needs of a planner that are the same for the jobs of every VC."""

    declared: frozenset[Need] = frozenset()
    """What the policy declares; set when the planner is built."""

    def needs_in(self, vc: str) -> frozenset[Need]:
        return self.declared
