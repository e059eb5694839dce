"""Tenants that are not jobs of Skep, such as pods that another scheduler has put on a node.

An engine reports what they use of a node, and that is booked in the same ledger as jobs. Where a job is in the way, the
rest is booked when the job has ended.
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


class Others(msgspec.Struct):
    """What other tenants use of a node, and the part of it that is booked."""

    uses: tuple[NodeUse, ...]
    booked: tuple[Slice, ...] = ()
    is_whole: bool = False


def settle(state: State, names: Iterable[str]) -> None:
    """Book what other tenants use of these nodes, except where a job still holds it."""
    for name in names:
        others, node = state.health.others[name], state.cluster.by_name[name]
        state.cluster.give(Allocation(others.booked, 0), OTHERS)
        pieces = list(pieces_of(others.uses, node))
        others.booked = tuple(book(state.cluster, pieces))
        others.is_whole = others.booked == tuple(pieces)
        if not others.is_whole:
            state.health.crowded.add(name)
            continue
        state.health.crowded.discard(name)
        if not others.uses:
            del state.health.others[name]


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
        if use.cpu_milli or use.memory_mib:
            yield Slice(node.index, cpu_milli=use.cpu_milli, memory_mib=use.memory_mib)


def book(cluster: Cluster, pieces: list[Slice]) -> Iterator[Slice]:
    for piece in pieces:
        if not piece.gpus:
            node = cluster.nodes[piece.node]
            piece = msgspec.structs.replace(
                piece, cpu_milli=min(piece.cpu_milli, node.cpu_free), memory_mib=min(piece.memory_mib, node.memory_free)
            )
        try:
            cluster.take(Allocation((piece,), 0), OTHERS)
        except InvariantBroken:
            continue
        yield piece
