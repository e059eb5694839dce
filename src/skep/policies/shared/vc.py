"""One virtual cluster: its planner, what that planner sees, and how its words are put for the whole."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec

from skep.core.ports import Planner
from skep.core.refusal import Refusal
from skep.core.view import JobView
from skep.policies.explain import gpus_of
from skep.policies.pipeline import Pipeline
from skep.policies.shared.clusters import NumberCluster, VcBooks
from skep.policies.shared.view import VcView


class Vc:
    """A whole VC but for its pinned cells, or one of these: only jobs that ask for it are planned there."""

    def __init__(self, number: int, name: str, key: str, books: VcBooks, view: VcView, planner: Planner) -> None:
        self.number = number
        """VCs are asked in turn."""
        self.name = name
        self.key = key
        self.books = books
        self.view = view
        self.planner = planner
        self.wake_s = math.inf
        self.borrowers: dict[int, JobView] = {}
        """Its jobs on lent cells that it could own there, by seq."""
        self.pipeline = planner if isinstance(planner, Pipeline) else None
        """None for a planner that knows nothing of lending."""
        self.borrows = self.pipeline is not None and self.pipeline.borrows


class Asks(Protocol):
    asked: str


class Asking:
    """Notes whose planner is asked, so that its failure can be told from that of the others."""

    __slots__ = ("name", "shared")

    def __init__(self, shared: Asks, name: str) -> None:
        self.shared = shared
        self.name = name

    def __enter__(self) -> None:
        self.shared.asked = self.name

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.shared.asked = ""


def in_cell(refusal: Refusal, pinned: str) -> Refusal:
    """What is said of one who waits for a pinned cell names it."""
    return msgspec.structs.replace(refusal, reason=f"in pinned cell {pinned}: {refusal.reason}") if pinned else refusal


def why_never(vc: Vc, job: JobView, reason: str) -> str:
    """In terms of the VC, whose planner takes its own cells for all there is."""
    shape = job.spec.shapes[0]
    kinds = f" of type {' or '.join(shape.gpu_types)}" if shape.gpu_types else ""
    cluster = vc.view.cluster
    there = sum(pool.total for pool in cluster.pools_for(shape.gpu_types))
    if isinstance(cluster, NumberCluster):
        there = min(there, cluster.quota)
    where = f"pinned cell {vc.books.pinned} of VC {vc.name}" if vc.books.pinned else f"VC {vc.name}"
    if shape.gpus > there:
        return f"asks for {gpus_of(shape.gpus)}{kinds}, {where} has {there}"
    return f"{where}: {reason}"
