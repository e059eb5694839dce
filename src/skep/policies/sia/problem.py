"""The question that Sia asks: values that a process beside the scheduler can take. The answer is that of Pollux."""

from __future__ import annotations

import msgspec

from skep.policies.pollux.problem import ShownTraining


class ShownByType(msgspec.Struct, frozen=True, array_like=True):
    """What a job has shown of its training on each GPU type."""

    types: dict[str, ShownTraining]

    @property
    def gpus(self) -> int:
        """The most that it has run on."""
        return max((each.gpus for each in self.types.values()), default=0)


class SiaJob(msgspec.Struct, frozen=True, array_like=True):
    """A job that is to get a configuration. It runs in tasks of `task_gpus` GPUs, from `least` to `most` of them."""

    seq: int
    task_gpus: int
    least: int
    most: int
    rates: dict[str, float]
    """The GPU types on which it may run, with its speed there as it was requested, where nothing else is known."""
    now: dict[int, int]
    """Its tasks on each node, by place in the problem; empty: it does not run."""
    kept: float
    """The part of its speed that counts if it is changed: a restart costs time."""
    shown: ShownByType
    batches: tuple[int, int] | None = None
    """The smallest and the largest batch size; None: it keeps its own."""


class SiaNode(msgspec.Struct, frozen=True, array_like=True):
    index: int
    gpu_type: str
    size: int
    """All its GPUs;"""
    gpus: int
    """and those that the jobs of the problem may use."""


class SiaProblem(msgspec.Struct, frozen=True):
    jobs: list[SiaJob]
    nodes: list[SiaNode]
    power: float
    waiting: float
    """What a job costs that gets nothing."""
