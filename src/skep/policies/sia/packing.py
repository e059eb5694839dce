"""Places for the configurations of Sia, packed from two ends: jobs of whole nodes from the first node on, jobs within a
node from the last one on, the largest first and each where it leaves least.

A job whose configuration is unchanged keeps its place, unless a larger one finds none: then the nodes on which the
fewest GPUs of smaller jobs must move are cleared of these, and they are placed again.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from skep.policies.sia.problem import SiaNode

Seats = dict[int, int]
"""Tasks by place of the node in the problem."""


class PackedJob(NamedTuple):
    """A job with its configuration: so many tasks of so many GPUs each on nodes of one kind."""

    number: int
    task_gpus: int
    tasks: int
    least: int
    """If there is no room for so many tasks, half as many, and so on, but not fewer than these."""
    kind: int
    now: Seats
    """Where it is, if its configuration is unchanged."""


class TwoEnds:
    def __init__(self, nodes: Sequence[SiaNode], kinds: Sequence[int]) -> None:
        self.size = [node.size for node in nodes]
        self.free = [node.gpus for node in nodes]
        self.of_kind: dict[int, list[int]] = {}
        for place, kind in enumerate(kinds):
            self.of_kind.setdefault(kind, []).append(place)
        self.seats: dict[int, Seats] = {}
        self.movable: dict[int, dict[int, PackedJob]] = {place: {} for place in range(len(nodes))}
        """Jobs within a node, by number."""

    def pack(self, jobs: Sequence[PackedJob]) -> dict[int, Seats]:
        """Seats by number of the job; those that found none are left out."""
        order = itertools.count()
        queue: list[tuple[int, int, PackedJob]] = []
        for job in jobs:
            if job.now:
                self._sit(job, job.now)
            else:
                heapq.heappush(queue, (-job.tasks * job.task_gpus, next(order), job))
        while queue:
            job = heapq.heappop(queue)[2]
            seats, moved = self._found(job)
            for other in moved:
                self._rise(other)
                heapq.heappush(queue, (-other.tasks * other.task_gpus, next(order), other._replace(now={})))
            if seats:
                self._sit(job, seats)
            elif job.tasks // 2 >= job.least:
                smaller = job._replace(tasks=job.tasks // 2)
                heapq.heappush(queue, (-smaller.tasks * job.task_gpus, next(order), smaller))
        return self.seats

    def _sit(self, job: PackedJob, seats: Seats) -> None:
        self.seats[job.number] = seats
        for place, tasks in seats.items():
            self.free[place] -= tasks * job.task_gpus
            if len(seats) == 1:
                self.movable[place][job.number] = job

    def _rise(self, job: PackedJob) -> None:
        ((place, tasks),) = self.seats.pop(job.number).items()
        self.free[place] += tasks * job.task_gpus
        del self.movable[place][job.number]

    def _found(self, job: PackedJob) -> tuple[Seats, list[PackedJob]]:
        """Seats, and smaller jobs that must leave them."""
        places = self.of_kind[job.kind]
        whole = self.size[places[0]] // job.task_gpus
        if not whole:
            return {}, []
        full, rest = divmod(job.tasks, whole)
        if full + bool(rest) > 1:
            return self._several(job, places, [whole] * full + [rest] * bool(rest))
        gpus = job.tasks * job.task_gpus
        fitting = [place for place in places if self.free[place] >= gpus]
        if fitting:
            return {min(fitting, key=lambda place: (self.free[place], -place)): job.tasks}, []
        clearings = self._clearings(places[::-1], gpus)
        return ({clearings[0][0]: job.tasks}, clearings[0][1]) if clearings else ({}, [])

    def _several(self, job: PackedJob, places: Sequence[int], parts: Sequence[int]) -> tuple[Seats, list[PackedJob]]:
        """One node for each part: those that are emptiest, of these the first."""
        clearings = self._clearings(places, parts[0] * job.task_gpus)[: len(parts)]
        if len(clearings) < len(parts):
            return {}, []
        seats = {place: part for (place, _), part in zip(clearings, parts, strict=True)}
        return seats, [other for _, moved in clearings for other in moved]

    def _clearings(self, places: Sequence[int], gpus: int) -> list[tuple[int, list[PackedJob]]]:
        """Places that can have so many free GPUs with the jobs that must leave, the fewest GPUs of these first."""
        found = [(place, moved) for place in places if (moved := self._clearing(place, gpus)) is not None]
        return sorted(found, key=lambda each: sum(job.tasks * job.task_gpus for job in each[1]))

    def _clearing(self, place: int, gpus: int) -> list[PackedJob] | None:
        """The smallest jobs without which so many GPUs of the node are free; None: it cannot be."""
        free, moved = self.free[place], []
        there = sorted(self.movable[place].values(), key=lambda job: (job.tasks * job.task_gpus, job.number))
        for job in there:
            if free >= gpus:
                break
            if job.tasks * job.task_gpus >= gpus:
                return None
            free += job.tasks * job.task_gpus
            moved.append(job)
        return moved if free >= gpus else None
