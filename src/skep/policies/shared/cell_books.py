"""The cells of a VC: virtual GPUs that are bound to physical ones while they are used."""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec

from skep.core.allocation import Seat, gpus_in
from skep.core.cells.binding import Bindings, bind_sparing, by_layout
from skep.core.cells.books import Run, runs_of
from skep.core.cells.cells import Cells
from skep.core.cells.chain import Chain
from skep.core.cells.hardware import Hardware, node_spec, within
from skep.core.cells.layout import VcLayout
from skep.core.cells.tree import FREE, GUARANTEED_MIN, OPPORTUNISTIC, PhysicalCell, VirtualCell, set_use
from skep.core.cluster import TRIAL, Allocation, Cluster, Slice, bits
from skep.core.errors import InvariantBroken
from skep.core.refusal import Cause
from skep.core.view import ClusterView, NodeView
from skep.policies.place.base import has_extras
from skep.policies.shared.clusters import Gpus, VcBooks

Lent = dict[int, set[int]]
"""GPU cells (by identity) that borrowers run on → seqs of these jobs: several if they share the GPU."""


class CellsShown(Cluster):
    """The virtual cells of a VC as nodes."""

    def why_not(self, gpus: int, free: int) -> Cause:
        """A VC that is full has used up its quota, whatever else is free."""
        return Cause.FRAGMENTATION if 0 < gpus <= free else Cause.QUOTA


class Bound:
    """What an allocation of a VC is bound to: the physical GPU of each virtual one."""

    __slots__ = ("allocation", "leaves", "runs", "virtuals")

    def __init__(self, allocation: Allocation, leaves: list[PhysicalCell], virtuals: list[VirtualCell]) -> None:
        self.allocation = allocation
        self.leaves = leaves
        self.virtuals = virtuals
        self.runs = runs_of(leaves, virtuals)


NOTHING_GIVEN: tuple[int, Bound | None] = (TRIAL, None)


