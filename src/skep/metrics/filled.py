"""The results of filling a cluster (`skep fill`): one for each placement and seed."""

from __future__ import annotations

import msgspec


class Point(msgspec.Struct, frozen=True):
    """The cluster at one level of demand. All are percentages of its GPUs."""

    demand_percent: float
    allocated_percent: float
    fragment_percent: float
    """Idle, and not usable by typical tasks."""


class Filled(msgspec.Struct, frozen=True):
    """One placement with one seed."""

    place: str
    seed: int
    demand: float
    gpus: int
    """Of the cluster."""
    pods: int
    """The number of pods that arrived, including dropped ones."""
    dropped: int
    allocated_percent: float
    """Thousandths of GPUs allocated, in percent of the cluster's."""
    unallocated_gpus: float
    fragment_percent: float | None
    """The part of the unallocated GPUs that is fragments; None if everything is allocated."""
    curve: list[Point]
