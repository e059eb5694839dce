"""The auction of Themis: bundles of GPUs are given out so that the product of the bidders' values is the largest (Nash
welfare), and each winner pays with a part of its bundle.

The part that a winner keeps is what the others get with it, divided by what they would get without it (the partial
allocation mechanism). A bidder's own bid does not change the divisor, so no lie gains anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

EXACT_MAX = 20_000
"""The number of choices up to which all are tried."""
PASSES_MAX = 20
"""The most passes of the local search over all bidders."""


class Parcel(NamedTuple):
    """What a bidder may get: GPUs by home (a GPU type), and its value, above 0."""

    gpus: tuple[int, ...]
    value: float


Bid = Sequence[Parcel]
"""The bundles that a bidder accepts; the first one is empty."""


class Sale(NamedTuple):
    """The bundle of each bidder, by its number in the bid, and the part of it that the bidder keeps."""

    bundles: list[int]
    kept: list[float]


def sell(bids: Sequence[Bid], offer: tuple[int, ...]) -> Sale:
    """Divide the offered GPUs, by home, among the bidders."""
    chosen = best(bids, offer, [0] * len(bids))
    kept = []
    for number in range(len(bids)):
        without = [*bids[:number], *bids[number + 1 :]]
        start = [*chosen[:number], *chosen[number + 1 :]]
        fewer = log_welfare(without, start) - log_welfare(without, best(without, offer, start))
        kept.append(min(math.exp(fewer), 1.0))
    return Sale(chosen, kept)


def log_welfare(bids: Sequence[Bid], chosen: Sequence[int]) -> float:
    return math.fsum(math.log(bid[at].value) for bid, at in zip(bids, chosen, strict=True))


def best(bids: Sequence[Bid], offer: tuple[int, ...], start: list[int]) -> list[int]:
    """The bundles with the largest welfare: by trying all for few bidders, else by local search from `start`."""
    if math.prod(len(bid) for bid in bids) <= EXACT_MAX:
        return try_all(bids, offer)
    return improve(bids, offer, start)


def try_all(bids: Sequence[Bid], offer: tuple[int, ...]) -> list[int]:
    """Of equal choices the one in which earlier bidders have the smaller bundles."""
    most = [max(math.log(bundle.value) for bundle in bid) for bid in bids]
    bound = [math.fsum(most[number:]) for number in range(len(bids) + 1)]
    found, found_welfare = [0] * len(bids), -math.inf
    chosen = list[int]()

    def search(number: int, left: tuple[int, ...], welfare: float) -> None:
        nonlocal found, found_welfare
        if welfare + bound[number] <= found_welfare + 1e-12:
            return
        if number == len(bids):
            found, found_welfare = list(chosen), welfare
            return
        for at, bundle in enumerate(bids[number]):
            if fits(bundle.gpus, left):
                chosen.append(at)
                search(number + 1, less(left, bundle.gpus), welfare + math.log(bundle.value))
                chosen.pop()

    search(0, offer, 0.0)
    return found


def improve(bids: Sequence[Bid], offer: tuple[int, ...], start: list[int]) -> list[int]:
    """Change the bundle of one bidder at a time, and if it needs room empty that of another, while welfare grows."""
    chosen = list(start)
    for _ in range(PASSES_MAX):
        has_grown = False
        for number, bid in enumerate(bids):
            for at in range(len(bid)):
                better = with_bundle(bids, offer, chosen, number, at)
                if better is not None:
                    chosen, has_grown = better, True
        if not has_grown:
            break
    return chosen


def with_bundle(
    bids: Sequence[Bid], offer: tuple[int, ...], chosen: list[int], number: int, at: int
) -> list[int] | None:
    """The choice in which this bidder has this bundle and, if there is no room, another one has none; None if that is
    no gain."""
    gain = math.log(bids[number][at].value / bids[number][chosen[number]].value)
    if gain <= 1e-12:
        return None
    changed = [*chosen[:number], at, *chosen[number + 1 :]]
    left = rest(bids, offer, changed)
    if min(left, default=0) >= 0:
        return changed
    losses = []
    for other, bid in enumerate(bids):
        bundle = bid[chosen[other]]
        has_room = all(free + gpus >= 0 for free, gpus in zip(left, bundle.gpus, strict=True))
        if other != number and chosen[other] and has_room:
            losses.append((math.log(bundle.value / bid[0].value), other))
    if not losses or min(losses)[0] >= gain - 1e-12:
        return None
    changed[min(losses)[1]] = 0
    return changed


def rest(bids: Sequence[Bid], offer: tuple[int, ...], chosen: Sequence[int]) -> tuple[int, ...]:
    """What is left of the offer; below 0: too much was given out."""
    for bid, at in zip(bids, chosen, strict=True):
        offer = less(offer, bid[at].gpus)
    return offer


def fits(gpus: tuple[int, ...], left: tuple[int, ...]) -> bool:
    return all(one <= there for one, there in zip(gpus, left, strict=True))


def less(left: tuple[int, ...], gpus: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(there - one for there, one in zip(left, gpus, strict=True))
