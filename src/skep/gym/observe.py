"""What an agent sees and may do: the jobs at the head of the queue, and what is free. A policy that was trained uses it
too: it sees in every world what it saw in training.

An agent knows what a scheduler knows: requests and waiting times, never how long a job will run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from skep.core.allocation import Allocation
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.place import Relaxed
from skep.policies.place.simple import Consolidate

SLOTS = 8
"""Pending jobs that can be chosen, the oldest first."""
OF_SLOT = 4
"""Numbers of each: is there, part of the GPUs, waiting time, fits now."""
OF_CLUSTER = 3
"""Free GPUs, GPUs of running jobs, pending jobs."""
WAIT_S, QUEUE = 86400.0, 100.0
"""What counts as long: a day, and a hundred jobs."""


def on_log_scale(value: float, much: float) -> float:
    """From 0 to 1."""
    return min(math.log1p(value) / math.log1p(much), 1.0)


class Choice:
    """The jobs that can be chosen now, with the places that they would get."""

    def __init__(self, view: View, pending: Mapping[int, JobView], slots: int = SLOTS) -> None:
        self.view = view
        self.jobs: list[JobView] = []
        for job in pending.values():
            if len(self.jobs) == slots:
                break
            self.jobs.append(job)
        self.slots = slots
        self.waiting = len(pending)
        self.plan = view.new_plan()
        self._found: dict[Shape, Allocation | None] = {}
        self.fits = [self.place(job) is not None for job in self.jobs]

    def place(self, job: JobView) -> Allocation | None:
        shape = job.shapes[0]
        if shape not in self._found:
            self._found[shape] = find_place(self.view, self.plan, job)
        return self._found[shape]

    def mask(self) -> list[bool]:
        """For each action, whether it is allowed: 0 waits, 1 and more start the job of that slot."""
        return [True, *self.fits, *[False] * (self.slots - len(self.jobs))]


PLACE = Relaxed(Consolidate(), (0.0,))


def find_place(view: View, plan: Plan, job: JobView) -> Allocation | None:
    """On as few nodes as possible."""
    return PLACE.find(view.cluster, plan, job, job.shapes[0], view.now_s)


def observation(choice: Choice, gpu_total: int, free: float) -> list[float]:
    """Numbers from 0 to 1: of the cluster, then of each slot."""
    now_s = choice.view.now_s
    found = [free / gpu_total, 1.0 - free / gpu_total, on_log_scale(choice.waiting, QUEUE)]
    for job, fits in zip(choice.jobs, choice.fits, strict=True):
        wait = on_log_scale(now_s - job.submit_s, WAIT_S)
        found += (1.0, min(job.gpus / gpu_total, 1.0), wait, 1.0 if fits else 0.0)
    found += [0.0] * (OF_SLOT * (choice.slots - len(choice.jobs)))
    return found


def scores(seen: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Of each slot that has a job: a weighted sum of its numbers."""
    slots = range(OF_CLUSTER, len(seen), OF_SLOT)
    return [sum(w * x for w, x in zip(weights, seen[at + 1 : at + OF_SLOT], strict=True)) for at in slots if seen[at]]
