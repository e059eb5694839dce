"""The placements by name."""

from __future__ import annotations

from skep.core.fragments import Typical
from skep.policies.place.base import Place
from skep.policies.place.drawn import Random
from skep.policies.place.fgd import Fgd
from skep.policies.place.gated import Relaxed, SkewGated
from skep.policies.place.packing import (
    Affinity,
    BestFit,
    DotProduct,
    GpuClustering,
    GpuPacking,
    LeastUtilised,
    WorstFit,
)
from skep.policies.place.simple import Anywhere, Consolidate, EvenSplit, FirstFit, MostFreeFirst, RoomiestFirst
from skep.policies.place.topology import Topology

PLACES: dict[str, type[Place]] = {
    place.name: place
    for place in (
        Anywhere,
        FirstFit,
        BestFit,
        Consolidate,
        MostFreeFirst,
        RoomiestFirst,
        EvenSplit,
        Random,
        SkewGated,
        WorstFit,
        LeastUtilised,
        Affinity,
        Topology,
        Fgd,
        DotProduct,
        GpuPacking,
        GpuClustering,
    )
}


def build_place(name: str, *, seed: int = 0, typical: Typical | None = None) -> Place:
    """The placement of this name; `typical` are the tasks by which `fgd` measures fragments."""
    kind = PLACES[name]
    if kind is Random:
        return Random(seed)
    return Fgd(typical) if kind is Fgd else kind()


__all__ = ["PLACES", "Fgd", "Place", "Random", "Relaxed", "build_place"]
