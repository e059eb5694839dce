"""What filling a cluster leaves behind (`skep fill`): one result for each placement and seed."""

from __future__ import annotations

import msgspec


class Point(msgspec.Struct, frozen=True):
    """The cluster when so much had been asked for. All are percentages of its GPUs."""

    demand_percent: float
    allocated_percent: float
    fragment_percent: float
    """Idle, and of no use to typical tasks."""


class Filled(msgspec.Struct, frozen=True):
    """One placement with one seed."""

    place: str
    seed: int
    demand: float
    gpus: int
    """Of the cluster."""
    pods: int
    """That arrived, the dropped ones included."""
    dropped: int
    allocated_percent: float
    """Thousandths of GPUs allocated, in percent of the cluster's."""
    unallocated_gpus: float
    fragment_percent: float | None
    """The part of the unallocated GPUs that is fragments; none where nothing is unallocated."""
    curve: list[Point]
