"""All cells of a cluster, shared between virtual clusters: who gets which, who must leave, who keeps what.

    ask       a pure question: where could this gang go, and who would have to leave?
    allocate  give a placement to a gang
    reserve   give it a placement that others have still to leave; `cancel` takes that back
    release   a gang is gone
    set_node  a node goes bad or heals

Guaranteed work is placed on the virtual cells of its VC, and these on physical ones so that no VC can ever be
refused what it owns. Opportunistic work is placed on physical cells that nobody uses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from skep.core.cells.binding import bind_sparing, by_history
from skep.core.cells.books import Books, bind_pair
from skep.core.cells.build import build_chains, build_tenancies, pinned_cells
from skep.core.cells.chain import Chain
from skep.core.cells.gangs import Answer, Gang, GangState, Placement, Request, VirtualPlacement, WaitCause
from skep.core.cells.layout import Layout
from skep.core.cells.placement import Seat, Seats, search, seat_gpus, walk
from skep.core.cells.tree import OPPORTUNISTIC, Cell, PhysicalCell, Use, VirtualCell
from skep.core.cells.view import Sorts, View
from skep.core.errors import InputError

Nodes = Collection[str]


class Cells:
    def __init__(self, layout: Layout, sorts: Sorts = Sorts.AT_ONCE) -> None:
        self.layout = layout
        self.chains = build_chains(layout, sorts)
        pins = pinned_cells(layout, self.chains)
        self.tenancies = build_tenancies(layout, self.chains, pins, sorts)
        self.books = Books(self.chains, self.tenancies)
        self.gangs: dict[str, Gang] = {}
        self.bad_nodes: set[str] = set()
        self.nodes: dict[str, list[PhysicalCell]] = {}
        """The gpus of each node, in all chains."""
        self.by_type: dict[str, list[Chain]] = {}
        for name in sorted(self.chains, reverse=True):
            chain = self.chains[name]
            self.by_type.setdefault(chain.types[0], []).append(chain)
            for leaf in chain.cells[1]:
                self.nodes.setdefault(leaf.node, []).append(leaf)
        for tenancy in self.tenancies.values():
            for name, root in tenancy.pinned.items():
                self._pin(pins[name], root)

    def _pin(self, cell: PhysicalCell, root: VirtualCell) -> None:
        cell.is_pinned = True
        bind_pair(cell, root)
        chain = self.chains[cell.chain]
        chain.unused_by[root.vc][cell.level] += 1
        chain.unused[cell.level] += 1
        self.books.grant(cell, root.vc)

    # Questions -------------------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        """Refuse what no cell of this configuration could ever be asked for."""
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
                raise InputError(f"there is no gpu type '{request.gpu_type}'")
            if request.priority != OPPORTUNISTIC and not self.chains_for(request):
                raise InputError(f"VC {request.vc} has no gpus of type {request.gpu_type}")

    def chains_for(self, request: Request) -> list[Chain]:
        """The chains to try, in order."""
        kinds = [request.gpu_type] if request.gpu_type else sorted(self.by_type)
        chains = [chain for kind in kinds for chain in self.by_type.get(kind, ())]
        if request.priority == OPPORTUNISTIC:
            return chains
        return [chain for chain in chains if chain.name in self.tenancies[request.vc].roots]

    def ask(self, request: Request, suggested: Nodes | None = None) -> Answer:
        """Where the gang could go. Nothing is changed; gangs that would lose their guarantee are among the victims
        only if they would have to leave."""
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

    def _ask(self, request: Request, suggested: Nodes | None, seat: Seat) -> Answer:
        """Of the first chain that has room."""
        if request.pinned:
            root = self.tenancies[request.vc].pinned[request.pinned]
            return self._ask_guaranteed(request, self.chains[root.chain], f"pinned/{request.pinned}", suggested, seat)
        answer = Answer(cause=WaitCause.NO_CELLS)
        for chain in self.chains_for(request):
            if request.priority == OPPORTUNISTIC:
                answer = self._ask_opportunistic(request, chain, suggested, seat)
            else:
                answer = self._ask_guaranteed(request, chain, chain.name, suggested, seat)
            if answer.placement is not None:
                break
        return answer

    def _ask_opportunistic(self, request: Request, chain: Chain, suggested: Nodes | None, seat: Seat) -> Answer:
        chain.view.sort(suggested)
        if request.gpu_count > chain.view.gpu_count:
            return Answer(cause=WaitCause.CLUSTER_FULL)
        seats = seat(chain.view, request.sizes, OPPORTUNISTIC, lambda node: self._is_good(node, suggested))
        if seats is None:
            return Answer(cause=self._why(chain.view, request, OPPORTUNISTIC, suggested, WaitCause.CLUSTER_FULL))
        # Seats of physical cells give physical ones.
        return Answer(Placement(chain.name, seat_gpus(seats, OPPORTUNISTIC), None))  # type: ignore[arg-type]

    def _ask_guaranteed(
        self, request: Request, chain: Chain, view_name: str, suggested: Nodes | None, seat: Seat
    ) -> Answer:
        view = self.tenancies[request.vc].views[view_name]
        view.sort(suggested)
        if request.gpu_count > view.gpu_count:  # a gang of a billion pods is not even written out
            return Answer(cause=WaitCause.VC_FULL)
        for priority in (OPPORTUNISTIC, request.priority):  # first without pushing anybody of its own VC out
            seats = seat(view, request.sizes, priority, lambda node: self._is_good_virtual(node, suggested))
            if seats is not None:
                return self._bind(request, chain, seats, priority, suggested)
        return Answer(cause=self._why(view, request, request.priority, suggested, WaitCause.VC_FULL))

    def _bind(self, request: Request, chain: Chain, seats: Seats, priority: int, suggested: Nodes | None) -> Answer:
        with self.books:
            # Seats of virtual cells give virtual ones.
            virtual: list[list[VirtualCell]] = seat_gpus(seats, priority)  # type: ignore[assignment]
            leaves = [leaf for pod in virtual for leaf in pod]
            lazy = self._lazy_victims(leaves)
            bound = [pair for gang in lazy for pair in bound_around(gang)]
            downgraded = [(gang, self.downgrade(gang)) for gang in lazy]
            bindings = bind_sparing(chain, lambda cell: self._is_usable(cell, chain, suggested), by_history, leaves)
            answer = Answer(cause=WaitCause.NO_HEALTHY_MAPPING if suggested is None else WaitCause.NO_SUGGESTED_MAPPING)
            if bindings is not None:
                physical = [[bindings[id(leaf)] for leaf in pod] for pod in virtual]
                victims = self._users(physical)
                answer = Answer(Placement(chain.name, physical, virtual), victims)
            for gang, before in reversed(downgraded):
                self._upgrade(gang, before)
            for cell, shown in bound:  # bad cells that the VC was shown are bound again as they were
                bind_pair(cell, shown)
            return answer

    def _lazy_victims(self, leaves: list[VirtualCell]) -> list[Gang]:
        """Gangs on these cells that may lose their guarantee instead of being stopped."""
        found: dict[str, Gang] = {}
        for leaf in leaves:
            held = leaf.physical
            if held is not None and held.use is Use.USED and held.gang is not None and held.gang.request.is_lazy:
                found[held.gang.name] = held.gang
        return list(found.values())

    def _users(self, physical: list[list[PhysicalCell]]) -> list[Gang]:
        found: dict[str, Gang] = {}
        for pod in physical:
            for leaf in pod:
                if leaf.gang is not None and leaf.use in (Use.USED, Use.RESERVING):
                    found[leaf.gang.name] = leaf.gang
        return list(found.values())

    def _is_good(self, node: Cell, suggested: Nodes | None) -> bool:
        assert isinstance(node, PhysicalCell)
        return node.is_healthy and (suggested is None or node.node in suggested)

    def _is_good_virtual(self, node: Cell, suggested: Nodes | None) -> bool:
        """What is not bound yet can still become anything."""
        assert isinstance(node, VirtualCell)
        return node.physical is None or self._is_good(node.physical, suggested)

    def _is_usable(self, cell: PhysicalCell, chain: Chain, suggested: Nodes | None) -> bool:
        if cell.virtual is not None or (cell.bad_count and cell.level <= chain.node_level):
            return False
        return suggested is None or any(node in suggested for node in cell.nodes)

    def _why(self, view: View, request: Request, priority: int, suggested: Nodes | None, full: WaitCause) -> WaitCause:
        """If it would fit with all nodes well, the nodes are the reason."""

        def fits(usable: Callable[[Cell], bool]) -> bool:
            asked = (view.nodes, request.sizes, priority, usable)
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

    def allocate(self, request: Request, placement: Placement) -> Gang:
        """Nobody runs there any more: the gang does. Preemptions of lower priority that it overtakes are cancelled."""
        with self.books:
            self._clear(placement)
            # Lists are invariant: the same cells, some may be none.
            gang = Gang(request, list(placement.physical), list(placement.virtual) if placement.virtual else None)  # type: ignore[arg-type]
            for leaf, virtual in gang.pairs():
                self.books.take_gpu(leaf, virtual, request.priority)
                leaf.gang = gang
                leaf.use = Use.USED
            self.gangs[gang.name] = gang
            return gang

    def _clear(self, placement: Placement) -> None:
        """Gangs that wait for these cells give up, and lazy ones on them lose their guarantee."""
        for leaf in (leaf for pod in placement.physical for leaf in pod):
            if leaf.reserver is not None:
                self.cancel(leaf.reserver)
        for gang in self._lazy_victims([leaf for pod in placement.virtual or () for leaf in pod]):
            self.downgrade(gang)

    def reserve(self, request: Request, placement: Placement) -> Gang:
        """The gang gets cells that others have still to leave; nobody of lower or equal priority can have them."""
        with self.books:
            assert placement.virtual is not None
            self._clear(placement)
            # Lists are invariant: the same cells, some may be none.
            gang = Gang(request, list(placement.physical), list(placement.virtual), GangState.PREEMPTING)  # type: ignore[arg-type]
            for leaf, virtual in gang.pairs():
                if leaf.use is Use.USED:
                    assert leaf.gang is not None
                    self.books.give_gpu(leaf)
                    leaf.gang.state = GangState.LEAVING
                self.books.take_gpu(leaf, virtual, request.priority)
                leaf.reserver = gang
                leaf.use = Use.RESERVING if leaf.use is Use.USED else Use.RESERVED
            self.gangs[gang.name] = gang
            return gang

    def start(self, gang: Gang) -> None:
        """All who had to leave the cells of a preempting gang have gone: it runs."""
        for leaf, _ in gang.pairs():
            leaf.reserver = None
            leaf.gang = gang
            leaf.use = Use.USED
        gang.state = GangState.ALLOCATED

    def cancel(self, gang: Gang) -> None:
        """A preempting gang gives up: those who have not left yet have their cells back, guarantee and all."""
        with self.books:
            returned: dict[str, Gang] = {}
            for leaf, _ in gang.pairs():
                self.books.give_gpu(leaf)
                leaf.reserver = None
                if leaf.use is Use.RESERVING:
                    leaf.use = Use.USED
                    assert leaf.gang is not None
                    returned[leaf.gang.name] = leaf.gang
                    self.books.take_gpu(leaf, virtual_of(leaf.gang, leaf), leaf.gang.priority)
                else:
                    leaf.use = Use.FREE
            del self.gangs[gang.name]
            for victim in returned.values():
                if not any(leaf.use is Use.RESERVING for leaf, _ in victim.pairs()):
                    victim.state = GangState.ALLOCATED

    def release(self, gang: Gang) -> None:
        """The gang is gone; cells that somebody waits for stay with that one."""
        with self.books:
            if gang.state is GangState.PREEMPTING:
                self.cancel(gang)
                return
            for leaf, _ in gang.pairs():
                if leaf.gang is not gang:
                    continue
                leaf.gang = None
                if leaf.use is Use.USED:
                    self.books.give_gpu(leaf)
                    leaf.use = Use.FREE
                else:
                    leaf.use = Use.RESERVED
            del self.gangs[gang.name]

    def downgrade(self, gang: Gang) -> VirtualPlacement | None:
        """Let it run on as opportunistic work; what it loses is returned."""
        with self.books:
            before = gang.virtual
            for leaf, virtual in gang.pairs():
                if virtual is not None and leaf.use is Use.USED:
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
            if cell is not None and leaf.use is Use.USED:
                self.books.give_gpu(leaf)
                self.books.take_gpu(leaf, cell, gang.request.priority)

    def set_node(self, node: str, *, is_bad: bool) -> None:
        """Running work stays; nothing new goes to a bad node."""
        if node not in self.nodes:
            return
        (self.bad_nodes.add if is_bad else self.bad_nodes.discard)(node)
        for leaf in self.nodes[node]:
            self.books.set_health(leaf, is_bad=is_bad)
        for chain in {leaf.chain for leaf in self.nodes[node]}:
            self.books.settle_doomed(self.chains[chain])


def spares(answer: Answer, other: Answer) -> bool:
    """Whether fewer have to leave: some of the other's victims, and nobody else."""
    return {victim.name for victim in answer.victims} < {victim.name for victim in other.victims}


def bound_around(gang: Gang) -> list[tuple[PhysicalCell, VirtualCell]]:
    """What is bound in the granted cells that a gang uses, the cells it does not use among them."""
    roots = {id(virtual.root): virtual.root for _, virtual in gang.pairs() if virtual is not None}
    return [(cell.physical, cell) for root in roots.values() for cell in root.tree() if cell.physical is not None]


def virtual_of(gang: Gang, leaf: PhysicalCell) -> VirtualCell | None:
    return next((virtual for held, virtual in gang.pairs() if held is leaf), None)
