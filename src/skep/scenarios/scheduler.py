"""Gangs on the cells of a cluster: HiveD's scheduler by itself, without jobs, queues or time.

    ask       a pure query: where could this gang go, and which gangs would have to leave?
    allocate  give a placement to a gang
    reserve   give it a placement that others must still leave; `cancel` reverts that
    release   a gang is gone

Scenarios call it pod by pod.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection

from skep.core.cells.binding import bind_sparing, by_history
from skep.core.cells.books import bind_pair
from skep.core.cells.cells import Cells
from skep.core.cells.chain import Chain
from skep.core.cells.layout import Layout
from skep.core.cells.tree import OPPORTUNISTIC, BaseCell, PhysicalCell, VirtualCell
from skep.core.errors import InputError
from skep.scenarios.gangs import (
    Gang,
    GangAnswer,
    GangRequest,
    GangState,
    GangUse,
    Occupancy,
    Placement,
    VirtualPlacement,
    WaitCause,
)
from skep.scenarios.node_order import NodeOrder, Sorts
from skep.scenarios.packing import Seat, Seats, search, seat_gpus, walk

Nodes = Collection[str]


class GangScheduler(Cells):
    def __init__(self, layout: Layout, sorts: Sorts = Sorts.AT_ONCE) -> None:
        super().__init__(layout)
        self.gangs: dict[str, Gang] = {}
        self.by_type: dict[str, list[Chain]] = {}
        self.occupancies: dict[int, Occupancy] = {}
        """By GPU cell (its identity)."""
        self.physical_order: dict[str, NodeOrder] = {}
        """The nodes of each chain."""
        self.virtual_order: dict[str, dict[str, NodeOrder]] = {}
        """By VC: the nodes of what it owns, named as in `Tenancy.nodes`."""
        for name in sorted(self.chains, reverse=True):
            chain = self.chains[name]
            self.by_type.setdefault(chain.types[0], []).append(chain)
            self.occupancies.update((id(leaf), Occupancy()) for leaf in chain.cells[1])
            nodes = chain.cells[chain.node_level]
            self.physical_order[name] = NodeOrder(nodes, keeps_apart=True, sorts=sorts)
        for vc, tenancy in self.tenancies.items():
            self.virtual_order[vc] = {name: NodeOrder(nodes, sorts=sorts) for name, nodes in tenancy.nodes.items()}

    def on(self, leaf: PhysicalCell) -> Occupancy:
        """The holders of this GPU: its user, and its next user."""
        return self.occupancies[id(leaf)]

    # Questions -------------------------------------------------------------------------------------------------

    def check(self, request: GangRequest) -> None:
        """Refuse requests that no cell of this configuration could satisfy."""
        tenancy = self.tenancies.get(request.vc)
        if tenancy is None:
            raise InputError(f"there is no virtual cluster '{request.vc}'")
        if not OPPORTUNISTIC <= request.priority <= 1000:
            raise InputError(f"priority is {request.priority}, expected -1 (opportunistic) or 0 to 1000")
        if request.pinned:
            if request.pinned not in tenancy.pinned:
                raise InputError(f"VC {request.vc} has no pinned cell '{request.pinned}'")
            if request.priority == OPPORTUNISTIC:
                raise InputError("opportunistic work cannot use a pinned cell")
        elif request.gpu_type:
            if request.gpu_type not in self.by_type:
                raise InputError(f"there is no GPU type '{request.gpu_type}'")
            if request.priority != OPPORTUNISTIC and not self.chains_for(request):
                raise InputError(f"VC {request.vc} has no GPUs of type {request.gpu_type}")

    def chains_for(self, request: GangRequest) -> list[Chain]:
        """The chains to try, in order."""
        kinds = [request.gpu_type] if request.gpu_type else sorted(self.by_type)
        chains = [chain for kind in kinds for chain in self.by_type.get(kind, ())]
        if request.priority == OPPORTUNISTIC:
            return chains
        return [chain for chain in chains if chain.name in self.tenancies[request.vc].roots]

    def ask(self, request: GangRequest, suggested: Nodes | None = None) -> GangAnswer:
        """Where the gang could go. Nothing is changed; gangs that would lose their guarantee are among the victims only
        if they would have to leave."""
        self.check(request)
        nodes = suggested if request.only_suggested else None
        answer = self._ask(request, nodes, walk)
        if len(request.pods) == 1 or (answer.placement is not None and not answer.victims):
            return answer
        other = self._ask(request, nodes, search)
        if other.placement is None or (answer.placement is not None and not spares(other, answer)):
            return answer
        other.is_searched = answer.placement is None
        return other

    def _ask(self, request: GangRequest, suggested: Nodes | None, seat: Seat) -> GangAnswer:
        """The answer of the first chain that fits."""
        if request.pinned:
            root = self.tenancies[request.vc].pinned[request.pinned]
            return self._ask_guaranteed(request, self.chains[root.chain], f"pinned/{request.pinned}", suggested, seat)
        answer = GangAnswer(cause=WaitCause.NO_CELLS)
        for chain in self.chains_for(request):
            if request.priority == OPPORTUNISTIC:
                answer = self._ask_opportunistic(request, chain, suggested, seat)
            else:
                answer = self._ask_guaranteed(request, chain, chain.name, suggested, seat)
            if answer.placement is not None:
                break
        return answer

    def _ask_opportunistic(self, request: GangRequest, chain: Chain, suggested: Nodes | None, seat: Seat) -> GangAnswer:
        nodes = self.physical_order[chain.name]
        nodes.sort(suggested)
        if request.gpu_count > nodes.gpu_count:
            return GangAnswer(cause=WaitCause.CLUSTER_FULL)
        seats = seat(nodes, request.sizes, OPPORTUNISTIC, lambda node: self._is_good(node, suggested))
        if seats is None:
            return GangAnswer(cause=self._why(nodes, request, OPPORTUNISTIC, suggested, WaitCause.CLUSTER_FULL))
        # Seats of physical cells give physical ones.
        return GangAnswer(Placement(chain.name, seat_gpus(seats, OPPORTUNISTIC), None))  # type: ignore[arg-type]

    def _ask_guaranteed(
        self, request: GangRequest, chain: Chain, part: str, suggested: Nodes | None, seat: Seat
    ) -> GangAnswer:
        nodes = self.virtual_order[request.vc][part]
        nodes.sort(suggested)
        if request.gpu_count > nodes.gpu_count:  # a gang of a billion pods is not even expanded
            return GangAnswer(cause=WaitCause.VC_FULL)
        for priority in (OPPORTUNISTIC, request.priority):  # first without preempting gangs of its own VC
            seats = seat(nodes, request.sizes, priority, lambda node: self._is_good_virtual(node, suggested))
            if seats is not None:
                return self._bind(request, chain, seats, priority, suggested)
        return GangAnswer(cause=self._why(nodes, request, request.priority, suggested, WaitCause.VC_FULL))

    def _bind(
        self, request: GangRequest, chain: Chain, seats: Seats, priority: int, suggested: Nodes | None
    ) -> GangAnswer:
        with self.books:
            # Seats of virtual cells give virtual ones.
            virtual: list[list[VirtualCell]] = seat_gpus(seats, priority)  # type: ignore[assignment]
            leaves = [leaf for pod in virtual for leaf in pod]
            lazy = self._lazy_victims(leaves)
            bound = [pair for gang in lazy for pair in bound_around(gang)]
            downgraded = [(gang, self.downgrade(gang)) for gang in lazy]
            bindings = bind_sparing(chain, lambda cell: self._is_usable(cell, chain, suggested), by_history, leaves)
            answer = GangAnswer(
                cause=WaitCause.NO_HEALTHY_MAPPING if suggested is None else WaitCause.NO_SUGGESTED_MAPPING
            )
            if bindings is not None:
                left = iter(bindings)
                physical = [list(itertools.islice(left, len(pod))) for pod in virtual]
                victims = self._users(physical)
                answer = GangAnswer(Placement(chain.name, physical, virtual), victims)
            for gang, before in reversed(downgraded):
                self._upgrade(gang, before)
            for cell, shown in bound:  # bad cells that the VC was shown are bound again as before
                bind_pair(cell, shown)
            return answer

    def _lazy_victims(self, leaves: list[VirtualCell]) -> list[Gang]:
        """Gangs on these cells that may lose their guarantee instead of being stopped."""
        found: dict[str, Gang] = {}
        for leaf in leaves:
            held = self.on(leaf.physical) if leaf.physical is not None else None
            if held is not None and held.use is GangUse.USED and held.gang is not None and held.gang.request.is_lazy:
                found[held.gang.name] = held.gang
        return list(found.values())

    def _users(self, physical: list[list[PhysicalCell]]) -> list[Gang]:
        found: dict[str, Gang] = {}
        for gpu in (self.on(leaf) for pod in physical for leaf in pod):
            if gpu.gang is not None and gpu.use in (GangUse.USED, GangUse.RESERVING):
                found[gpu.gang.name] = gpu.gang
        return list(found.values())

    def _is_good(self, node: BaseCell, suggested: Nodes | None) -> bool:
        assert isinstance(node, PhysicalCell)
        return node.is_healthy and (suggested is None or node.node in suggested)

    def _is_good_virtual(self, node: BaseCell, suggested: Nodes | None) -> bool:
        """What is not bound yet can still become anything."""
        assert isinstance(node, VirtualCell)
        return node.physical is None or self._is_good(node.physical, suggested)

    def _is_usable(self, cell: PhysicalCell, chain: Chain, suggested: Nodes | None) -> bool:
        if cell.virtual is not None or (cell.bad_count and cell.level <= chain.node_level):
            return False
        return suggested is None or any(node in suggested for node in cell.nodes)

    def _why(
        self, order: NodeOrder, request: GangRequest, priority: int, suggested: Nodes | None, full: WaitCause
    ) -> WaitCause:
        """If it would fit with all nodes healthy, the nodes are the reason."""

        def fits(usable: Callable[[BaseCell], bool]) -> bool:
            asked = (order.nodes, request.sizes, priority, usable)
            return walk(*asked) is not None or (len(request.pods) > 1 and search(*asked) is not None)

        if not fits(lambda node: True):
            return full
        healthy = fits(
            lambda node: (
                node.physical is None or node.physical.is_healthy
                if isinstance(node, VirtualCell)
                else not getattr(node, "bad_count", 0)
            )
        )
        return WaitCause.NOT_SUGGESTED if healthy and suggested is not None else WaitCause.BAD_NODE

    # Changes ---------------------------------------------------------------------------------------------------

    def allocate(self, request: GangRequest, placement: Placement) -> Gang:
        """The victims are gone and the gang runs. It cancels preemptions of lower priority that it overtakes."""
        with self.books:
            self._clear(placement)
            # Lists are invariant: the same cells, some may be none.
            gang = Gang(request, list(placement.physical), list(placement.virtual) if placement.virtual else None)  # type: ignore[arg-type]
            for leaf, virtual in gang.pairs():
                self.books.take_gpu(leaf, virtual, request.priority)
                gpu = self.on(leaf)
                gpu.gang = gang
                gpu.use = GangUse.USED
            self.gangs[gang.name] = gang
            return gang

    def _clear(self, placement: Placement) -> None:
        """Gangs that wait for these cells are cancelled, and lazy ones on them lose their guarantee."""
        for gpu in [self.on(leaf) for pod in placement.physical for leaf in pod]:
            if gpu.reserver is not None:
                self.cancel(gpu.reserver)
        for gang in self._lazy_victims([leaf for pod in placement.virtual or () for leaf in pod]):
            self.downgrade(gang)

    def reserve(self, request: GangRequest, placement: Placement) -> Gang:
        """The gang gets cells that others must still leave; no gang of lower or equal priority can have them."""
        with self.books:
            assert placement.virtual is not None
            self._clear(placement)
            # Lists are invariant: the same cells, some may be none.
            gang = Gang(request, list(placement.physical), list(placement.virtual), GangState.PREEMPTING)  # type: ignore[arg-type]
            for leaf, virtual in gang.pairs():
                gpu = self.on(leaf)
                if gpu.use is GangUse.USED:
                    assert gpu.gang is not None
                    self.books.give_gpu(leaf)
                    gpu.gang.state = GangState.LEAVING
                self.books.take_gpu(leaf, virtual, request.priority)
                gpu.reserver = gang
                gpu.use = GangUse.RESERVING if gpu.use is GangUse.USED else GangUse.RESERVED
            self.gangs[gang.name] = gang
            return gang

    def start(self, gang: Gang) -> None:
        """All gangs that had to leave the cells of a preempting gang have gone: it runs."""
        for leaf, _ in gang.pairs():
            gpu = self.on(leaf)
            gpu.reserver = None
            gpu.gang = gang
            gpu.use = GangUse.USED
        gang.state = GangState.ALLOCATED

    def cancel(self, gang: Gang) -> None:
        """Cancel a preemption: gangs that have not left yet get their cells back, with their guarantee."""
        with self.books:
            returned: dict[str, Gang] = {}
            for leaf, _ in gang.pairs():
                gpu = self.on(leaf)
                self.books.give_gpu(leaf)
                gpu.reserver = None
                if gpu.use is GangUse.RESERVING:
                    gpu.use = GangUse.USED
                    assert gpu.gang is not None
                    returned[gpu.gang.name] = gpu.gang
                    self.books.take_gpu(leaf, virtual_of(gpu.gang, leaf), gpu.gang.priority)
                else:
                    gpu.use = GangUse.FREE
            del self.gangs[gang.name]
            for victim in returned.values():
                if not any(self.on(leaf).use is GangUse.RESERVING for leaf, _ in victim.pairs()):
                    victim.state = GangState.ALLOCATED

    def release(self, gang: Gang) -> None:
        """The gang is gone; cells that another gang waits for stay reserved for that one."""
        with self.books:
            if gang.state is GangState.PREEMPTING:
                self.cancel(gang)
                return
            for leaf, _ in gang.pairs():
                gpu = self.on(leaf)
                if gpu.gang is not gang:
                    continue
                gpu.gang = None
                if gpu.use is GangUse.USED:
                    self.books.give_gpu(leaf)
                    gpu.use = GangUse.FREE
                else:
                    gpu.use = GangUse.RESERVED
            del self.gangs[gang.name]

    def downgrade(self, gang: Gang) -> VirtualPlacement | None:
        """Let it run on as opportunistic work; returns what it loses."""
        with self.books:
            before = gang.virtual
            for leaf, virtual in gang.pairs():
                if virtual is not None and self.on(leaf).use is GangUse.USED:
                    self.books.give_gpu(leaf)
                    self.books.take_gpu(leaf, None, OPPORTUNISTIC)
            gang.virtual = None
            gang.is_downgraded = gang.is_downgraded or before is not None
            return before

    def _upgrade(self, gang: Gang, virtual: VirtualPlacement | None) -> None:
        """Undo `downgrade`."""
        if virtual is None:
            return
        gang.virtual = virtual
        gang.is_downgraded = False
        for leaf, cell in gang.pairs():
            if cell is not None and self.on(leaf).use is GangUse.USED:
                self.books.give_gpu(leaf)
                self.books.take_gpu(leaf, cell, gang.request.priority)


def spares(answer: GangAnswer, other: GangAnswer) -> bool:
    """True if fewer gangs must leave: a proper subset of the other's victims."""
    return {victim.name for victim in answer.victims} < {victim.name for victim in other.victims}


def bound_around(gang: Gang) -> list[tuple[PhysicalCell, VirtualCell]]:
    """The bindings in the granted cells that a gang uses, including the cells it does not use."""
    roots = {id(virtual.root): virtual.root for _, virtual in gang.pairs() if virtual is not None}
    return [(cell.physical, cell) for root in roots.values() for cell in root.tree() if cell.physical is not None]


def virtual_of(gang: Gang, leaf: PhysicalCell) -> VirtualCell | None:
    return next((virtual for held, virtual in gang.pairs() if held is leaf), None)
