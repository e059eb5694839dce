"""Builds chains of cells from a plain list of nodes.

Equal nodes (GPU type, GPUs, cells inside) form one chain, so that a virtual cluster can own some of them without naming
them. The cells around them (racks) are levels of the chain as far out as they are all of one size: a job that spans
uneven racks would otherwise have to fit one of two chains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import NamedTuple

from skep.core.cells.layout import CellSpec, CellType, Layout, Sku
from skep.core.cluster import UNLIMITED, NodeSpec
from skep.core.tags import TAINT

GPU = "gpu"
"""The name of the GPU level, and the type of GPUs without one."""


class ChainShape(NamedTuple):
    """What the nodes of one chain have in common."""

    gpu_type: str
    gpus: int
    inner: tuple[tuple[str, int], ...]


class Piece(NamedTuple):
    """A node, or a cell of pieces around it."""

    name: str
    within: tuple[tuple[str, str], ...]
    """The cells around it that are not part of the chain yet, outermost first."""
    node: NodeSpec | None
    parts: list[Piece]


class NodeChain:
    """The nodes of one shape. `label` is its name in the file: `v100`, or `v100x8` if nodes differ in size."""

    def __init__(self, shape: ChainShape, nodes: list[NodeSpec]) -> None:
        self.shape = shape
        self.nodes = nodes
        self.label = ""
        self.notes: list[str] = []
        self.above: list[tuple[str, int]] = []
        """Levels around a node from the inside out: (level, number of cells of the level below)."""
        self.pieces = [Piece(node.name, node.within, node, []) for node in nodes]
        while self._gather():
            pass

    def _gather(self) -> bool:
        """Put the pieces into the cells around them; False if there are none, or uneven ones."""
        if not any(piece.within for piece in self.pieces):
            return False
        around: dict[tuple[tuple[str, str], ...], list[Piece]] = {}
        for piece in self.pieces:
            around.setdefault(piece.within, []).append(piece)
        levels = {path[-1][0] if path else "" for path in around}
        sizes = {len(parts) for parts in around.values()}
        if len(levels) > 1 or len(sizes) > 1:
            self._note(max(levels), sizes)
            return False
        self.above.append((levels.pop(), sizes.pop()))
        self.pieces = [Piece(path[-1][1], path[:-1], None, parts) for path, parts in around.items()]
        return True

    def _note(self, level: str, sizes: set[int]) -> None:
        what = f"the {self.shape.gpus}-GPU nodes" + (f" of {self.shape.gpu_type}" if self.shape.gpu_type else "")
        found = f"hold {min(sizes)} to {max(sizes)} cells" if len(sizes) > 1 else "do not hold all of them"
        self.notes.append(f"{level}: those of {what} {found}, so {level} cannot be a level of their cells")

    @property
    def gpu_type(self) -> str:
        return self.shape.gpu_type or GPU

    def levels(self) -> list[str]:
        """Names of the levels, from the GPU outwards."""
        inner = [level for level, _ in reversed(self.shape.inner)]
        return [GPU, *inner, "node", *(level for level, _ in self.above)]

    def type_of(self, level: str) -> str:
        if level == GPU:
            return self.gpu_type
        return level if self.label == GPU else f"{self.label}-{level}"

    @property
    def top(self) -> str:
        return self.type_of(self.levels()[-1])

    def types(self) -> list[CellType]:
        sizes = [1, *(size for _, size in reversed(self.shape.inner)), self.shape.gpus]
        fan_outs = [outer // inner for inner, outer in pairwise(sizes)]
        fan_outs += [fan_out for _, fan_out in self.above]
        names = [self.type_of(level) for level in self.levels()]
        return [
            CellType(name, child, fan_out, level == "node")
            for name, child, fan_out, level in zip(names[1:], names, fan_outs, self.levels()[1:], strict=False)
        ]

    def cells(self) -> list[CellSpec]:
        names = [self.type_of(level) for level in reversed(self.levels())]
        sizes = [self.shape.gpus, *(size for _, size in self.shape.inner), 1]
        return [piece_cell(piece, names, sizes, "") for piece in self.pieces]


def piece_cell(piece: Piece, types: Sequence[str], sizes: Sequence[int], prefix: str) -> CellSpec:
    """`types` from the one of this piece downwards."""
    address = prefix + piece.name
    if piece.node is not None:
        return inner_cell(types, sizes, 0, address, piece.name)
    parts = [piece_cell(part, types[1:], sizes, address + "/") for part in piece.parts]
    return CellSpec(types[0], address, children=parts)


def inner_cell(types: Sequence[str], sizes: Sequence[int], start: int, address: str, node: str) -> CellSpec:
    """A cell of `sizes[0]` GPUs from GPU `start` on; cells of a level are numbered through the node, as in HiveD."""
    cell = CellSpec(types[0], address, node)
    if len(sizes) > 1:
        size = sizes[1]
        cell.children = [
            inner_cell(types[1:], sizes[1:], at, f"{address}/{at // size}", node)
            for at in range(start, start + sizes[0], size)
        ]
    return cell


def node_chains(nodes: Sequence[NodeSpec]) -> list[NodeChain]:
    """One per shape, in the order of the file; nodes without GPUs are in none."""
    alike: dict[ChainShape, list[NodeSpec]] = {}
    for node in nodes:
        if node.gpus:
            alike.setdefault(ChainShape(node.gpu_type, node.gpus, node.inner), []).append(node)
    chains = [NodeChain(shape, members) for shape, members in alike.items()]
    _label(chains)
    return chains


def _label(chains: list[NodeChain]) -> None:
    """Names that differ from all GPU types and from the cell types of other chains."""
    gpu_types = [chain.gpu_type for chain in chains]
    taken = set(gpu_types)
    for chain in chains:
        plain, sized = chain.gpu_type, f"{chain.gpu_type}x{chain.shape.gpus}"
        first = [plain] if gpu_types.count(plain) == 1 else []
        for chain.label in chain_names(first, sized):
            types = {chain.type_of(level) for level in chain.levels()[1:]}
            if not types & taken:
                break
        taken |= types


def chain_names(first: list[str], sized: str) -> Iterator[str]:
    yield from first
    yield sized
    for number in count(2):
        yield f"{sized}-{number}"


def layout_of(chains: Sequence[NodeChain], nodes: Sequence[NodeSpec], name: str) -> Layout:
    """All cells, without owners."""
    types = {kind.name: kind for chain in chains for kind in chain.types()}
    cells = [cell for chain in chains for cell in chain.cells()]
    layout = Layout(types, cells, skus=_skus(nodes), name=name)
    for chain in chains:
        if tags := _common_tags(chain.nodes):
            layout.tags[chain.top] = tags
        if extras := _common_extras(chain.nodes):
            layout.extras[chain.top] = extras
    return layout


def _common_tags(nodes: Sequence[NodeSpec]) -> tuple[str, ...]:
    """The cells of a chain are interchangeable: a tag counts if all nodes have it. Taints are the health of a node."""
    common = frozenset.intersection(*(frozenset(node.tags) for node in nodes))
    return tuple(sorted(tag for tag in common if not tag.startswith(TAINT)))


def _common_extras(nodes: Sequence[NodeSpec]) -> tuple[tuple[str, int], ...]:
    every = [dict(node.extras) for node in nodes]
    names = [name for name in every[0] if all(name in each for each in every)]
    return tuple((name, min(each[name] for each in every)) for name in names)


def _skus(nodes: Sequence[NodeSpec]) -> dict[str, Sku]:
    """The smallest CPUs and memory per GPU of a type, and its speeds, for types whose nodes declare them."""
    found: dict[str, Sku] = {}
    for node in nodes:
        if node.gpus:
            name = node.gpu_type or GPU
            other = found.get(name) or Sku(1, UNLIMITED, UNLIMITED)
            cpu = min(other.cpu_milli, _each(node.cpu_milli, node.gpus))
            found[name] = Sku(1, cpu, min(other.memory_mib, _each(node.memory_mib, node.gpus)), node.speeds)
    return {name: sku for name, sku in found.items() if sku.speeds or min(sku.cpu_milli, sku.memory_mib) < UNLIMITED}


def _each(amount: int, gpus: int) -> int:
    return amount if amount == UNLIMITED else amount // gpus


def notes_of(chains: Sequence[NodeChain], nodes: Sequence[NodeSpec]) -> list[str]:
    """Nodes that are not in the cells."""
    idle = sum(not node.gpus for node in nodes)
    plain = [f"{idle:,} {'nodes have' if idle > 1 else 'node has'} no GPUs and no cells"] if idle else []
    return [*plain, *(note for chain in chains for note in chain.notes)]