class CellBooks(VcBooks):
    """The virtual cells of the VC, or of one of its pinned cells, bound to physical ones while in use."""

    def __init__(self, vc: str, cells: Cells, hardware: Hardware, lent: Lent, pinned: str = "") -> None:
        self.pinned = pinned
        self.cells = cells
        self.hardware = hardware
        self.lent = lent
        """Loans: taking one of these GPUs evicts its borrowers."""
        self.virtual: list[list[VirtualCell]] = []
        """The virtual GPUs of each node."""
        self.tops: list[VirtualCell] = []
        self.chains: dict[str, tuple[Chain, Callable[[PhysicalCell], bool]]] = {}
        """The chains of its nodes, and which of their cells can be bound."""
        specs = []
        tenancy = cells.tenancies[vc]
        for name in [f"pinned/{pinned}"] if pinned else tenancy.roots:
            for node in tenancy.nodes[name]:
                specs.append(node_spec(cells.layout, cells.chains[node.chain], node, node.address, within(node)))
                self.tops.append(node)
                chain = cells.chains[node.chain]
                self.chains[node.chain] = (chain, functools.partial(is_usable, chain=chain))
                self.virtual.append([leaf for leaf in node.leaves() if isinstance(leaf, VirtualCell)])
        self.sharers: dict[int, int] = {}
        """The number of additional jobs on a virtual GPU that several share, by its identity."""
        self.given: tuple[int, Bound | None] = NOTHING_GIVEN
        """The last job that released something, and the released allocation. Dropped with the allocation."""
        self.bound: dict[int, Bound] = {}
        """The binding of each allocation, by its identity, as long as it might be taken again."""
        super().__init__(CellsShown(specs, vc))

    def leaves_of(self, allocation: Allocation) -> list[VirtualCell]:
        found = []
        for piece in allocation.slices:
            gpus = self.virtual[piece.node]
            for gpu in gpus_in(piece.gpus):
                found.append(gpus[gpu])
        return found

    def bindings(self, allocation: Allocation) -> Bound | None:
        """Physical GPUs for the virtual ones; None if that would need a bad node."""
        virtuals = self.leaves_of(allocation)
        if len(self.chains) == 1:
            [(chain, is_usable)] = self.chains.values()
            leaves = bind_sparing(chain, is_usable, by_layout, virtuals)
            return None if leaves is None else Bound(allocation, leaves, virtuals)
        found: Bindings = {}
        for chain, is_usable in self.chains.values():  # nodes of different shapes may have equal GPUs
            wanted = [virtual for virtual in virtuals if virtual.chain == chain.name]
            bound = bind_sparing(chain, is_usable, by_layout, wanted)
            if bound is None:
                return None
            found.update((id(virtual), leaf) for virtual, leaf in zip(wanted, bound, strict=True))
        return Bound(allocation, [found[id(virtual)] for virtual in virtuals], virtuals)

    def nodes_behind(self) -> list[int]:
        """A machine with GPUs of two types is two nodes, and used if both are up."""
        firsts = {number: leaves[0] for number, leaves in enumerate(self.hardware.leaves) if leaves}
        machines = {leaf.node for leaf in firsts.values() if leaf.chain in self.chains}
        return [number for number, leaf in firsts.items() if leaf.node in machines]

    def allows(self, allocation: Allocation) -> bool:
        if not self.cells.bad_nodes or self.ignores_bad or self.bindings(allocation) is not None:
            return True
        self.is_refused = True
        return False

    def take(self, allocation: Allocation, owner: int) -> None:
        bound = self.bound.get(id(allocation))
        if bound is None and self.given[0] == owner:
            bound = self._kept(allocation)
        if bound is None:
            bound = self.bindings(allocation)
        if bound is None:
            raise InvariantBroken(f"VC {self.cluster.name} has a guarantee that cannot be bound to physical cells")
        self._take(bound, owner)

    def _kept(self, allocation: Allocation) -> Bound | None:
        """The previous binding of the GPUs of a job that stays in place (it is suspended, resumed or gets other
        terms)."""
        given = self.given[1]
        if given is None:
            return None
        if given.allocation.is_suspended == allocation.is_suspended and not allocation.has_seats_of(given.allocation):
            return None
        virtuals = self.leaves_of(allocation)
        is_same = [id(virtual) for virtual in given.virtuals] == [id(virtual) for virtual in virtuals]
        return Bound(allocation, given.leaves, virtuals) if is_same else None

    def _take(self, bound: Bound, owner: int) -> None:
        self.cluster.take(bound.allocation, owner)
        self.bound[id(bound.allocation)] = bound
        if len(bound.runs) == 1:
            self._take_run(*bound.runs[0])
            return
        with self.cells.books:  # settled too early, a cell that the next GPU needs might be bound to a bad one
            for run in bound.runs:
                self._take_run(*run)

    def _take_run(self, leaves: list[PhysicalCell], virtuals: list[VirtualCell]) -> None:
        for virtual in virtuals:
            if virtual.priority != FREE:
                break
        else:
            self.cells.books.take_run(leaves, virtuals, GUARANTEED_MIN)
            return
        for leaf, virtual in zip(leaves, virtuals, strict=True):
            if virtual.priority != FREE:
                self.sharers[id(virtual)] = self.sharers.get(id(virtual), 0) + 1
            else:
                self.cells.books.take_gpu(leaf, virtual, GUARANTEED_MIN)

    def give(self, allocation: Allocation, owner: int) -> None:
        bound = self.bound[id(allocation)]
        self._give(bound, owner)
        self.given = (owner, bound)

    def _give(self, bound: Bound, owner: int) -> None:
        self.cluster.give(bound.allocation, owner)
        if len(bound.runs) == 1:
            self._give_run(*bound.runs[0])
            return
        with self.cells.books:
            for run in bound.runs:
                self._give_run(*run)

    def _give_run(self, leaves: list[PhysicalCell], virtuals: list[VirtualCell]) -> None:
        if self.sharers:
            leaves, virtuals = self._last_on(leaves, virtuals)
        if leaves:
            self.cells.books.give_run(leaves, virtuals)
        if self.lent:
            for leaf in leaves:
                if id(leaf) in self.lent:
                    set_use(leaf, OPPORTUNISTIC)

    def _last_on(self, leaves: list[PhysicalCell], virtuals: list[VirtualCell]) -> Run:
        """The GPUs among these that no other job uses."""
        left: Run = ([], [])
        for leaf, virtual in zip(leaves, virtuals, strict=True):
            count = self.sharers.pop(id(virtual), 0)
            if count > 1:
                self.sharers[id(virtual)] = count - 1
            if not count:
                left[0].append(leaf)
                left[1].append(virtual)
        return left

    def ended(self, allocation: Allocation, owner: int) -> None:
        self._give(self.bound.pop(id(allocation)), owner)
        self.given = NOTHING_GIVEN

    def forget(self, allocation: Allocation) -> Callable[[], None]:
        self.given = NOTHING_GIVEN
        bound = self.bound.pop(id(allocation))

        def know() -> None:
            self.bound[id(allocation)] = bound

        return know

    def physical(self, allocation: Allocation) -> Allocation:
        leaves = self.bound[id(allocation)].leaves
        seats = seats_behind(allocation, leaves) if allocation.seats else ()
        if len(allocation.slices) == 1:
            slices = self.hardware.slices(leaves, allocation.slices[0])
            return Allocation(tuple(slices), allocation.gpus, seats=seats)
        slices = []
        first = 0
        for piece in allocation.slices:
            end = first + piece.gpus.bit_count()
            slices += self.hardware.slices(leaves[first:end], piece)
            first = end
        return Allocation(tuple(slices), allocation.gpus, seats=seats)

    def gpus_behind(self, allocation: Allocation) -> Gpus:
        return tuple([leaf.place for leaf in self.bound[id(allocation)].leaves])

    def adopt(self, allocation: Allocation, gpus: Gpus, owner: int) -> None:
        leaves = [self.hardware.leaves[node][bit] for node, bit in gpus]
        self._take(Bound(allocation, leaves, self.leaves_of(allocation)), owner)


