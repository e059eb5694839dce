"""Cell types and physical cells of HiveD's configuration, with the addresses that the file leaves out.

A cell without an address is numbered: top cells by their position in the file, child i of cell number n of a type with
c children as n·c + i. Below a node numbering starts again at 0, so that GPUs get their index within the node. The full
address of a cell is the path from its top cell: `7/14/0.0.3.1/0/1/3`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from skep.core.cells.layout import CellSpec, CellType
from skep.core.errors import did_you_mean
from skep.files.document import Field
from skep.files.text import shorten

LEVELS_MAX = 20
CHILDREN_MAX = 100_000
INDEX_MAX = 9_999

OF_TYPE = ("childCellType", "childCellNumber", "isNodeLevel")
OF_CELL = ("cellType", "cellAddress", "pinnedCellId", "cellChildren")


def read_types(field: Field) -> dict[str, CellType]:
    """The types that have children; a GPU type is only named as a child."""
    entries = field.fields()
    types = {name: _type(name, entry) for name, entry in entries.items()}
    for name, entry in entries.items():
        _refuse_cycle(name, entry, types)
    return types


def _type(name: str, field: Field) -> CellType:
    given = field.fields(OF_TYPE, required=OF_TYPE[:2])
    is_node = given["isNodeLevel"].flag() if "isNodeLevel" in given else False
    count = given["childCellNumber"].whole(least=1, most=CHILDREN_MAX)
    return CellType(name, given["childCellType"].text(), count, is_node)


def _refuse_cycle(name: str, field: Field, types: dict[str, CellType]) -> None:
    path = [name]
    while path[-1] in types:
        child = types[path[-1]].child
        if child in path:
            shown = " > ".join([*path[path.index(child) :], child])
            raise field.trouble(f"{field.path}.childCellType: {child} contains itself: {shown}")
        path.append(child)
        if len(path) > LEVELS_MAX:
            raise field.trouble(f"{field.path}: more than {LEVELS_MAX} levels")


class CellLevel(NamedTuple):
    """A level of one chain."""

    type: str
    children: int
    """The number of children of one cell; 0: it is a GPU."""
    is_node: bool


class _Place(NamedTuple):
    """The position of a cell, given by its parent."""

    depth: int
    number: int
    """Its address if the file gives none."""
    prefix: str
    node: str
    near: Field
    """The innermost cell of the file that contains it: named in errors about an inferred cell."""


def read_cells(field: Field, types: dict[str, CellType], cells_max: int) -> tuple[list[CellSpec], dict[str, CellSpec]]:
    """(the top cells, those with a name for pinning)."""
    items = field.items()
    if not items:
        raise field.fault("at least one cell")
    reader = _CellReader(types, cells_max)
    return [reader.top(number, item) for number, item in enumerate(items)], reader.pinned


class _CellReader:
    def __init__(self, types: dict[str, CellType], cells_max: int) -> None:
        self.types = types
        self.cells_max = cells_max
        self.chains: dict[str, list[CellLevel]] = {}
        """Levels of the chains seen so far, the top one first."""
        self.chain = ""
        """The cell that is being read, and its levels."""
        self.levels: list[CellLevel] = []
        self.pinned: dict[str, CellSpec] = {}
        self.cell_count = 0
        self.seen: set[Hashable] = set()
        """Addresses that must not occur twice. A node may have devices of several chains, but only once in each."""
        self.named: set[str] = set()
        """Nodes that the file names. Inferred ones are only numbers, and may be equal in different chains."""

    def top(self, number: int, field: Field) -> CellSpec:
        kind = field.fields(OF_CELL, required=("cellType",))["cellType"]
        self.chain = kind.text()
        if self.chain not in self.chains:
            self.chains[self.chain] = chain_levels(kind, self.chain, self.types)
        self.levels = self.chains[self.chain]
        self._refuse_many(field)
        cell = self._cell(field, _Place(0, number, "", "", field))
        self._once((self.chain, cell.address), field, f"a second {self.chain} with the address {cell.address}")
        return cell

    def _refuse_many(self, field: Field) -> None:
        width = 1
        for level in self.levels:
            self.cell_count += width
            width *= level.children
            if self.cell_count > self.cells_max:
                raise field.trouble(f"{field.path}: more than {self.cells_max:,} cells up to here")

    def _cell(self, field: Field | None, place: _Place) -> CellSpec:
        """A cell and all below it; without `field` everything about it is inferred."""
        level = self.levels[place.depth]
        given = field.fields(OF_CELL) if field is not None and not field.is_null else {}
        name = address(given.get("cellAddress"), place.number, is_gpu=not level.children)
        node = name if level.is_node else place.node
        cell = CellSpec(level.type, place.prefix + name, node)
        if given:
            self._describe(cell, given)
        if level.is_node:
            self._once((self.chain, "node", node), place.near, f"a second node {node} in the chain {self.chain}")
            if "cellAddress" in given:
                self.named.add(node)
        if level.children:
            cell.children = self._children(given.get("cellChildren"), cell, place)
        else:
            self._gpu(level, node, int(name), place.near)
            refuse_children(given.get("cellChildren"), level)
        return cell

    def _gpu(self, level: CellLevel, node: str, index: int, near: Field) -> None:
        scope = "" if node in self.named else self.chain
        self._once((scope, level.type, node, index), near, f"a second GPU {index} of type {level.type} on node {node}")

    def _children(self, field: Field | None, cell: CellSpec, place: _Place) -> list[CellSpec]:
        level = self.levels[place.depth]
        given = field.items() if field is not None and not field.is_null else []
        if given and len(given) != level.children and field is not None:
            problem = f"{field.path}: {len(given)} children of a {level.type}, expected {level.children}"
            raise field.trouble(problem, hint="leave cellChildren out to have all of them made")
        first = 0 if level.is_node else place.number * level.children
        inner = _Place(place.depth + 1, first, cell.address + "/", cell.node, place.near)
        if not given:
            return [self._cell(None, inner._replace(number=first + at)) for at in range(level.children)]
        return self._siblings(given, inner)

    def _siblings(self, given: list[Field], first: _Place) -> list[CellSpec]:
        cells: dict[str, CellSpec] = {}
        for at, field in enumerate(given):
            cell = self._cell(field, first._replace(number=first.number + at, near=field))
            if cell.address in cells:
                raise field.trouble(f"{field.path}: a second cell with the address {cell.address}")
            cells[cell.address] = cell
        return list(cells.values())

    def _describe(self, cell: CellSpec, given: dict[str, Field]) -> None:
        """The fields of a cell besides its address."""
        kind = given.get("cellType")
        if kind is not None and not kind.is_null and kind.text() != cell.type:
            raise kind.fault(f"{cell.type}, as cellTypes says")
        pin = given.get("pinnedCellId")
        if pin is not None and not pin.is_null:
            cell.pinned = pin.text()
            if cell.pinned in self.pinned:
                other = self.pinned[cell.pinned].address
                raise pin.trouble(f"{pin.path}: {cell.pinned} is already the name of the cell {other}")
            self.pinned[cell.pinned] = cell

    def _once(self, key: Hashable, field: Field, problem: str) -> None:
        if key in self.seen:
            raise field.trouble(f"{field.path}: {problem}")
        self.seen.add(key)


def chain_levels(field: Field, chain: str, types: dict[str, CellType]) -> list[CellLevel]:
    """The levels of a chain from its top cell down to the GPU."""
    if chain not in types:
        near = did_you_mean(chain, types, start=", ")
        problem = f"{field.path}: unknown cell type {shorten(chain)}{near}"
        raise field.trouble(problem, hint=f"cellTypes has {', '.join(types)}")
    levels = []
    name = chain
    while name in types:
        kind = types[name]
        levels.append(CellLevel(name, kind.count, kind.is_node))
        name = kind.child
    _refuse_nodeless(field, chain, [level.type for level in levels if level.is_node], types)
    return [*levels, CellLevel(name, 0, False)]


def _refuse_nodeless(field: Field, chain: str, nodes: list[str], types: dict[str, CellType]) -> None:
    if len(nodes) > 1:
        raise field.trouble(f"{field.path}: the chain {chain} has two node levels, {nodes[0]} and {nodes[1]}")
    if not nodes:
        above = next((kind.name for kind in _above(chain, types) if kind.is_node), "")
        why = f"is below the node level {above}" if above else "has no type with isNodeLevel: true"
        raise field.trouble(f"{field.path}: the chain {chain} {why}, expected a node or a cell that contains nodes")


def _above(name: str, types: dict[str, CellType]) -> list[CellType]:
    """The types that contain this one."""
    parents = [kind for kind in types.values() if kind.child == name]
    return parents + [outer for kind in parents for outer in _above(kind.name, types)]


def address(field: Field | None, number: int, *, is_gpu: bool) -> str:
    """The last element of a cell's address."""
    if field is None or field.is_null:
        return str(number)
    name = field.text("a name without /")
    if "/" in name:
        raise field.fault("a name without /")
    if is_gpu and not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) <= INDEX_MAX):
        raise field.fault(f"the index of a GPU, a whole number from 0 to {INDEX_MAX:,}")
    return name


def refuse_children(field: Field | None, level: CellLevel) -> None:
    if field is not None and not field.is_null and field.items():
        raise field.trouble(f"{field.path}: a {level.type} is a GPU type and has no children")
