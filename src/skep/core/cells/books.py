"""Giving cells to VCs and taking them back: bindings, counters, and the bad hardware that a VC sees.

The counters of a chain change when a granted cell is bound to a physical one or unbound, and when a free cell becomes
bad or healthy. After each change, *doomed* cells are settled: a VC for which too few healthy cells are left gets a bad
one bound, so that it sees the failure in place of a cell it could otherwise count on.
"""

from __future__ import annotations

from skep.core.cells.chain import Chain, Tenancy
from skep.core.cells.tree import (
    FREE,
    GUARANTEED_MIN,
    OPPORTUNISTIC,
    BaseCell,
    PhysicalCell,
    VirtualCell,
    set_use,
    set_uses,
)


class ChainBooks:
    def __init__(self, chains: dict[str, Chain], tenancies: dict[str, Tenancy]) -> None:
        self.chains = chains
        self.tenancies = tenancies
        self.depth = 0
        self.unsettled: dict[str, Chain] = {}
        """Chains whose doomed cells must be settled at the end of a change."""
        self.unshown: list[PhysicalCell] = []
        """Cells given to a VC in this change that contain bad GPUs."""
        for vc, tenancy in tenancies.items():
            for name, chain in chains.items():
                chain.unused_by[vc] = [0] * len(chain.cells)
                chain.doomed[vc] = [[] for _ in chain.cells]
                for level, roots in enumerate(tenancy.roots.get(name, ())):
                    chain.unused_by[vc][level] = len(roots)
                    chain.unused[level] += len(roots)

    def __enter__(self) -> None:
        """Begin a change of several GPUs: doomed cells are settled at its end. Otherwise a granted cell that the change
        is about to use could be bound to a bad one."""
        self.depth += 1

    def __exit__(self, *raised: object) -> None:
        self.depth -= 1
        if not self.depth:
            while self.unshown:
                self._show_below(self.unshown.pop())
            while self.unsettled:
                self.settle_doomed(self.unsettled.popitem()[1])

    # GPUs ------------------------------------------------------------------------------------------------------

    def take_gpu(self, leaf: PhysicalCell, virtual: VirtualCell | None, priority: int) -> bool:
        """Mark a GPU as used; false if that violates the guarantees of others (only after a reconfiguration)."""
        if virtual is None:
            set_use(leaf, OPPORTUNISTIC)
            return True
        return self.take_run([leaf], [virtual], priority)

    def take_run(self, leaves: list[PhysicalCell], virtuals: list[VirtualCell], priority: int) -> bool:
        """`take_gpu` for several adjacent GPUs, physical and virtual (see `runs_of`)."""
        root = virtuals[0].root
        held = root.physical
        if held is not None and root.priority == FREE and not root.pinned:
            self.chains[held.chain].undoom(root.vc, held)  # it is really used now
            watch(held)
        set_uses(virtuals, priority)
        set_uses(leaves, priority)
        for leaf, virtual in zip(leaves, virtuals, strict=True):
            if leaf.virtual is None:
                bind(leaf, virtual)
        if held is not None:
            return True
        assert root.physical is not None
        return self.grant(root.physical, root.vc)

    def give_gpu(self, leaf: PhysicalCell) -> None:
        virtual = leaf.virtual
        if virtual is not None and virtual.priority != FREE:
            set_use(virtual, FREE)
            held = virtual.root.physical
            if leaf.is_healthy:
                unbind(leaf)
            if virtual.root.priority < GUARANTEED_MIN and not virtual.root.pinned:
                assert held is not None
                self.take_back(held, virtual.vc)
        set_use(leaf, FREE)

    def give_run(self, leaves: list[PhysicalCell], virtuals: list[VirtualCell]) -> None:
        """`give_gpu` for several adjacent GPUs."""
        if any(leaf.bad_count for leaf in leaves):  # these stay bound
            for leaf in leaves:
                self.give_gpu(leaf)
            return
        root = virtuals[0].root
        held = root.physical
        set_uses(virtuals, FREE)
        *others, last = leaves
        for leaf in others:
            part_pair(leaf)
        unbind(last)
        if root.priority < GUARANTEED_MIN and not root.pinned:
            assert held is not None
            self.take_back(held, root.vc)
        set_uses(leaves, FREE)

    # Granted cells ---------------------------------------------------------------------------------------------

    def grant(self, cell: PhysicalCell, vc: str) -> bool:
        """A VC uses one of its cells: bind it to this physical cell."""
        chain = self.chains[cell.chain]
        self.grant_quietly(chain, cell, vc)
        if cell.bad_count and self.depth:
            self.unshown.append(cell)
        elif cell.bad_count:
            self._show_below(cell)
        is_safe = self.is_safe(chain)
        self.settle_doomed(chain)
        return is_safe

    def is_safe(self, chain: Chain) -> bool:
        """True if all unused grants of the VCs could be satisfied at once: larger cells first, the rest split.

        `left >= unused` at every level is not enough: a cell can be used as a whole or in pieces, not both.
        """
        spare = 0
        for level in range(chain.top, 0, -1):
            spare += len(chain.free[level].cells) - chain.unused[level]
            if spare < 0:
                return False
            spare *= chain.fan_out[level]
        return True

    def take_back(self, cell: PhysicalCell, vc: str) -> None:
        """A VC no longer uses this cell."""
        chain = self.chains[cell.chain]
        self._take_back_quietly(chain, cell, vc)
        self.settle_doomed(chain)

    def _count(self, chain: Chain, cell: PhysicalCell, up_to: int, sign: int) -> None:
        for level in range(cell.level, up_to + 1):
            chain.left[level] += sign
        below = cell.children
        count = len(below)
        for level in range(cell.level - 1, 0, -1):
            chain.left[level] += sign * count
            below = below[0].children
            count *= len(below)

    def _mark_bad(self, chain: Chain, cell: PhysicalCell, up_to: int, *, is_free: bool) -> None:
        """Update `bad_free`, the bad cells among those left."""
        above: PhysicalCell | None = cell
        while above is not None and above.level <= up_to:
            if above.bad_count:
                self._set_bad_free(chain, above, is_free=is_free)
            above = above.parent
        if cell.bad_count:
            for child in cell.children:
                self._mark_bad_below(chain, child, is_free=is_free)

    def _mark_bad_below(self, chain: Chain, cell: PhysicalCell, *, is_free: bool) -> None:
        if cell.bad_count:
            self._set_bad_free(chain, cell, is_free=is_free)
            for child in cell.children:
                self._mark_bad_below(chain, child, is_free=is_free)

    def _set_bad_free(self, chain: Chain, cell: PhysicalCell, *, is_free: bool) -> None:
        listed = chain.bad_free[cell.level]
        if is_free != (cell in listed):
            (listed.add if is_free else listed.remove)(cell)
            chain.bad_free_count += 1 if is_free else -1

    # Health ----------------------------------------------------------------------------------------------------

    def set_health(self, leaf: PhysicalCell, *, is_bad: bool) -> None:
        """A GPU becomes bad or healthy; update the cells above it. Doomed cells must be settled after the last GPU."""
        if bool(leaf.bad_count) == is_bad:
            return
        chain = self.chains[leaf.chain]
        chain.is_eased = True
        changed = []
        cell: PhysicalCell | None = leaf
        while cell is not None:
            before = cell.bad_count
            cell.bad_count += 1 if is_bad else -1
            if not before or not cell.bad_count:
                changed.append(cell)
                notice(cell)
                notice(cell.virtual)
                watch(cell)
            cell = cell.parent
        for cell in reversed(changed) if is_bad else changed:
            if chain.is_within_free(cell):
                self._set_bad_free(chain, cell, is_free=is_bad)
            elif is_bad:
                self._show(cell)
            else:
                self._unshow(cell)

    def _show(self, cell: PhysicalCell) -> None:
        """A bad cell inside one that a VC uses: bind it, so that the VC does not count on it."""
        above = cell.parent.virtual if cell.parent is not None else None
        if cell.virtual is None and not cell.is_split and above is not None:
            spare = next((child for child in above.children if child.physical is None), None)
            if spare is not None:
                bind_pair(cell, spare)

    def _show_below(self, cell: PhysicalCell) -> None:
        for child in cell.children if cell.virtual is not None else ():
            if child.bad_count:
                self._show(child)
                self._show_below(child)

    def _unshow(self, cell: PhysicalCell) -> None:
        """Release a binding that exists only because the cell was bad."""
        virtual = cell.virtual
        if virtual is not None and virtual.priority == FREE and virtual.root is not virtual and not cell.is_pinned:
            part_pair(cell)

    def settle_doomed(self, chain: Chain) -> None:
        """Show as many bad cells to the VCs as healthy ones are missing, and no more."""
        if not chain.doomed_count and not chain.bad_free_count:
            return
        if self.depth:
            self.unsettled[chain.name] = chain
            return
        levels = range(chain.top, 0, -1)
        for settle in (self._give_healed, self._undoom, self._doom):
            for level in levels:
                settle(chain, level)

    def _doom(self, chain: Chain, level: int) -> None:
        for vc in chain.unused_by:
            while chain.unused_by[vc][level] > chain.left[level] - len(chain.bad_free[level]):
                bad = next((cell for cell in chain.bad_free[level] if cell.virtual is None), None)
                root = self._unbound_root(vc, chain.name, level)
                if bad is None or root is None:
                    break
                bind_pair(bad, root)
                chain.doom(vc, bad)
                self.grant_quietly(chain, bad, vc)
                self._show_below(bad)

    def _give_healed(self, chain: Chain, level: int) -> None:
        """Unbind doomed cells first: others may have enough with the cells that are healthy again."""
        for vc, levels in chain.doomed.items():
            for cell in [cell for cell in levels[level] if not cell.bad_count]:
                chain.undoom(vc, cell)
                self._take_back_quietly(chain, cell, vc)

    def _undoom(self, chain: Chain, level: int) -> None:
        for vc, levels in chain.doomed.items():
            doomed = levels[level]
            while doomed and chain.unused_by[vc][level] < chain.left[level] - len(chain.bad_free[level]):
                cell = doomed[0]
                chain.undoom(vc, cell)
                self._take_back_quietly(chain, cell, vc)

    def grant_quietly(self, chain: Chain, cell: PhysicalCell, vc: str) -> None:
        chain.unused_by[vc][cell.level] -= 1
        chain.unused[cell.level] -= 1
        split_to = chain.take(cell)
        self._count(chain, cell, split_to, -1)
        self._mark_bad(chain, cell, split_to, is_free=False)

    def _take_back_quietly(self, chain: Chain, cell: PhysicalCell, vc: str) -> None:
        if cell.virtual is not None:  # bound only because something in it is bad
            unbind_all(cell)
        chain.unused_by[vc][cell.level] += 1
        chain.unused[cell.level] += 1
        merged_to = chain.give(cell)
        self._count(chain, cell, merged_to, +1)
        self._mark_bad(chain, cell, merged_to, is_free=True)

    def _unbound_root(self, vc: str, chain: str, level: int) -> VirtualCell | None:
        roots = self.tenancies[vc].roots.get(chain)
        return next((root for root in roots[level] if root.physical is None), None) if roots else None


