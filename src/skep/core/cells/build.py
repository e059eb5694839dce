"""Building cells from a layout: the physical trees, the virtual trees of every VC, and the books of each chain."""

from __future__ import annotations

from collections.abc import Iterator

from skep.core.cells.chain import Chain, Tenancy
from skep.core.cells.layout import CellSpec, CellType, Layout
from skep.core.cells.tree import PhysicalCell, VirtualCell


def build_chains(layout: Layout) -> dict[str, Chain]:
    chains: dict[str, Chain] = {}
    for spec in layout.cells:
        chain = chains.get(spec.type)
        if chain is None:
            types = layout.chain_types(spec.type)
            node_level = next((level for level, kind in enumerate(types, start=1) if kind.is_node), len(types))
            chain = chains[spec.type] = Chain(spec.type, [kind.name for kind in types], node_level)
        root = physical_tree(spec, layout.chain_types(spec.type), len(chain.types), None, chain)
        chain.list_free(root)
    for chain in chains.values():
        chain.left = [len(cells) for cells in chain.cells]
        chain.fan_out = [len(cells[0].children) if cells else 0 for cells in chain.cells]
    return chains


def physical_tree(
    spec: CellSpec, types: list[CellType], level: int, parent: PhysicalCell | None, chain: Chain
) -> PhysicalCell:
    cell = PhysicalCell(spec, types[level - 1], level, parent, chain.name, rank=len(chain.cells[level]))
    chain.cells[level].append(cell)
    if level == 1:
        return cell
    cell.children = [physical_tree(child, types, level - 1, cell, chain) for child in spec.children]
    cell.leaf_count = sum(child.leaf_count for child in cell.children)
    if not cell.node:
        cell.nodes = tuple(node for child in cell.children for node in child.nodes)
    return cell


def pinned_cells(layout: Layout, chains: dict[str, Chain]) -> dict[str, PhysicalCell]:
    names: dict[tuple[str, str], str] = {}

    def collect(chain: str, spec: CellSpec) -> None:
        if spec.pinned:
            names[chain, spec.address] = spec.pinned
        for child in spec.children:
            collect(chain, child)

    for spec in layout.cells:
        collect(spec.type, spec)
    if not names:
        return {}
    cells = (cell for chain in chains.values() for level in chain.cells for cell in level)
    return {names[cell.chain, cell.address]: cell for cell in cells if (cell.chain, cell.address) in names}


def build_tenancies(layout: Layout, chains: dict[str, Chain], pins: dict[str, PhysicalCell]) -> dict[str, Tenancy]:
    tenancies = {}
    for vc in layout.vcs.values():
        tenancy = tenancies[vc.name] = Tenancy()
        number = 0
        granted: dict[str, list[VirtualCell]] = {}
        for grant in vc.grants:
            chain = chains[grant.chain]
            roots = tenancy.roots.setdefault(chain.name, [[] for _ in range(chain.top + 1)])
            types = layout.chain_types(chain.name)
            level = chain.types.index(grant.type) + 1
            for _ in range(grant.count):
                root = virtual_tree(types, level, None, vc.name, chain.name, f"{vc.name}/{number}", [0] * level)
                roots[level].append(root)
                granted.setdefault(chain.name, []).append(root)
                number += 1
        for name in vc.pinned:
            cell = pins[name]
            types = layout.chain_types(cell.chain)
            root = virtual_tree(types, cell.level, None, vc.name, cell.chain, f"{vc.name}/{number}", [0] * cell.level)
            root.pinned = name
            tenancy.pinned[name] = root
            number += 1
        tenancy.nodes = dict(nodes_of(tenancy, chains, granted))
    return tenancies


def virtual_tree(
    types: list[CellType],
    level: int,
    parent: VirtualCell | None,
    vc: str,
    chain: str,
    address: str,
    counters: list[int],
) -> VirtualCell:
    """`counters` number the cells of each level within one granted cell."""
    kind = types[level - 1]
    cell = VirtualCell(kind, level, parent, vc=vc, chain=chain, address=address)
    for _ in range(kind.count if level > 1 else 0):
        number = counters[level - 2]
        counters[level - 2] += 1
        child = virtual_tree(types, level - 1, cell, vc, chain, f"{address}/{number}", counters)
        cell.children.append(child)
    if cell.children:
        cell.leaf_count = sum(child.leaf_count for child in cell.children)
    return cell


def nodes_of(
    tenancy: Tenancy, chains: dict[str, Chain], granted: dict[str, list[VirtualCell]]
) -> Iterator[tuple[str, list[VirtualCell]]]:
    """By chain or pinned cell. `granted` is what the VC owns of each chain, in the order of the file."""
    for name in tenancy.roots:
        level, roots = chains[name].node_level, granted.get(name, [])
        whole = [node for root in roots if root.level >= level for node in nodes_in(root, level)]
        small = sorted((root for root in roots if root.level < level), key=lambda root: -root.level)
        yield name, [*whole, *small]
    for name, root in tenancy.pinned.items():
        yield f"pinned/{name}", nodes_in(root, chains[root.chain].node_level)


def nodes_in(cell: VirtualCell, level: int) -> list[VirtualCell]:
    """The cells of that level in this one; the cell itself if it is smaller."""
    if cell.level <= level:
        return [cell]
    return [found for child in cell.children for found in nodes_in(child, level)]
