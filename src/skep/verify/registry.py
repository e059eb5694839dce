"""All checks, and those that a user names."""

from __future__ import annotations

import functools
import importlib

from skep.core.errors import InputError, did_you_mean
from skep.verify.check import Check

FAMILIES = (
    "lines",
    "shortest",
    "service",
    "gittins",
    "shares",
    "placement",
    "ranking",
    "cells",
    "elastic",
    "mixed",
    "time_shares",
    "neighbours",
    "sharing",
    "lending",
    "parts",
    "profiling",
    "tiers",
    "switching",
)
"""The modules that hold checks."""


@functools.cache
def checks() -> dict[str, Check]:
    found: dict[str, Check] = {}
    for family in FAMILIES:
        for check in importlib.import_module(f"skep.verify.{family}").CHECKS:
            found[check.name] = check
    return found


def select(names: tuple[str, ...]) -> list[Check]:
    """The checks of these names, or of the policies and placements of these names; all if none is named."""
    known = checks()
    if not names:
        return list(known.values())
    chosen: dict[str, Check] = {}
    for name in names:
        found = [check for check in known.values() if name in (check.name, check.policy)]
        if not found:
            raise not_known(name, known)
        chosen.update((check.name, check) for check in found)
    return list(chosen.values())


def not_known(name: str, known: dict[str, Check]) -> InputError:
    # Policies first: of two equally near names, the shorter was meant.
    near = [*dict.fromkeys(check.policy for check in known.values()), *known]
    hint = did_you_mean(name, dict.fromkeys(near), most=3) or "`skep verify --list` names all checks"
    return InputError(f"there is no check '{name}', nor a policy of that name that has one", hint=hint)
