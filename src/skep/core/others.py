"""Tenants that are not jobs of Skep, such as pods that another scheduler has put on a node.

An engine reports what they use of a node, and that is booked in the same ledger as jobs. Where a job is in the way, the
rest is booked when the job has ended. GPUs of which only the number is known are booked on any free ones; while there
are too few, the node has a deficit, and nothing is started there: a job that left would leave its GPUs to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from skep.core.allocation import WHOLE, Allocation, Slice, bits
from skep.core.errors import InvariantBroken
from skep.core.ledger import OTHERS

if TYPE_CHECKING:
    from skep.core.cluster import Cluster, Node
    from skep.core.state import State


class NodeUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one such tenant uses of a node."""

    gpus: int = 0
    """Bit mask of the node's GPUs."""
    milli: int = WHOLE
    """Thousandths of each of these GPUs."""
    gpu_mem_mib: int = 0
    """Of each of these GPUs."""
    cpu_milli: int = 0
    memory_mib: int = 0
    count: int = 0
    """Further whole GPUs, of which only the number is known."""
    extras: tuple[tuple[str, int], ...] = ()


class Others(msgspec.Struct):
    """What other tenants use of a node, and the part of it that is booked."""

    uses: tuple[NodeUse, ...]
    booked: tuple[Slice, ...] = ()
    is_whole: bool = False
    deficit: int = 0
    """Counted GPUs that are not booked, because jobs hold them."""


def settle(state: State, names: Iterable[str]) -> None:
    """Book what other tenants use of these nodes, except where a job still holds it."""
    for name in names:
        others, node = state.health.others[name], state.cluster.by_name[name]
        before, was_short = mask_of(others.booked), others.deficit > 0
        state.cluster.give(Allocation(others.booked, 0), OTHERS)
        pieces = list(pieces_of(others.uses, node))
        booked = list(book(state.cluster, pieces))
        others.is_whole = booked == pieces
        counted = list(book_counted(state.cluster, node, others.uses, before))
        wanted = sum(use.count for use in others.uses)
        others.deficit = min(wanted, node.gpu_count) - len(counted) if len(counted) < wanted else 0
        others.is_whole = others.is_whole and not others.deficit
        others.booked = (*booked, *counted)
        is_other = bool(others.deficit) != was_short
        if is_other:
            (state.cluster.restore if state.health.may_use(name) else state.cluster.lose)(node)
        if is_other or mask_of(others.booked) != before:  # cells of VCs are not bound to what others use
            state.wake().nodes_changed = True
        if not others.is_whole:
            state.health.crowded.add(name)
            continue
        state.health.crowded.discard(name)
        if not others.uses:
            del state.health.others[name]


def book_counted(cluster: Cluster, node: Node, uses: tuple[NodeUse, ...], before: int) -> Iterator[Slice]:
    """Whole GPUs for uses that do not say which: any free ones, first those of before, then the highest, where jobs
    come last."""
    free = sorted(bits(node.free_mask), key=lambda gpu: (before >> gpu & 1, gpu))
    for _ in range(min(sum(use.count for use in uses), len(free))):
        piece = Slice(node.index, 1 << free.pop())
        cluster.take(Allocation((piece,), 0), OTHERS)
        yield piece


def mask_of(slices: tuple[Slice, ...]) -> int:
    mask = 0
    for piece in slices:
        mask |= piece.gpus
    return mask


def book_again(state: State) -> None:
    """Book everything again after the nodes were replaced."""
    health, there = state.health, state.cluster.by_name
    health.crowded = set()
    health.others = {name: Others(each.uses) for name, each in health.others.items() if name in there}
    settle(state, list(health.others))


def pieces_of(uses: tuple[NodeUse, ...], node: Node) -> Iterator[Slice]:
    """GPU by GPU, so that one GPU that is taken does not prevent the others from being booked."""
    for use in uses:
        for gpu in bits(use.gpus & (1 << node.gpu_count) - 1):
            yield Slice(node.index, 1 << gpu, use.milli, use.gpu_mem_mib)
        if use.cpu_milli or use.memory_mib or use.extras:
            yield Slice(node.index, cpu_milli=use.cpu_milli, memory_mib=use.memory_mib, extras=use.extras)


def book(cluster: Cluster, pieces: list[Slice]) -> Iterator[Slice]:
    for piece in pieces:
        if not piece.gpus:
            node = cluster.nodes[piece.node]
            piece = msgspec.structs.replace(
                piece,
                cpu_milli=min(piece.cpu_milli, node.cpu_free),
                memory_mib=min(piece.memory_mib, node.memory_free),
                extras=tuple((name, min(count, node.extras_free.get(name, 0))) for name, count in piece.extras),
            )
        try:
            cluster.take(Allocation((piece,), 0), OTHERS)
        except InvariantBroken:
            continue
        yield piece
