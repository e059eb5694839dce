"""Decisions at the boundaries of rounds only: what happens between them is gathered for the next.

Boundaries are the multiples of the round since time 0. The planner's wake-up is the next one, so it is in the state
like any other; live, where time has passed until the timer is handled, the wake-up itself is the boundary.
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


def slack(rounds: float) -> float:
    """What rounding may make of a whole number of rounds."""
    return max(1e-9, 4 * math.ulp(rounds))


def everything() -> Trigger:
    """For a planner that begins within a round: what is news is not known, so it looks at everything."""
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
