"""One virtual cluster: its planner, its view, and how its explanations are worded for the whole cluster."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec

from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.refusal import Refusal
from skep.core.standstill import NOWHERE
from skep.core.view import JobView
from skep.policies.explain import gpus_of, standstill_of
from skep.policies.pipeline import Pipeline
from skep.policies.shared.clusters import NumberCluster, VcBooks
from skep.policies.shared.view import VcView, key_of

CELLS, NUMBERS, PRIVATE = "cells", "numbers", "private"


class Vc:
    """A VC without its pinned cells, or one pinned cell, in which only jobs that name it are planned."""

    def __init__(self, number: int, name: str, key: str, books: VcBooks, view: VcView, planner: Planner) -> None:
        self.number = number
        """The position in which VCs are called."""
        self.name = name
        self.key = key
        self.books = books
        self.view = view
        self.planner = planner
        self.wake_s = math.inf
        self.borrowers: dict[int, JobView] = {}
        """Its borrowers that could become owners in place, by seq."""
        self.pipeline = planner if isinstance(planner, Pipeline) else None
        """None for a planner that does not support lending."""
        self.borrows = self.pipeline is not None and self.pipeline.borrows

    def pass_on(self, made: Plan, plan: Plan) -> None:
        """Memory of its planner is stored under the VC's name, because others may use the same slots."""
        for job, scope in made.joins:
            plan.wait(job, f"{self.key}/{scope}")
        for scope, cause in made.refusals:
            plan.refuse(f"{self.key}/{scope}", cause)
        for group in made.ends:
            plan.end(group)
        for change in made.memory:
            plan.keep(change)
        for job, until_s in made.leases:
            plan.extend(job, until_s)
        for setting in made.settings:
            plan.set(setting)


class Vcs(dict[str, Vc]):
    """The VCs of the layout by name, and each of their pinned cells as a VC of its own."""

    def __init__(self, sharing: str) -> None:
        super().__init__()
        self.sharing = sharing

    def of(self, job: JobView) -> Vc:
        spec = job.spec
        return self[self.key(job) if spec.pinned else spec.vc]

    def key(self, job: JobView) -> str:
        spec = job.spec
        return key_of(spec.vc, spec.pinned) if spec.pinned and self.sharing != NUMBERS else spec.vc

    def only_borrows(self, job: JobView) -> bool:
        """Opportunistic work never owns cells. Without lending it is only the last in its VC."""
        spec = job.spec
        return spec.priority < 0 and self.sharing == CELLS and not spec.pinned

    def may_borrow(self, job: JobView) -> bool:
        return job.spec.preemptible and not job.spec.pinned and self.of(job).borrows


class Asks(Protocol):
    asked: str


class Asking:
    """Notes which VC's planner is running, so that a failure names the VC."""

    __slots__ = ("asks", "name")

    def __init__(self, asks: Asks, name: str) -> None:
        self.asks = asks
        self.name = name

    def __enter__(self) -> None:
        self.asks.asked = self.name

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.asks.asked = ""


def in_vc(refusal: Refusal, vc: Vc) -> Refusal:
    """Its planner regards the cells of the VC as the whole cluster, so the sentence begins with the VC."""
    where = f"in pinned cell {vc.books.pinned} of VC {vc.name}" if vc.books.pinned else f"in VC {vc.name}"
    return msgspec.structs.replace(refusal, reason=f"{where}: {refusal.reason}")


def why_never(vc: Vc, job: JobView, reason: str) -> str:
    """In terms of the VC, whose planner regards its own cells as the whole cluster."""
    shape = job.shapes[0]
    kinds = f" of type {' or '.join(shape.gpu_types)}" if shape.gpu_types else ""
    cluster = vc.view.cluster
    there = sum(pool.total for pool in cluster.pools_for(shape.gpu_types))
    if isinstance(cluster, NumberCluster):
        there = min(there, cluster.quota)
    where = f"pinned cell {vc.books.pinned} of VC {vc.name}" if vc.books.pinned else f"VC {vc.name}"
    if shape.gpus > there and shape.gpu_types != NOWHERE:
        still = standstill_of(job, shape)
        return f"asks for {gpus_of(shape.gpus)}{kinds}, {where} has {there}" + (f"; {still}" if still else "")
    return f"{where}: {reason}"
