"""AFS: GPUs are assigned one by one, each to the winner of a tournament between the jobs (Hwang et al., NSDI'21).

Of two jobs let a be the one that would end first with what it has, b the other. Should b wait with the next GPU until a
has ended? With p the present speed and p' the speed with one more GPU, the sum of both completion times is smaller if b
gets it at once iff

    (p'b - pb) / p'b  >  (p'a - pa) / pa

Lengths matter only for who ends first. A job without GPUs gains all (1 on the left, infinity on the right). So between
two such jobs the one that would end first wins, and every job gets a first share before any job gets a second one, as
long as twice the GPUs do not more than double the speed. The comparison is not transitive: the tournament is a walk in
order of arrival.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from skep.core.view import JobView
from skep.policies.allocate.elastic import Ladder

GRID = 2.0**20
"""Times are compared to about a microsecond; a power of two, so that whole seconds stay exact."""

Home = tuple[str, ...]
"""GPU types whose GPUs are assigned together; usually one."""


class Entrant:
    """A job in the tournament. `rung` is its size so far, -1 for none."""

    __slots__ = ("ends_s", "first_s", "gain", "home", "homes", "job", "ladder", "left_s", "part", "rank", "rung", "seq")

    def __init__(self, job: JobView, ladder: Ladder, left_s: float, homes: tuple[Home, ...]) -> None:
        self.job = job
        self.rank = job.rank
        self.seq = job.seq
        self.ladder = ladder
        self.left_s = left_s
        """Work left."""
        self.homes = homes
        """The homes of `TournamentRoom` in which it could run."""
        self.home: Home = ()
        self.rung = -1
        self.gain, self.part = ladder.gains[0], ladder.parts[0]
        self.ends_s = math.inf
        """The seconds until its end, with what it has."""
        self.first_s = time_s(left_s, ladder.speeds[0])
        """The same with the smallest size it accepts."""

    @property
    def order(self) -> tuple[int, float, int]:
        """The order of first shares."""
        return (self.rank, self.first_s, self.seq)

    @property
    def size(self) -> int:
        return self.ladder.sizes[self.rung] if self.rung >= 0 else 0

    def climb(self) -> None:
        self.rung += 1
        self.gain, self.part = self.ladder.gains[self.rung + 1], self.ladder.parts[self.rung + 1]
        self.ends_s = time_s(self.left_s, self.ladder.speeds[self.rung])


def time_s(work_s: float, speed: Fraction) -> float:
    """The time for this much work, corrected for rounding, so that equal times compare as equal."""
    return (
        round(work_s * speed.denominator / speed.numerator * GRID) / GRID if speed and work_s < math.inf else math.inf
    )


class TournamentRoom:
    """Thousandths of GPUs to assign: in each home, and in all."""

    def __init__(self, left: dict[Home, int], total: float = math.inf) -> None:
        self.left = left
        self.total = total

    def feed(self, entrant: Entrant) -> bool:
        """Give an entrant its next step, if it fits."""
        milli, rung = entrant.ladder.milli, entrant.rung
        need = milli[rung + 1] - (milli[rung] if rung >= 0 else 0)
        if rung < 0:
            entrant.home = max(entrant.homes, key=self.left.__getitem__)
        if need > self.left[entrant.home] or need > self.total:
            return False
        self.left[entrant.home] -= need
        self.total -= need
        entrant.climb()
        return True


def share_out(queues: Iterable[Iterator[Entrant]], room: TournamentRoom, *, is_strict: bool = False) -> list[Entrant]:
    """The jobs that get something, in the order of their first share.

    The entrants of a queue are in order and have equal requests: if one gets nothing, none after it does. `is_strict`:
    then no pending job of another queue gets anything either.
    """
    fed = first_shares(queues, room, is_strict=is_strict)
    by_home: dict[Home, list[Entrant]] = {}
    for entrant in sorted(fed, key=lambda entrant: entrant.seq):
        if entrant.part:
            by_home.setdefault(entrant.home, []).append(entrant)
    for entrants in by_home.values():
        hand_out(entrants, room)
    return fed


def first_shares(queues: Iterable[Iterator[Entrant]], room: TournamentRoom, *, is_strict: bool) -> list[Entrant]:
    heads = [(entrant.order, entrant, queue) for queue in queues for entrant in [next(queue, None)] if entrant]
    heapq.heapify(heads)
    fed: list[Entrant] = []
    eager: list[Entrant] = []
    """Jobs for which the next step more than doubles the speed: they go before jobs that have nothing."""
    is_closed = False
    while heads:
        _, head, queue = heads[0]
        first = champion([entrant for entrant in eager if entrant.rank <= head.rank])
        if first is not None:
            if not room.feed(first) or first.gain <= 1:
                eager.remove(first)
            continue
        if not (is_closed and head.job.allocation is None) and room.feed(head):
            fed.append(head)
            if head.gain > 1:
                eager.append(head)
                eager.sort(key=lambda entrant: entrant.seq)
            after = next(queue, None)
            if after is not None:
                heapq.heapreplace(heads, (after.order, after, queue))
                continue
        else:
            is_closed = is_closed or (is_strict and head.job.allocation is None)
        heapq.heappop(heads)
    return fed


def champion(entrants: list[Entrant]) -> Entrant | None:
    """For jobs that have something, in order of arrival."""
    best = None
    for entrant in entrants:
        best = entrant if best is None else winner(best, entrant)
    return best


def winner(earlier: Entrant, later: Entrant) -> Entrant:
    """The winner of the next GPU, of two jobs that have something."""
    if later.ends_s < earlier.ends_s:
        return earlier if earlier.part > later.gain else later
    return later if later.part > earlier.gain else earlier


def hand_out(entrants: list[Entrant], room: TournamentRoom) -> None:
    """Assign the rest of one home, step by step to the champion; a job that can get no more leaves the list.

    Only the winner has changed since the previous walk, so the next one begins there: `champions` has the position of
    the best up to each place. The comparison is `winner`, inlined.
    """
    champions = [0] * len(entrants)
    begin = 0
    while entrants and room.left[entrants[0].home] > 0:
        at = champions[begin - 1] if begin else 0
        best = entrants[at]
        for number in range(begin, len(entrants)):
            other = entrants[number]
            if other.ends_s < best.ends_s:
                if not best.part > other.gain:
                    best, at = other, number
            elif other.part > best.gain:
                best, at = other, number
            champions[number] = at
        if not room.feed(best) or not best.part:
            del entrants[at]
        begin = at
