"""A policy for tests: jobs join others on their GPUs, in every mode and with every change of terms.

A job that finds no free GPUs joins a running one of the same shape. From time to time groups change their mode and
members are suspended for a while; one that is left alone has its GPUs to itself again. What happens depends only on the
job and the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import ParamSpec

from skep.core.chance import draw
from skep.core.cluster import WHOLE, Allocation
from skep.core.errors import InvariantBroken
from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.model import Declares
from skep.core.plan import Plan
from skep.core.refusal import Cause, Refusal
from skep.core.view import JobView, Trigger, View
from skep.policies.place.simple import Consolidate

SHARERS = f"{__file__}:Sharers"
"""The name of the policy."""

PENDING, RUNNING, SUSPENDED = JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED
MODES = ("slice", "pack", "lend", "lane", "token")


class Sharers(Declares):
    needs = frozenset({"suspend", "share"})

    def __init__(self, every_s: float = 40.0, modes: str = "+".join(MODES)) -> None:
        self.every_s = every_s
        self.modes = modes.split("+")
        self.place = Consolidate()

    def attach(self, view: View, memory: Memory) -> None:
        self.blank = view.blank()
        self.trial = self.blank.new_plan()

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        self.turn = int(view.now_s // self.every_s)
        placed = [job for job in view.placed_jobs() if not job.is_ending and job.state in (RUNNING, SUSPENDED)]
        for job in placed:
            if job.state is SUSPENDED:
                attempt(plan.resume, job)
        for group in groups_of(placed):
            self.change(plan, group)
        for job in view.jobs.values():
            if job.state is PENDING and job.is_ready:
                self.start(view, plan, job)
        if view.placed_jobs():
            plan.wake(view.now_s + max(self.every_s, view.now_s / 4))  # less and less often: guests may be very slow
        return plan

    def start(self, view: View, plan: Plan, job: JobView) -> None:
        shape = job.spec.shapes[0]
        if self.place.find(self.blank.cluster, self.trial, job, shape, 0.0) is None:
            plan.reject(job, "the cluster is too small for it")
            return
        found = self.place.find(view.cluster, plan, job, shape, view.now_s)
        if found is not None:
            plan.start(job, found)
        elif shape.gpus and shape.gpu_milli == WHOLE:
            for host in list(view.placed_jobs()):
                if host.spec.shapes[0] == shape and host.state is RUNNING and self.join(view, plan, host, job):
                    return

    def join(self, view: View, plan: Plan, host: JobView, job: JobView) -> bool:
        """Both get the terms of a mode, and so do the jobs that are already there."""
        assert host.allocation is not None
        mark = plan.mark()
        running = [each for each in view.jobs.values() if each.state is RUNNING and each is not host]
        there = [each for each in running if each.allocation and same_gpus(each.allocation, host.allocation)]
        mode = self.modes[draw(host.seq, len(there)) % len(self.modes)]
        changes = [(each, self.terms(each, mode, rank)) for rank, each in enumerate([host, *there])]
        try:
            with plan.bundle():
                plan.reshare_all(changes)
                plan.start(job, self.terms(job, mode, len(changes), host.allocation))
        except InvariantBroken:  # no memory, no CPUs, or others are there that keep their terms
            plan.rollback(mark)
            return False
        return True

    def terms(self, job: JobView, mode: str, rank: int, seats: Allocation | None = None) -> Allocation:
        seats = seats or job.allocation
        assert seats is not None
        milli = 250 if mode == "token" else WHOLE if mode == "lend" and not rank else 0
        first = seats.slices[0]
        group = f"{first.node}-{first.gpus}-{rank % 2 if mode == 'lane' else 0}"
        weight, quantum_ms = 1 + draw(job.seq) % 3, (0, 500)[job.seq % 2]
        if mode != "slice":
            weight, quantum_ms = 1, 0
        return seats.on_terms(mode=mode, milli=milli, limit=WHOLE, group=group, weight=weight, quantum_ms=quantum_ms)

    def change(self, plan: Plan, group: list[JobView]) -> None:
        """A job that is alone has its GPUs to itself; of others some are suspended, or all get another mode."""
        what = draw(group[0].seq, self.turn) % 4
        if len(group) == 1:
            if group[0].allocation is not None and group[0].allocation.terms.mode:
                alone = group[0].allocation.on_terms(milli=group[0].spec.shapes[0].gpu_milli)
                attempt(plan.reshare, group[0], alone)
        elif what == 0:
            plan.suspend(group[draw(group[0].seq) % len(group)])
        elif what == 1:
            mode = self.modes[self.turn % len(self.modes)]
            attempt(plan.reshare_all, [(job, self.terms(job, mode, rank)) for rank, job in enumerate(group)])

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        return Refusal("no-room", Cause.CAPACITY, "no GPU is free, and no job of its shape can share", "a job ending")


Given = ParamSpec("Given")


def attempt(step: Callable[Given, None], *given: Given.args, **named: Given.kwargs) -> None:
    """If it is not possible now, nothing is done."""
    with contextlib.suppress(InvariantBroken):
        step(*given, **named)


def groups_of(jobs: list[JobView]) -> list[list[JobView]]:
    """The jobs on the same GPUs."""
    found: dict[tuple[tuple[int, int], ...], list[JobView]] = {}
    for job in jobs:
        if job.allocation is not None and job.state is RUNNING and job.gpu_count:
            found.setdefault(gpus_of(job.allocation), []).append(job)
    return list(found.values())


def gpus_of(allocation: Allocation) -> tuple[tuple[int, int], ...]:
    return tuple((piece.node, piece.gpus) for piece in allocation.slices if piece.gpus)


def same_gpus(mine: Allocation, other: Allocation) -> bool:
    return gpus_of(mine) == gpus_of(other)
