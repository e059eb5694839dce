"""What users are entitled to under the variants of dominant resource fairness.

`even_level` (HUG, NC-DRF): users with correlated demands over several resources progress evenly. `fair_totals` (AMF):
users with work for some of several sites get totals that are as equal as the sites allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skep.policies.allocate.flow import Flow

EPS = 1e-9


class Claim(NamedTuple):
    """Of a user: how much of each resource, relative to the one it needs most, and the part of that one that all its
    jobs together would need."""

    vector: tuple[float, ...]
    total: float
    weight: float = 1.0


def even_level(claims: Sequence[Claim]) -> float:
    """The highest level P such that all users together fit, each with min(P, its total) of its vector: with demands
    without end `1 / max over k of the sum of vector[k]`. Infinite if all users get all that they want."""
    levels = [rise([(claim.weight, claim.total, claim.vector[k]) for claim in claims], 1.0) for k in resources(claims)]
    return min(levels, default=math.inf)


def resources(claims: Sequence[Claim]) -> range:
    return range(len(claims[0].vector)) if claims else range(0)


def rise(users: Sequence[tuple[float, float, float]], there: float, base: Sequence[float] = ()) -> float:
    """The level at which `min(weight * level, total)` of all users, each times its factor and without its base where
    one is given, adds up to what is there. Infinite if it never does."""
    bases = base or [0.0] * len(users)
    bends = sorted(
        {at for (weight, total, _), low in zip(users, bases, strict=True) for at in (total / weight, low / weight)}
    )

    def used(level: float) -> float:
        return math.fsum(
            max(min(weight * level, total) - low, 0.0) * factor
            for (weight, total, factor), low in zip(users, bases, strict=True)
        )

    before = 0.0
    for bend in bends:
        if used(bend) > there + EPS:
            low, high = used(before), used(bend)
            return before + (bend - before) * max(there - low, 0.0) / (high - low)
        before = bend
    return math.inf


# Sites --------------------------------------------------------------------------------------------------------------

Sites = frozenset[int]


class SiteClaim(NamedTuple):
    """Of a user: how much work it has for each set of sites on which that work can be done."""

    work: Mapping[Sites, float]
    weight: float = 1.0

    @property
    def total(self) -> float:
        return math.fsum(self.work.values())

    def outside(self, sites: Sites) -> float:
        """Work that could be done elsewhere than on these."""
        return math.fsum(amount for where, amount in self.work.items() if not where <= sites)


def fair_totals(claims: Sequence[SiteClaim], there: Sequence[float]) -> tuple[list[float], list[list[float]]]:
    """Max-min fair totals of all users (progressive filling with a flow as the test), and how much of each site a user
    gets for that."""
    totals: dict[int, float] = {}
    while len(totals) < len(claims):
        level, tight = _highest(claims, there, totals)
        for number, claim in enumerate(claims):
            is_stuck = claim.weight * level >= claim.total - EPS
            is_bound = tight is not None and min(claim.weight * level, claim.total) > claim.outside(tight) + EPS
            if number not in totals and (tight is None or is_stuck or is_bound):
                totals[number] = min(claim.weight * level, claim.total)
    wanted = [totals[number] for number in range(len(claims))]
    flow = route(claims, there, wanted)
    return wanted, [[flow.given(number, site) for site in range(len(there))] for number in range(len(claims))]


def _highest(
    claims: Sequence[SiteClaim], there: Sequence[float], fixed: Mapping[int, float]
) -> tuple[float, Sites | None]:
    """The highest level that all users without a fixed total can have, and the sites that are then full because of
    them; None: all have what they want."""
    level, tight = math.inf, None
    while True:
        wanted = [fixed.get(at, min(claim.weight * level, claim.total)) for at, claim in enumerate(claims)]
        full = route(claims, there, wanted).full_sites()
        if full is None:
            return level, tight
        taken = math.fsum(max(fixed[at] - claims[at].outside(full), 0.0) for at in fixed)
        free = [claim for at, claim in enumerate(claims) if at not in fixed]
        users = [(claim.weight, claim.total, 1.0) for claim in free]
        lower = rise(users, sum(there[site] for site in full) - taken, [claim.outside(full) for claim in free])
        if lower >= level:  # by rounding alone
            return level, full
        level, tight = lower, full


def route(claims: Sequence[SiteClaim], there: Sequence[float], wanted: Sequence[float]) -> Flow:
    return Flow([(want, dict(claim.work)) for want, claim in zip(wanted, claims, strict=True)], list(there))
