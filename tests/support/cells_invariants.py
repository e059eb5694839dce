"""The invariants of the cells of a shared cluster, recomputed naively.

`check_cells(cells)` checks one moment: the use of GPUs, the bindings, the free cells, what each VC may still request,
and that all of it could be given at once (VC safety). `is_within_reach` is the naive answer to whether a guaranteed
request fits what its VC owns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.support.invariants import expect

from skep.core.cells.cells import Cells
from skep.core.cells.chain import Chain, Tenancy
from skep.core.cells.tree import FREE, GUARANTEED_MIN, OPPORTUNISTIC, BaseCell, PhysicalCell, VirtualCell
from skep.scenarios.gangs import Gang, GangRequest, GangState, GangUse
from skep.scenarios.node_order import NodeOrder
from skep.scenarios.scheduler import GangScheduler

USES = {
    # (a gang runs there, a gang is to run there) → use
    (False, False): GangUse.FREE,
    (True, False): GangUse.USED,
    (True, True): GangUse.RESERVING,
    (False, True): GangUse.RESERVED,
}


def check_cells(cells: GangScheduler) -> None:
    """Raise `InvariantBroken` if an invariant does not hold."""
    for order in [*cells.physical_order.values(), *(one for vc in cells.virtual_order.values() for one in vc.values())]:
        check_order(order)
    users, reservers = held_gpus(cells)
    check_gangs(cells)
    check_uses(cells, users, reservers)
    check_cell_books(cells)


def check_cell_books(cells: Cells) -> None:
    """Free, bound, bad and owed cells, for gangs and for a planner that keeps the books itself."""
    for chain in cells.chains.values():
        free = {id(cell) for level in chain.cells for cell in level if is_free(cell)}
        check_bad(cells, chain, free)
        check_free(chain, free)
        check_unused(cells, chain)
        check_doomed(cells, chain)
        check_safety(cells, chain)
    for cell in physical_cells(cells):
        check_physical_binding(cell)
    for tenancy in cells.tenancies.values():
        for root in roots_of(tenancy):
            check_virtual_tree(root)


# Gangs and GPUs -------------------------------------------------------------------------------------------------


def held_gpus(cells: GangScheduler) -> tuple[dict[int, Gang], dict[int, Gang]]:
    """The gang on each GPU, and the next one (by identity)."""
    users: dict[int, Gang] = {}
    reservers: dict[int, Gang] = {}
    for gang in cells.gangs.values():
        held = reservers if gang.state is GangState.PREEMPTING else users
        for leaf, _ in gang.pairs():
            other = held.get(id(leaf))
            expect(other is None, "{} is held by {} and by {}", leaf, other, gang)
            held[id(leaf)] = gang
    return users, reservers


def check_gangs(cells: GangScheduler) -> None:
    for name, gang in cells.gangs.items():
        expect(name == gang.name, "{} is known as {}", gang, name)
        shape = [len(pod) for pod in gang.physical]
        expect(shape == gang.request.sizes, "{} has pods of {} GPUs, not {}", gang, shape, gang.request.sizes)
        for pod in gang.physical:
            nodes = {leaf.node for leaf in pod if leaf is not None}
            expect(len(nodes) <= 1, "a pod of {} is on {}", gang, sorted(nodes))
        is_left = (
            any(cells.on(leaf).use is GangUse.RESERVING for leaf, _ in gang.pairs())
            and gang.state is not GangState.PREEMPTING
        )
        expect((gang.state is GangState.LEAVING) == is_left, f"{gang} has{'' if is_left else ' no'} cells to leave")
        check_guarantee(gang)


def check_guarantee(gang: Gang) -> None:
    """Opportunistic work has no virtual cells; guaranteed work has those of its VC for every GPU."""
    request = gang.request
    if gang.virtual is None:
        is_downgraded = request.priority != OPPORTUNISTIC
        expect(gang.is_downgraded == is_downgraded, f"{gang} was{'' if is_downgraded else ' never'} guaranteed")
        expect(gang.state is not GangState.PREEMPTING, "{} pushes others out without a guarantee", gang)
        return
    expect(not gang.is_downgraded, "{} is guaranteed and downgraded", gang)
    expect(request.priority >= GUARANTEED_MIN, "{} is opportunistic and has virtual cells", gang)
    for leaf, virtual in gang.pairs():
        assert virtual is not None, f"{gang} has no virtual cell for {leaf!r}"
        expect(virtual.vc == request.vc, "{} of VC {} is on {}", gang, request.vc, virtual)


def check_uses(cells: GangScheduler, users: dict[int, Gang], reservers: dict[int, Gang]) -> None:
    """The entries of every GPU, and the counts of all cells above, physical and virtual."""
    physical: dict[int, int] = {}
    virtual: dict[int, int] = {}
    for leaf in (leaf for chain in cells.chains.values() for leaf in chain.cells[1]):
        user, reserver = users.get(id(leaf)), reservers.get(id(leaf))
        gpu = cells.on(leaf)
        expect(gpu.gang is user, "{} says it is used by {}, not {}", leaf, gpu.gang, user)
        expect(gpu.reserver is reserver, "{} says it is reserved for {}, not {}", leaf, gpu.reserver, reserver)
        use = USES[user is not None, reserver is not None]
        expect(gpu.use is use, "{} is {}, not {}", leaf, gpu.use, use)
        holder = reserver or user
        if holder is None:
            continue
        physical[id(leaf)] = holder.priority
        bound = next(cell for held, cell in holder.pairs() if held is leaf)
        if bound is not None:
            expect(leaf.virtual is bound, "{} is bound to {}, but {} has {}", leaf, leaf.virtual, holder, bound)
            expect(id(bound) not in virtual, "{} is used twice", bound)
            virtual[id(bound)] = holder.priority
    check_counts(cells, physical, virtual)


def check_counts(cells: Cells, physical: dict[int, int], virtual: dict[int, int]) -> None:
    """The counts of every cell, given the priority at which each GPU (by identity) is in use."""
    for chain in cells.chains.values():
        for root in chain.cells[chain.top]:
            count_use(root, physical)
    for tenancy in cells.tenancies.values():
        for granted in roots_of(tenancy):
            count_use(granted, virtual)


def count_use(cell: BaseCell, priorities: dict[int, int]) -> dict[int, int]:
    """How many of its GPUs are used at each priority."""
    found: dict[int, int] = {}
    if not cell.children and id(cell) in priorities:
        found[priorities[id(cell)]] = 1
    for child in cell.children:
        expect(child.parent is cell, "{} is not below {}", child, cell)
        for priority, count in count_use(child, priorities).items():
            found[priority] = found.get(priority, 0) + count
    total = sum(found.values())
    expect(cell.used == found, "{} counts {}, not {}", cell, cell.used, found)
    expect(cell.used_total == total, "{} counts {} GPUs, not {}", cell, cell.used_total, total)
    highest = max(found, default=FREE)
    expect(cell.priority == highest, "{} has priority {}, not {}", cell, cell.priority, highest)
    size = sum(child.leaf_count for child in cell.children) or 1
    expect(cell.leaf_count == size, "{} has {} GPUs, not {}", cell, cell.leaf_count, size)
    return found


def check_order(order: NodeOrder) -> None:
    """It has every node once, under its key; those whose key has changed are to be sorted again."""
    for node in order.nodes:
        expect(node.watcher is order, "{} is in another order", node)
        key = order.place[id(node)][0]
        expect(order.by_key[key].get(id(node)) is node, "{} is not where the order says", node)
        expect(
            key == order.key(node) or id(node) in order.changed,
            "{} stands under {}, not {}",
            node,
            key,
            order.key(node),
        )
    for alike in order.by_key.values():
        numbers = [order.place[node][1] for node in alike]
        expect(bool(numbers) and numbers == sorted(numbers), "nodes of one key are not in order")
    listed = sum(map(len, order.by_key.values()))
    expect(listed == len(order.nodes), "the order lists {} nodes of {}", listed, len(order.nodes))


# Bindings -------------------------------------------------------------------------------------------------------


def check_physical_binding(cell: PhysicalCell) -> None:
    virtual = cell.virtual
    if virtual is not None:
        expect(virtual.physical is cell, "{} is bound to {}, that to {}", cell, virtual, virtual.physical)
        return
    if cell.parent is not None and cell.parent.virtual is not None:
        expect(not cell.bad_count, "the VC does not see that {} is bad", cell)


def check_virtual_tree(cell: VirtualCell) -> None:
    physical = cell.physical
    if physical is not None:
        expect(physical.virtual is cell, "{} is bound to {}, that to {}", cell, physical, physical.virtual)
        same = (physical.level, physical.chain) == (cell.level, cell.chain)
        expect(same, "{} is bound to {} of another level or chain", cell, physical)
        above = cell.parent.physical if cell.parent is not None else None
        if cell.parent is not None:
            expect(above is physical.parent, "{} is bound to {}, its parent to {}", cell, physical, above)
        elif physical.parent is not None:
            expect(
                physical.parent.virtual is None, "the granted {} lies in a cell of {}", cell, physical.parent.virtual
            )
        is_needed = cell.priority != FREE or physical.bad_count or physical.is_pinned
        expect(bool(is_needed), "{} is bound to {} for no reason", cell, physical)
    else:
        expect(cell.priority == FREE, "{} is in use and not bound", cell)
    for child in cell.children:
        check_virtual_tree(child)


# The books ------------------------------------------------------------------------------------------------------


def check_bad(cells: Cells, chain: Chain, free: set[int]) -> None:
    for level in range(1, chain.top + 1):
        for cell in chain.cells[level]:
            bad = sum(leaf.node in cells.bad_nodes for leaf in cell.leaves() if isinstance(leaf, PhysicalCell))
            expect(cell.bad_count == bad, "{} counts {} bad GPUs, not {}", cell, cell.bad_count, bad)
        whole = {id(cell) for cell in chain.cells[level] if cell.bad_count and id(cell) in free}
        expect(
            set(map(id, chain.bad_free[level])) == whole, "{}: bad free cells of level {} are wrong", chain.name, level
        )
    count = sum(map(len, chain.bad_free))
    expect(chain.bad_free_count == count, "{}: {} bad free cells, not {}", chain.name, chain.bad_free_count, count)


def check_free(chain: Chain, free: set[int]) -> None:
    """Exactly the cells that are free as a whole while their parent is not must be listed."""
    for level in range(1, chain.top + 1):
        here = [cell for cell in chain.cells[level] if id(cell) in free]
        listed = {id(cell) for cell in here if cell.parent is None or id(cell.parent) not in free}
        expect(set(map(id, chain.free[level])) == listed, "{}: the free list of level {} is wrong", chain.name, level)
        expect(
            chain.left[level] == len(here),
            "{}: {} left, counted {} ({})",
            chain.name,
            chain.left[level],
            len(here),
            level,
        )
        for cell in chain.cells[level]:
            expect(cell.is_free_listed == (id(cell) in listed), "{} is listed: {}", cell, cell.is_free_listed)
            is_split = id(cell) not in free and not is_inside_granted(cell)
            expect(cell.is_split == is_split, "{} is split: {}", cell, cell.is_split)


def check_unused(cells: Cells, chain: Chain) -> None:
    total = [0] * (chain.top + 1)
    for vc, tenancy in cells.tenancies.items():
        for level in range(1, chain.top + 1):
            roots = tenancy.roots[chain.name][level] if chain.name in tenancy.roots else []
            unused = sum(root.physical is None for root in roots)
            seen = chain.unused_by[vc][level]
            expect(
                seen == unused,
                "{}: VC {} has {} unused cells of level {}, counted {}",
                chain.name,
                vc,
                seen,
                level,
                unused,
            )
            total[level] += unused
    expect(chain.unused == total, "{}: {} unused cells, counted {}", chain.name, chain.unused, total)


def check_doomed(cells: Cells, chain: Chain) -> None:
    """Bad cells are shown to a VC exactly where it has an idle granted cell, and as many as healthy ones are
    missing."""
    for vc, tenancy in cells.tenancies.items():
        for level in range(1, chain.top + 1):
            roots = tenancy.roots[chain.name][level] if chain.name in tenancy.roots else []
            idle = {id(root.physical) for root in roots if root.physical is not None and root.priority == FREE}
            doomed = chain.doomed[vc][level]
            expect(
                {id(cell) for cell in doomed} == idle, "{}: {} has doomed {} of level {}", chain.name, vc, doomed, level
            )
            expect(len(doomed) == len(idle), "{}: {} has a cell doomed twice", chain.name, vc)
            unused, healthy = chain.unused_by[vc][level], chain.left[level] - len(chain.bad_free[level])
            expect(
                unused <= healthy,
                "{}: {} counts on {} cells of level {}, {} healthy",
                chain.name,
                vc,
                unused,
                level,
                healthy,
            )
            expect(not doomed or unused == healthy, "{}: {} is shown {} for no reason", chain.name, vc, doomed)
    count = sum(len(doomed) for levels in chain.doomed.values() for doomed in levels)
    expect(chain.doomed_count == count, "{}: {} doomed cells, counted {}", chain.name, chain.doomed_count, count)


def check_safety(cells: Cells, chain: Chain) -> None:
    """All unused grants of the VCs could be satisfied at once: counted from the top, cell by cell."""
    for level in range(1, chain.top + 1):
        left, unused = chain.left[level], chain.unused[level]
        expect(left >= unused, "{}: {} cells of level {} left for {}", chain.name, left, level, unused)
    spare = 0
    for level in range(chain.top, 0, -1):
        fan_out = len(chain.cells[level + 1][0].children) if level < chain.top else 0
        spare = spare * fan_out + len(chain.free[level]) - chain.unused[level]
        expect(spare >= 0, "{}: level {} lacks {} cells for what the VCs may still ask for", chain.name, level, -spare)


def is_free(cell: PhysicalCell) -> bool:
    """Free as a whole: no granted cell in it or around it."""
    return not is_inside_granted(cell) and not any(map(is_granted, below(cell)))


def is_inside_granted(cell: PhysicalCell) -> bool:
    found: PhysicalCell | None = cell
    while found is not None:
        if is_granted(found):
            return True
        found = found.parent
    return False


def is_granted(cell: PhysicalCell) -> bool:
    return cell.virtual is not None and cell.virtual.parent is None


def below(cell: PhysicalCell) -> Iterator[PhysicalCell]:
    for child in cell.children:
        yield child
        yield from below(child)


def physical_cells(cells: Cells) -> Iterator[PhysicalCell]:
    return (cell for chain in cells.chains.values() for level in chain.cells for cell in level)


def roots_of(tenancy: Tenancy) -> Iterator[VirtualCell]:
    for levels in tenancy.roots.values():
        for roots in levels:
            yield from roots
    yield from tenancy.pinned.values()


# What a VC may ask for ------------------------------------------------------------------------------------------


def is_within_reach(cells: GangScheduler, request: GangRequest) -> bool:
    """True if the gang fits the VC's own nodes, counting GPUs of lower priorities as free: by exhaustive search."""
    tenancy = cells.tenancies[request.vc]
    if request.pinned:
        names = [f"pinned/{request.pinned}"]
    else:
        kinds = (request.gpu_type,) if request.gpu_type else tuple(cells.by_type)
        names = [name for name in tenancy.roots if cells.chains[name].types[0] in kinds]
    return any(can_pack(rooms(tenancy.nodes[name], request.priority), request.sizes[::-1]) for name in names)


def rooms(nodes: Iterable[BaseCell], priority: int) -> tuple[int, ...]:
    return tuple(sorted(sum(leaf.priority < priority for leaf in node.leaves()) for node in nodes))


def can_pack(free: tuple[int, ...], sizes: list[int]) -> bool:
    """Every pod, largest first, on a node of its own choice."""
    if not sizes:
        return True
    for room in dict.fromkeys(room for room in free if room >= sizes[0]):
        rest = list(free)
        rest.remove(room)
        if can_pack(tuple(sorted([*rest, room - sizes[0]])), sizes[1:]):
            return True
    return False
