"""Rounds: decisions at fixed boundaries only. Events between them are collected for the next decision.

Boundaries are the multiples of the round since time 0. The planner's wake-up is the next boundary, so it is part of the
state. In a server, where time passes until the timer is handled, the wake-up itself is the boundary.
"""

from __future__ import annotations

import math

from skep.core.view import Trigger


def is_boundary(now_s: float, round_s: float) -> bool:
    rounds = now_s / round_s
    return abs(rounds - round(rounds)) < slack(rounds)


def next_boundary(now_s: float, round_s: float) -> float:
    rounds = now_s / round_s
    return (math.floor(rounds + slack(rounds)) + 1) * round_s


def is_same(one_s: float, other_s: float) -> bool:
    """True if two times differ only by rounding."""
    return abs(one_s - other_s) <= 1e-9 * max(abs(one_s), abs(other_s), 1.0)


def slack(rounds: float) -> float:
    """Tolerance for rounding when a time is compared with a multiple of the round."""
    return max(1e-9, 4 * math.ulp(rounds))


def everything() -> Trigger:
    """For a planner that begins within a round: it has not seen the events of the round, so it looks at everything."""
    trigger = Trigger()
    trigger.nodes_changed = True
    return trigger


def gather(gathered: Trigger, trigger: Trigger) -> None:
    gathered.withdrawn += trigger.withdrawn
    gathered.started += trigger.started
    gathered.is_slowed |= trigger.is_slowed
    gathered.submitted += trigger.submitted
    gathered.returned += trigger.returned
    gathered.ended += trigger.ended
    gathered.nodes_changed |= trigger.nodes_changed
    gathered.solved += trigger.solved