Run = tuple[list[PhysicalCell], list[VirtualCell]]
"""GPUs in one physical cell, and as many in one virtual cell that is bound to it or will be."""


def runs_of(leaves: list[PhysicalCell], virtuals: list[VirtualCell]) -> list[Run]:
    """These pairs in order; adjacent ones can be taken and given in one step."""
    found: list[Run] = []
    around: PhysicalCell | None = None
    above: VirtualCell | None = None
    for leaf, virtual in zip(leaves, virtuals, strict=True):
        if above is not None and virtual.parent is above and leaf.parent is around:
            found[-1][0].append(leaf)
            found[-1][1].append(virtual)
        else:
            found.append(([leaf], [virtual]))
            around, above = leaf.parent, virtual.parent
    return found


def bind_pair(physical: PhysicalCell, virtual: VirtualCell) -> None:
    physical.virtual = virtual
    virtual.physical = physical
    if physical.bad_count:
        watch(physical)
    if virtual.watcher is not None:
        virtual.watcher.touch(virtual)


def part_pair(physical: PhysicalCell) -> None:
    virtual = physical.virtual
    if virtual is not None:
        if physical.bad_count:
            watch(physical)
        physical.virtual = None
        virtual.physical = None
        if virtual.watcher is not None:
            virtual.watcher.touch(virtual)


