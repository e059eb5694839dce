"""The layout of a shared cluster as values: types of cells, the cells that exist, and their owners.

A *chain* is a type of top cell together with everything below it; its levels count from the GPU (1) upwards.
"""

from __future__ import annotations

import msgspec


class CellType(msgspec.Struct, frozen=True):
    """`count` cells of type `child` make one; a GPU type has no child."""

    name: str
    child: str = ""
    count: int = 0
    is_node: bool = False


class CellSpec(msgspec.Struct):
    """A piece of hardware. Its address is the path from the top, `0/node1/0/2`."""

    type: str
    address: str
    node: str = ""
    """The node that it is or lies in; empty above the nodes."""
    pinned: str = ""
    """The name by which a VC may own exactly this cell."""
    children: list[CellSpec] = []


class Grant(msgspec.Struct, frozen=True):
    """`count` cells of type `type` out of the chain `chain`."""

    chain: str
    type: str
    count: int


class VcLayout(msgspec.Struct):
    """What one virtual cluster owns: cells of a type, and pinned cells by name."""

    name: str
    grants: list[Grant] = []
    pinned: list[str] = []
    policy: str = ""
    """The policy inside this VC; empty: the policy of the cluster."""


class Sku(msgspec.Struct, frozen=True):
    """The CPUs and memory that come with one GPU of a type, and its declared speeds."""

    gpu: int = 1
    cpu_milli: int = 0
    memory_mib: int = 0
    speeds: tuple[tuple[str, float], ...] = ()
    """As in `NodeSpec`."""


class Layout(msgspec.Struct):
    """Everything a configuration file states."""

    types: dict[str, CellType]
    cells: list[CellSpec]
    vcs: dict[str, VcLayout] = {}
    skus: dict[str, Sku] = {}
    name: str = ""
    tags: dict[str, tuple[str, ...]] = {}
    """By chain, the tags that all of its nodes have."""
    extras: dict[str, tuple[tuple[str, int], ...]] = {}
    """By chain, the extras that all of its nodes have."""

    def chain_types(self, chain: str) -> list[CellType]:
        """The types of a chain from the GPU upwards; level n is at index n - 1."""
        found = []
        name = chain
        while name:
            kind = self.types.get(name) or CellType(name)
            found.append(kind)
            name = kind.child
        return found[::-1]
