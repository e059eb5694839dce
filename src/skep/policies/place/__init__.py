"""Which cells? Each placement by its name."""

from __future__ import annotations

from skep.policies.place.base import Place
from skep.policies.place.gated import Relaxed, SkewGated
from skep.policies.place.simple import Anywhere, BestFit, Consolidate, FirstFit, Random, Spread

PLACES: dict[str, type[Place]] = {
    place.name: place for place in (Anywhere, FirstFit, BestFit, Consolidate, Spread, Random, SkewGated)
}

__all__ = ["PLACES", "Place", "Random", "Relaxed"]