def notice(cell: BaseCell | None) -> None:
    """Notify the watcher of the node: its position in the node order may change."""
    if cell is not None and cell.watcher is not None:
        cell.watcher.touch(cell)


def watch(cell: PhysicalCell) -> None:
    """The health or the binding of the cell changed: the health of the virtual cell may have changed."""
    virtual = cell.virtual
    if virtual is not None and virtual.watched_in is not None:
        virtual.watched_in[id(virtual)] = virtual


def bind(leaf: PhysicalCell, virtual: VirtualCell) -> None:
    """Bind two GPUs, and the cells above them up to the first bound ones."""
    physical: PhysicalCell | None = leaf
    cell: VirtualCell | None = virtual
    while cell is not None and cell.physical is None:
        assert physical is not None
        bind_pair(physical, cell)
        physical, cell = physical.parent, cell.parent


def unbind(leaf: PhysicalCell) -> None:
    """Unbind a GPU, and the cells above it as long as nothing below them is bound."""
    physical: PhysicalCell | None = leaf
    while physical is not None and physical.virtual is not None and not physical.is_pinned:
        above = physical.virtual.parent
        part_pair(physical)
        if above is None:
            return
        for child in above.children:
            if child.physical is not None:
                return
        physical = physical.parent


def unbind_all(cell: PhysicalCell) -> None:
    """Unbind a cell and everything below it."""
    part_pair(cell)
    for child in cell.children:
        unbind_all(child)
