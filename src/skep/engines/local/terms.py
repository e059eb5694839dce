"""What the share mode of an allocation means for the turns of a launch."""

from __future__ import annotations

import msgspec

from skep.core.cluster import WHOLE, Allocation, Cluster, Slice, bits
from skep.core.share import MODES

QUANTUM_S = 0.1
"""The quantum if a plan names none."""
LANE, LEND, TOKEN = "lane", "lend", "token"


class Terms(msgspec.Struct, frozen=True):
    """How a launch shares its GPUs."""

    lanes: tuple[str, ...]
    """Node and number of each of them."""
    request: float
    limit: float
    weight: float
    quantum_s: float
    is_lent: bool = False
    """True if it runs on what a guaranteed job leaves idle."""


def terms_of(allocation: Allocation, cluster: Cluster, limit: int = 0) -> Terms | None:
    """None for a job with exclusive GPUs, or one that runs beside others without turns.

    `limit`: the most it may use of each GPU, in thousandths, as set since its start; 0: not set.
    """
    pieces = [piece for piece in allocation.slices if piece.gpus]
    if not pieces:
        return None
    first = allocation.terms
    mode = MODES.get(first.mode)
    own = first.limit or (first.milli if first.mode == TOKEN else WHOLE)
    is_bounded = mode is not None and not mode.may_exceed  # by the hardware or its driver
    most = min(WHOLE if is_bounded else own, limit or WHOLE)
    if most == WHOLE and (mode is None or not (mode.takes_turns or first.mode == LEND)):
        return None
    return Terms(
        lanes=tuple(sorted({lane for piece in pieces for lane in lanes_of(piece, cluster)})),
        request=first.milli / WHOLE if first.mode == TOKEN else 0.0,
        limit=most / WHOLE,
        weight=first.weight,
        quantum_s=first.quantum_ms / 1000 or QUANTUM_S,
        is_lent=first.mode == LEND and first.milli == 0,
    )


def lanes_of(piece: Slice, cluster: Cluster) -> set[str]:
    """Where a slice can conflict with others: its GPUs, in mode `lane` its lanes on them."""
    which = f"/{piece.group}.{piece.slot}" if piece.mode == LANE else ""
    return {f"{cluster.nodes[piece.node].name}:{gpu}{which}" for gpu in bits(piece.gpus)}


def owned(allocation: Allocation, cluster: Cluster) -> set[tuple[str, int]]:
    """(node, GPU) of its exclusive GPUs."""
    return {
        (cluster.nodes[piece.node].name, gpu)
        for piece in allocation.slices
        for gpu in bits(piece.gpus)
        if piece.milli == WHOLE and not piece.mode
    }