def cell_books(vc: VcLayout, cells: Cells, hardware: Hardware, lent: Lent) -> list[CellBooks]:
    """Everything a VC owns: what any of its jobs may use, and each of its pinned cells separately."""
    return [CellBooks(vc.name, cells, hardware, lent, pinned) for pinned in ("", *vc.pinned)]


def with_cpu_pieces(physical: Allocation, virtual: Allocation, cluster: ClusterView) -> Allocation:
    """Also the slices without GPUs, which are not bound to cells: each goes to the first node where it fits."""
    pieces = [piece for piece in virtual.slices if not piece.gpus]
    if not pieces:
        return physical
    slices = list(physical.slices)
    for piece in pieces:
        node = next((node for node in cluster.nodes if has_room(node, piece)), None)
        if node is not None:
            slices.append(msgspec.structs.replace(piece, node=node.index))
        else:  # guaranteed by the VC and fragmented: it runs where it can, and is not booked
            first = next((node for node in cluster.nodes if node.is_up), cluster.nodes[0])
            slices.append(msgspec.structs.replace(piece, node=first.index, cpu_milli=0, memory_mib=0, extras=()))
    return msgspec.structs.replace(physical, slices=tuple(slices))


def seats_behind(allocation: Allocation, leaves: list[PhysicalCell]) -> tuple[Seat, ...]:
    """The seats of tasks on the physical GPUs; `leaves` are the physical GPUs of each virtual one, in order. If a task
    would have GPUs of two machines, all tasks get default seats."""
    virtual = [(piece.node, gpu) for piece in allocation.slices for gpu in bits(piece.gpus)]
    places = {at: leaf.place for at, leaf in zip(virtual, leaves, strict=True)}
    found = []
    for seat in (seat for seat in allocation.seats if seat.gpus):
        behind = [places[seat.node, gpu] for gpu in seat.gpus]
        if len({node for node, _ in behind}) > 1:
            return ()
        found.append(Seat(seat.role, behind[0][0], tuple(gpu for _, gpu in behind)))
    return tuple(found)


def has_room(node: NodeView, piece: Slice) -> bool:
    is_enough = node.cpu_free >= piece.cpu_milli and node.memory_free >= piece.memory_mib
    return node.is_up and is_enough and has_extras(node, piece.extras)


def is_usable(cell: PhysicalCell, chain: Chain) -> bool:
    return cell.virtual is None and not (cell.bad_count and cell.level <= chain.node_level)
