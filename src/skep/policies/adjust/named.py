"""The adjusters that any pipeline can have: the knob `adjust` names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from skep.core.errors import InputError, did_you_mean
from skep.core.model import Need
from skep.policies.adjust.base import Adjuster
from skep.policies.adjust.deflate import Deflate
from skep.policies.adjust.grow import GrowShrink
from skep.policies.adjust.migrate import Migrate
from skep.policies.adjust.pack import PackTrials
from skep.policies.adjust.rebalance import Rebalance
from skep.policies.adjust.slices import Slices
from skep.policies.adjust.throttle import Throttle

NONE = "none"

ADJUSTERS: dict[str, Callable[[], Adjuster]] = {
    GrowShrink.name: GrowShrink,
    Deflate.name: Deflate,
    Migrate.name: Migrate,
    Slices.name: Slices,
    Rebalance.name: Rebalance,
    PackTrials.name: PackTrials,
    Throttle.name: Throttle,
}
"""In the order in which they are called: what frees GPUs comes before jobs must take turns."""


READERS = (GrowShrink.name, Migrate.name, Slices.name, PackTrials.name, Throttle.name)
"""Those that read measured speeds, and work without."""


def needs_of_adjusters(adjusters: Iterable[Adjuster]) -> frozenset[Need]:
    """What they cannot do without, and what they read."""
    adjusters = list(adjusters)
    reads = {Need.THROUGHPUT} if any(adjuster.name in READERS for adjuster in adjusters) else set()
    return frozenset().union(reads, *(adjuster.needs for adjuster in adjusters))


def named_adjusters(text: str) -> tuple[Adjuster, ...]:
    """Those that a knob names, joined by `+`."""
    names = [] if text == NONE else text.split("+")
    for name in names:
        if name not in ADJUSTERS:
            hint = did_you_mean(name, ADJUSTERS) or f"known adjusters: {', '.join(ADJUSTERS)}"
            raise InputError(f"adjust={text}: there is no adjuster '{name}'", hint=hint)
    if PackTrials.name in names and Slices.name not in names:
        raise InputError(f"adjust={text}: pack tries jobs that take turns", hint="add slices")
    return tuple(make() for name, make in ADJUSTERS.items() if name in names)
