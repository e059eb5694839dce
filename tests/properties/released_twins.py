"""Naive twins of simulators that others have released, written from their rules. Integer seconds."""

from __future__ import annotations

import math
from collections.abc import Callable

LIMITS = (30, 72)

Picks = dict[int, int] | None
"""How many gpus of which node."""


class Twin:
    def __init__(self, submit: int, work: int, size: int) -> None:
        self.submit, self.work, self.size = submit, work, size
        self.runs = False
        self.start: int | None = None
        self.finish: int | None = None
        self.done = self.preempted = self.executed = self.waited = self.queue = 0

    def place(self, now: int, *, fits: bool) -> None:
        if fits and self.start is None:
            self.start = now
        self.preempted += self.runs and not fits
        self.runs = fits


def any_gpus(free: list[int], size: int, wanted: int) -> Picks:
    picks = {}
    for node, there in enumerate(free):
        picks[node] = min(there, wanted)
        wanted -= picks[node]
    return None if wanted else picks


def first_node(free: list[int], size: int, wanted: int, *, fullest: bool = False) -> Picks:
    """What is larger than a node gets idle ones, and one for the rest."""
    idle = [node for node, there in enumerate(free) if there == size][: wanted // size if wanted > size else 0]
    rest = wanted - len(idle) * size
    roomy = [node for node, there in enumerate(free) if there >= rest and node not in idle]
    if rest and not roomy:
        return None
    return dict.fromkeys(idle, size) | ({min(roomy, key=lambda node: fullest * free[node]): rest} if rest else {})


def fullest_node(free: list[int], size: int, wanted: int) -> Picks:
    return first_node(free, size, wanted, fullest=True)


def in_turn(jobs: list[Twin], free: list[int], size: int, fit: Callable[..., Picks], *, skip: bool, sjf: bool) -> None:
    """Nobody is preempted. At one instant: completions, arrivals, then the waiting ones in order."""
    coming = [one for one in jobs if fit(free, size, one.size)]
    waiting: list[Twin] = []
    held: list[tuple[Twin, dict[int, int]]] = []
    while coming or held:
        now = min([one.submit for one in coming] + [one.start + one.work for one, _ in held])  # type: ignore[operator]
        for one, picks in list(held):
            if one.start + one.work == now:  # type: ignore[operator]
                one.finish = now
                held.remove((one, picks))
                free[:] = [there + picks.get(node, 0) for node, there in enumerate(free)]
        waiting += [one for one in coming if one.submit == now]
        coming = [one for one in coming if one.submit > now]
        for one in sorted(waiting, key=lambda one: one.work * sjf):
            found = fit(free, size, one.size)
            if found is not None:
                one.start = now
                waiting.remove(one)
                held.append((one, found))
                free[:] = [there - found.get(node, 0) for node, there in enumerate(free)]
            elif not skip:
                break


def all_anew(jobs: list[Twin], gpus: int, queues: list[list[Twin]], look: Callable[..., float]) -> None:
    """At each event (`look` names the next of its own) all are placed again, in the order of lists that live on."""
    coming = list(jobs)
    now, next_look = 0, math.inf
    while coming or any(one.runs for one in flat(queues)):
        running = [one for one in flat(queues) if one.runs]
        at = min([one.submit for one in coming] + [now + one.work - one.done for one in running] + [next_look])
        passed, now = int(at) - now, int(at)
        for one in running:
            one.done += passed
            if one.done == one.work:
                one.runs, one.finish = False, now
        queues[:] = [[one for one in queue if one.finish is None] for queue in queues]
        queues[0] += [one for one in coming if one.submit == now and one.size <= gpus]
        coming = [one for one in coming if one.submit > now]
        look(queues, passed)
        left = gpus
        for one in flat(queues):
            fits = one.size <= left
            left -= one.size * fits
            one.place(now, fits=fits)
        next_look = now + look(queues, None)


def flat(queues: list[list[Twin]]) -> list[Twin]:
    return [one for queue in queues for one in queue]


def by_key(key: Callable[[Twin], int], queues: list[list[Twin]], passed: int | None) -> float:
    queues[0].sort(key=key)
    return math.inf


def by_queue(jobs: list[Twin], promote: int, by_size: bool, queues: list[list[Twin]], passed: int | None) -> float:
    """Before placing (`passed` since the last event): sink and rise. After it: pending ones go behind running ones."""
    if passed is None:
        for queue in queues:
            queue.sort(key=lambda one: not one.runs)
        return min((until(one, promote, by_size) for one in flat(queues)), default=math.inf)
    there = set(flat(queues))
    for one in [one for one in jobs if one in there]:
        level = one.queue
        if one.runs:
            one.executed += passed
            sinks = level < len(LIMITS) and one.executed * (one.size if by_size else 1) >= LIMITS[level]
            one.queue += sinks
        elif one.executed:
            one.waited += passed
            if promote and level and one.waited >= promote * one.executed:
                one.queue = one.executed = one.waited = 0
        if one.queue != level:
            queues[level].remove(one)
            queues[one.queue].append(one)
    return 0.0


def until(one: Twin, promote: int, by_size: bool) -> float:
    if one.runs:
        return (LIMITS[one.queue] - one.executed) // (one.size if by_size else 1) if one.queue < 2 else math.inf
    left = promote * one.executed - one.waited
    return left if one.queue and left > 0 else math.inf


def in_rounds(jobs: list[Twin], gpus: int, key: Callable[[Twin], int], round_s: int) -> None:
    """Jobs of one gpu each: at each boundary the first in order run, and whoever ends does so at a boundary."""
    now = 0
    while waiting := [one for one in jobs if one.finish is None]:
        for one in waiting:
            one.done += round_s * one.runs
            if one.runs and one.done >= one.work:
                one.runs, one.finish = False, now
        there = [one for one in waiting if one.finish is None and one.submit <= now]
        for number, one in enumerate(sorted(there, key=key)):
            one.place(now, fits=number < gpus)
        now += round_s
