"""How VCs see bad nodes: a virtual node is down while it is bound to a bad one."""

from __future__ import annotations

import msgspec

from skep.core import memory
from skep.core.allocation import bits
from skep.core.cells.cells import Cells, Pair
from skep.core.cells.hardware import Hardware
from skep.core.cells.tree import VirtualCell
from skep.core.cluster import Node
from skep.core.memory import Memory, Of, Slot
from skep.core.plan import Plan
from skep.core.view import ClusterView
from skep.policies.shared.agenda import Agenda
from skep.policies.shared.cell_books import CellBooks
from skep.policies.shared.clusters import PrivateBooks
from skep.policies.shared.vc import CELLS, Vc, Vcs


class ShownCells(msgspec.Struct, frozen=True, array_like=True):
    """The bad nodes and cells that VCs are shown."""

    nodes: tuple[str, ...]
    """The nodes that are bad as a whole."""
    doomed: tuple[Pair, ...]
    """Granted cells that are bound to a bad cell because no healthy one is left, in the order in which they were
    shown."""
    inner: tuple[Pair, ...]
    """Parts of granted cells that are bound to a bad cell, larger ones first."""
    parts: tuple[tuple[str, int], ...] = ()
    """Nodes with some bad GPUs, which other tenants use, and a mask of these."""


SHOWN = Slot(memory.SHOWN, ShownCells, Of.ALL)


class CellHealth:
    """Tracks bad nodes. The cost of a decision depends on what has changed, not on the number of VCs or of bad
    nodes."""

    def __init__(self, cells: Cells, hardware: Hardware, vcs: Vcs, agenda: Agenda) -> None:
        self.cells = cells
        self.hardware = hardware
        self.vcs = vcs
        self.agenda = agenda
        self.changed: dict[int, VirtualCell] = {}
        """Virtual cells whose health may have changed, by identity; the cells add themselves."""
        self.places: dict[int, tuple[Vc, CellBooks, Node]] = {}
        self.is_stale = False
        """True if what VCs are shown may differ from the memory."""
        self.kept: ShownCells | None = None
        """What is remembered."""
        for cell in (cell for tenancy in cells.tenancies.values() for cell in tenancy.cells()):
            cell.watched_in = self.changed
        for vc in vcs.values():
            if isinstance(vc.books, CellBooks):
                for node, cell in zip(vc.books.cluster.nodes, vc.books.tops, strict=True):
                    self.places[id(cell)] = (vc, vc.books, node)

    def attach(self, cluster: ClusterView, known: Memory) -> None:
        """Restore the position of the previous planner. Node changes that it did not know are processed at the next
        decision."""
        self.kept = SHOWN.get(known)
        if self.kept is None:
            self.follow(cluster)
            return
        with self.cells.books:
            self.cells.show(self.kept.doomed, self.kept.inner)
            for name in self.kept.nodes:
                self.cells.set_node(name, is_bad=True)
            for name, mask in self.kept.parts:
                self.cells.set_bad(name, mask)
        self.update_vcs()

    def remember(self, plan: Plan) -> None:
        """Which bad cells VCs are shown cannot be recomputed: it depends on the order of events."""
        if not self.is_stale:
            return
        self.is_stale = False
        shown = self._shown() if self.cells.bad_nodes else None
        if shown != self.kept:
            self.kept = shown
            plan.remember(SHOWN, "", shown)

    def _shown(self) -> ShownCells:
        bad = sorted(self.cells.bad_nodes.items())
        whole = tuple(name for name, mask in bad if mask == self.cells.mask_of(name))
        return ShownCells(whole, *self.cells.shown(), tuple((name, mask) for name, mask in bad if name not in whole))

    def follow(self, cluster: ClusterView) -> None:
        """Nodes were lost or came back; update the VCs that see the change."""
        if self.vcs.sharing != CELLS:
            for vc in self.vcs.values():
                if isinstance(vc.books, PrivateBooks):
                    vc.books.follow(cluster)
                self.agenda.trigger(vc).nodes_changed = True
            return
        for name, mask in self._bad(cluster).items():
            if self.cells.bad_nodes.get(name, 0) != mask:
                self.cells.set_bad(name, mask)
                self.is_stale = True
        self.update_vcs()

    def _bad(self, cluster: ClusterView) -> dict[str, int]:
        """The bad GPUs of each machine: all if it is down, else those that tenants outside Skep use, because cells are
        guaranteed whole. A machine with GPUs of two types is two nodes, and up if both are."""
        found = {name: self.cells.mask_of(name) for name in self.hardware.missing}
        for node, leaves in zip(cluster.nodes, self.hardware.leaves, strict=True):
            if not leaves:
                continue
            name = leaves[0].node
            mask = 0
            if not node.is_up:
                mask = self.cells.mask_of(name)
            elif others := node.others_mask & (1 << len(leaves)) - 1:
                positions = [self.cells.nodes[name].index(leaves[gpu]) for gpu in bits(others)]
                mask = sum(1 << position for position in positions)
            found[name] = found.get(name, 0) | mask
        return found

    def notice(self, now_s: float) -> None:
        """What a VC sees of bad nodes may change when others release cells: the VC is called again at once."""
        for vc in self.update_vcs():
            self.agenda.set_wake(vc, now_s)

    def update_vcs(self) -> list[Vc]:
        """Mark the nodes of VCs as up or down. Returns the VCs that see a change, in order; each is called."""
        found: dict[int, Vc] = {}
        self.is_stale = self.is_stale or bool(self.changed)
        for key, cell in self.changed.items():
            if key not in self.places:
                continue  # larger than a node, or part of one
            vc, books, node = self.places[key]
            is_up = cell.physical is None or cell.physical.is_healthy
            if is_up != node.is_up:
                (books.cluster.restore if is_up else books.cluster.lose)(node)
                found[vc.number] = vc
        self.changed.clear()
        changed = [found[number] for number in sorted(found)]
        for vc in changed:
            self.agenda.trigger(vc).nodes_changed = True
        return changed
