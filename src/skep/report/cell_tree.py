"""The cells of a cluster drawn as a tree in plain text.

Thousands of nodes are equal: of equal neighbours the first is drawn, the others are counted.
"""

from __future__ import annotations

from itertools import groupby

from skep.core.cells.layout import CellSpec, Layout

NAMED_MAX = 3
"""This many folded cells are named; of more only the first and the last."""

Form = tuple[object, ...]


def cell_tree(layout: Layout) -> list[str]:
    """One tree per chain."""
    owners = {name: vc.name for vc in layout.vcs.values() for name in vc.pinned}
    lines: list[str] = []
    for chain in dict.fromkeys(cell.type for cell in layout.cells):
        tops = [cell for cell in layout.cells if cell.type == chain]
        lines += [f"chain {chain}: {_count(layout, chain, len(tops))}", *_Drawing(owners).siblings(tops, "")]
    return lines


def _count(layout: Layout, chain: str, number: int) -> str:
    """`2 × v100-rack, 8 × v100-node, 64 × v100`."""
    parts = []
    for kind in reversed(layout.chain_types(chain)):
        parts.append(f"{number:,} × {kind.name}")
        number *= kind.count
    return ", ".join(parts)


class _Drawing:
    """The tree of one chain."""

    def __init__(self, owners: dict[str, str]) -> None:
        self.owners = owners
        self.drawn: dict[Form, str] = {}
        """The shapes drawn inside a node, and where."""

    def siblings(self, cells: list[CellSpec], indent: str) -> list[str]:
        lines: list[str] = []
        runs = [list(run) for _, run in groupby(cells, key=cell_form)]
        for at, (first, *others) in enumerate(runs):
            is_last = at == len(runs) - 1
            is_end = is_last and not others
            lines += self._cell(first, f"{indent}{'└─' if is_end else '├─'} ", indent + ("   " if is_end else "│  "))
            if others:
                lines.append(f"{indent}{'└─' if is_last else '├─'} {_folded(others)}")
        return lines

    def _cell(self, cell: CellSpec, start: str, indent: str) -> list[str]:
        line = start + _line(cell, self.owners)
        if _has_only_gpus(cell):
            return [line]
        inside = cell_form(cell)[2:]
        if cell.node and inside in self.drawn:
            return [f"{line}, inside like {self.drawn[inside]}"]
        self.drawn[inside] = _name(cell)
        return [line, *self.siblings(cell.children, indent)]


def cell_form(cell: CellSpec) -> Form:
    """Equal for cells that differ only in their names; inside a node GPUs count from the first of the cell."""
    first = cell
    while first.children:
        first = first.children[0]
    is_inside = cell.node and _name(cell) != cell.node
    return _form(cell, _index(first) if is_inside else 0)


def _form(cell: CellSpec, base: int) -> Form:
    if not cell.children:
        return (cell.type, cell.pinned, _index(cell) - base)
    return (cell.type, cell.pinned, *(_form(child, base) for child in cell.children))


def _has_only_gpus(cell: CellSpec) -> bool:
    """True if its children fit on its own line."""
    return all(not child.children and not child.pinned for child in cell.children)


def _line(cell: CellSpec, owners: dict[str, str]) -> str:
    words = [f"{_name(cell)}  {cell.type}"]
    if cell.children and _has_only_gpus(cell):
        words.append(f"gpu{'s' * (len(cell.children) > 1)} {_indices([_index(gpu) for gpu in cell.children])}")
    if cell.pinned:
        alias = f" as {cell.pinned}" if cell.pinned != _name(cell) else ""
        words.append(f"pinned{alias} by {owners[cell.pinned]}" if cell.pinned in owners else f"named {cell.pinned}")
    return ", ".join(words)


def _folded(cells: list[CellSpec]) -> str:
    names = [_name(cell) for cell in cells]
    shown = ", ".join(names) if len(names) <= NAMED_MAX else f"{names[0]} to {names[-1]}"
    return f"… {len(cells):,} more like it: {shown}"


def _indices(indices: list[int]) -> str:
    """`0-7` for consecutive numbers, else all of them."""
    if len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1)):
        return f"{indices[0]}-{indices[-1]}"
    return " ".join(str(index) for index in indices)


def _name(cell: CellSpec) -> str:
    return cell.address.rpartition("/")[2]


def _index(cell: CellSpec) -> int:
    return int(_name(cell))
