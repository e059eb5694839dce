"""Weights of users and virtual clusters, for policies that share between them. The weight of a job is in its spec."""

from __future__ import annotations

import math

import msgspec

from skep.core.errors import InputError

WEIGHT_MAX = 1e6


class Weights(msgspec.Struct, frozen=True):
    """Who is not named has weight 1."""

    users: dict[str, float] = {}
    vcs: dict[str, float] = {}

    def of_user(self, user: str) -> float:
        return self.users.get(user, 1.0)

    def of_vc(self, vc: str) -> float:
        return self.vcs.get(vc, 1.0)


EQUAL = Weights()


def read_weights(text: str) -> Weights:
    """`users.ann=2,vcs.prod=3`."""
    found: dict[str, dict[str, float]] = {"users": {}, "vcs": {}}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        kind, _, who = name.partition(".")
        if kind not in found or not who:
            raise InputError(f"weights: '{part[:80]}' is not users.NAME=W or vcs.NAME=W", hint="users.ann=2,vcs.prod=3")
        found[kind][who] = read_weight(f"weights: {name[:80]}", number)
    return Weights(**found)


def read_weight(where: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= WEIGHT_MAX:
        raise InputError(f"{where} is {text[:80]!r}, expected a number above 0, at most {WEIGHT_MAX:,.0f}")
    return weight
