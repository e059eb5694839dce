"""Recovers a running gang from its placement alone: after a restart, and after the configuration changed.

The placement has for each GPU its position and the type of the granted cell. Parts that no longer exist are left out; a
gang whose guarantee no longer exists runs on as opportunistic work.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skep.core.cells.chain import Chain
from skep.core.cells.in_place import map_up
from skep.core.cells.tree import FREE, OPPORTUNISTIC, PhysicalCell, VirtualCell
from skep.scenarios.gangs import Gang, GangRequest, GangUse
from skep.scenarios.scheduler import GangScheduler


class PodRecord(msgspec.Struct, frozen=True):
    """Where one pod runs; `granted` is the type of the granted cell, empty for opportunistic work."""

    node: str
    gpus: tuple[int, ...]
    granted: str


class GangRecord(msgspec.Struct, frozen=True):
    """The placement of a whole gang, pods by ascending size."""

    chain: str
    pods: tuple[PodRecord, ...]


def record(gang: Gang) -> GangRecord:
    pods = []
    chain = ""
    for number, pod in enumerate(gang.physical):
        leaves = [leaf for leaf in pod if leaf is not None]
        virtual = next(filter(None, gang.virtual[number]), None) if gang.virtual is not None else None
        chain = leaves[0].chain if leaves else chain
        node = leaves[0].node if leaves else ""
        granted = virtual.root.type if virtual is not None else ""
        pods.append(PodRecord(node, tuple(leaf.index for leaf in leaves), granted))
    return GangRecord(chain, tuple(pods))


def recover(cells: GangScheduler, request: GangRequest, placement: GangRecord) -> Gang:
    """Account for a gang that runs there. It is never stopped by this, but may lose its guarantee.

    Recover all gangs before nodes are marked as bad: a bad cell could otherwise be shown to a VC (doomed) that has work
    running on another one.
    """
    with cells.books:
        return _recover(cells, request, placement)


def _recover(cells: GangScheduler, request: GangRequest, placement: GangRecord) -> Gang:
    gang = Gang(request, [], [])
    must_downgrade = False
    for pod in placement.pods:
        physical: list[PhysicalCell | None] = []
        virtual: list[VirtualCell | None] = []
        for index in pod.gpus:
            leaf = find_gpu(cells, placement.chain, pod.node, index)
            bound = None
            if leaf is not None and cells.on(leaf).gang is None and pod.granted:
                bound = find_virtual(cells, request, leaf, pod.granted)
                must_downgrade = must_downgrade or bound is None
            if leaf is not None and cells.on(leaf).gang is not None:
                leaf = None  # another gang was recovered there: the two placements contradict each other
            if leaf is not None:
                if bound is not None:
                    make_way(cells, leaf, bound)
                    if not can_bind(cells.chains[leaf.chain], leaf, bound):
                        bound, must_downgrade = None, True
                is_safe = cells.books.take_gpu(leaf, bound, request.priority)
                must_downgrade = must_downgrade or not is_safe
                cells.on(leaf).gang = gang
                cells.on(leaf).use = GangUse.USED
            physical.append(leaf)
            virtual.append(bound)
        gang.physical.append(physical)
        assert gang.virtual is not None
        gang.virtual.append(virtual)
    cells.gangs[gang.name] = gang
    if not any(pod.granted for pod in placement.pods):
        gang.virtual = None
        gang.is_downgraded = request.priority != OPPORTUNISTIC
    elif must_downgrade:
        cells.downgrade(gang)
    return gang


def find_gpu(cells: GangScheduler, chain: str, node: str, index: int) -> PhysicalCell | None:
    """In its chain, or wherever the node is now."""
    found = [leaf for leaf in cells.nodes.get(node, ()) if leaf.index == index]
    return next((leaf for leaf in found if leaf.chain == chain), found[0] if found else None)


def find_virtual(cells: GangScheduler, request: GangRequest, leaf: PhysicalCell, granted: str) -> VirtualCell | None:
    """The virtual GPU of the VC that this one is, or can be, bound to."""
    chain = cells.chains[leaf.chain]
    tenancy = cells.tenancies.get(request.vc)
    if tenancy is None or granted not in chain.types:
        return None
    level = chain.types.index(granted) + 1
    roots: list[VirtualCell] = []
    if not request.pinned and chain.name in tenancy.roots:  # a pinned cell stays bound, there or elsewhere
        roots = tenancy.roots[chain.name][level]

    def is_free(cell: PhysicalCell, root: VirtualCell) -> bool:
        return chain.is_within_free(cell) or is_freed(cells, cell, root)

    return map_up(leaf, roots, level, request.priority, request.vc, is_free)


def can_bind(chain: Chain, leaf: PhysicalCell, virtual: VirtualCell) -> bool:
    """True if the cells above both are bound to each other, or neither is bound and the granted one is free."""
    physical: PhysicalCell | None = leaf
    cell: VirtualCell | None = virtual
    while cell is not None:
        assert physical is not None
        if physical.virtual is not None or cell.physical is not None:
            return physical.virtual is cell
        if cell.parent is None:
            return chain.is_within_free(physical)
        physical, cell = physical.parent, cell.parent
    return False


def users_of(cells: GangScheduler, root: VirtualCell) -> dict[int, Gang]:
    """By identity."""
    held = (leaf.physical for leaf in root.leaves() if isinstance(leaf, VirtualCell))
    gangs = (cells.on(leaf).gang for leaf in held if leaf is not None)
    return {id(gang): gang for gang in gangs if gang is not None}


def is_freed(cells: GangScheduler, cell: PhysicalCell, root: VirtualCell) -> bool:
    """True if the cell would be free as a whole if the users of `root` had no guarantee.

    (If not, because of a pinned cell in it for example, `can_bind` notices that in time.)
    """
    above = cell.parent
    while above is not None:
        if above.virtual is not None:
            return False
        above = above.parent
    leaving = users_of(cells, root) if root.priority != FREE else {}
    return bool(leaving) and all(
        using and using.keys() <= leaving.keys()
        for using in (users_of(cells, granted) for granted in granted_below(cell))
    )


def granted_below(cell: PhysicalCell) -> Iterator[VirtualCell]:
    for child in cell.children:
        if child.virtual is not None:
            yield child.virtual
        else:
            yield from granted_below(child)


def make_way(cells: GangScheduler, leaf: PhysicalCell, virtual: VirtualCell) -> None:
    """The granted cell is bound elsewhere (a VC that shrank): the gangs in it lose their guarantee."""
    root = virtual.root
    if root.physical is not None and root.priority != FREE and cells.chains[leaf.chain].is_within_free(leaf):
        for gang in users_of(cells, root).values():
            cells.downgrade(gang)
