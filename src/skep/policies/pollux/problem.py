"""The question that Pollux asks, and its answer: values that a process beside the scheduler can take."""

from __future__ import annotations

import msgspec

from skep.core.knowledge import StepFigures


class ShownTraining(msgspec.Struct, frozen=True, array_like=True):
    """What a job has shown of its training."""

    gpus: int
    """The most that it has run on."""
    steps: tuple[StepFigures, ...] = ()
    sqr: float = 0.0
    var: float = 0.0
    """Gradient noise, as last measured."""
    samples: tuple[int, int] = (1, 1)
    """The fewest and the most that a GPU takes at once."""


class SoughtJob(msgspec.Struct, frozen=True, array_like=True):
    """A job whose place is sought. It runs in tasks of `task_gpus` GPUs, from `least` to `most` of them."""

    seq: int
    task_gpus: int
    least: int
    most: int
    kinds: tuple[int, ...]
    """The numbers of the GPU types on which it may run."""
    now: dict[int, int]
    """Its tasks on each node, by place in the problem; empty: it does not run."""
    kept: float
    """The part of its speed that counts if it is changed: a restart costs time."""
    shown: ShownTraining
    batches: tuple[int, int] | None = None
    """The smallest and the largest batch size; None: it keeps its own."""


class SoughtNode(msgspec.Struct, frozen=True, array_like=True):
    index: int
    gpus: int
    """That the jobs of the problem may use."""
    kind: int
    """The number of its GPU type."""
    has_spread: bool = False
    """True if a job of several nodes sits there that is not part of the problem."""


class GoodputProblem(msgspec.Struct, frozen=True):
    jobs: list[SoughtJob]
    nodes: list[SoughtNode]
    power: float
    """Of the mean of all speed-ups that is sought; 0: their sum."""
    seed: int
    population: int
    generations: int


class GivenPlace(msgspec.Struct, frozen=True, array_like=True):
    tasks: dict[int, int]
    """By index of the node; empty: it waits."""
    batch_size: int = 0
    """0: its own."""


class GoodputAnswer(msgspec.Struct, frozen=True):
    jobs: dict[int, GivenPlace]
    """By seq."""
    score: float = 0.0
    """What was sought, in the division found;"""
    start: float = 0.0
    """and in the present one."""
