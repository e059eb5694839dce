"""A shared cluster that random requests, failures and administrators act upon, checked after every step."""

from __future__ import annotations

from typing import Any

from cells_layouts import Choose, Plan, changed_plan, make_layout, make_plan, pick
from tests.support.cells_invariants import check_cells, is_within_reach, physical_cells, roots_of

from skep.core.cells.tree import OPPORTUNISTIC, PhysicalCell
from skep.core.errors import InputError
from skep.scenarios.gangs import Gang, GangAnswer, GangRequest, GangState, GangUse, Placement, WaitCause
from skep.scenarios.recover import GangRecord, PodRecord, record, recover
from skep.scenarios.scheduler import GangScheduler

GANGS = (
    {1: 1},
    {2: 1},
    {4: 1},
    {1: 3},
    {4: 2},
    {8: 1},
    {3: 1},
    {1: 1, 2: 1},
    {2: 2, 3: 1},
    {1: 2, 4: 1},
    {2: 4},
)


class CellsWorld:
    """`choose` decides everything; `run` does so many steps."""

    def __init__(self, choose: Choose, *, can_fail: bool = True, can_change: bool = True) -> None:
        self.choose = choose
        self.plan: Plan = make_plan(choose)
        self.cells = GangScheduler(make_layout(self.plan))
        self.records: dict[str, GangRecord] = {}
        """As written on the pods when they were started."""
        self.count = 0
        self.steps = [self.submit] * 6 + [self.release, self.evict, self.evict, self.evict, self.cancel, self.restart]
        self.steps += [self.fail, self.heal, self.heal] if can_fail else []
        self.steps += [self.reconfigure] if can_change else []
        check_cells(self.cells)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            pick(self.choose, self.steps)()
            check_cells(self.cells)

    # Requests --------------------------------------------------------------------------------------------------

    def request(self) -> GangRequest:
        vc = pick(self.choose, list(self.cells.tenancies))
        pins = list(self.cells.tenancies[vc].pinned)
        priority = pick(self.choose, (0, -1, 1, 2, 3))
        self.count += 1
        is_pinned = bool(pins) and priority >= 0 and self.choose(3) == 1
        return GangRequest(
            name=f"g{self.count}",
            vc=vc,
            priority=priority,
            pods=pick(self.choose, GANGS),
            gpu_type=pick(self.choose, ("", "", "k80", "v100")),
            pinned=pick(self.choose, pins) if is_pinned else "",
            is_lazy=self.choose(3) == 2,
            only_suggested=self.choose(5) == 4,
        )

    def submit(self) -> None:
        request = self.request()
        nodes = [node for node in self.cells.nodes if self.choose(4)] if request.only_suggested else None
        before = snapshot(self.cells)
        try:
            answer = self.cells.ask(request, nodes)
        except InputError:
            return
        assert snapshot(self.cells) == before, "a mere question changed something"
        self.check_answer(request, answer)
        if answer.placement is None:
            return
        self.check_placement(request, answer.placement, nodes)
        if not answer.victims:
            self.start(request, answer.placement)
        elif self.choose(3):
            self.reserve(request, answer)

    def check_answer(self, request: GangRequest, answer: GangAnswer) -> None:
        for victim in answer.victims:
            may_leave = victim.priority == OPPORTUNISTIC or (
                victim.request.vc == request.vc and (victim.priority < request.priority or victim.request.is_lazy)
            )
            assert may_leave, f"{victim} has to leave for {request}"
        if request.priority == OPPORTUNISTIC:
            assert not answer.victims
        elif not self.cells.bad_nodes and not request.only_suggested:
            fits = is_within_reach(self.cells, request)
            assert fits == (answer.placement is not None), f"{request} fits: {fits}, but {answer.cause}"
            assert answer.cause in (None, WaitCause.VC_FULL, WaitCause.NO_CELLS)

    def check_placement(self, request: GangRequest, placement: Placement, nodes: list[str] | None) -> None:
        leaves = [leaf for pod in placement.physical for leaf in pod]
        assert [len(pod) for pod in placement.physical] == request.sizes
        assert len(set(map(id, leaves))) == len(leaves)
        assert {leaf.chain for leaf in leaves} == {placement.chain}
        assert all(leaf.node not in self.cells.bad_nodes for leaf in leaves)
        assert nodes is None or all(leaf.node in nodes for leaf in leaves)
        if request.gpu_type and not request.pinned:
            assert {leaf.type for leaf in leaves} == {request.gpu_type}

    def start(self, request: GangRequest, placement: Placement) -> None:
        is_calm = not changes_others(self.cells, placement)
        before = snapshot(self.cells)
        gang = self.cells.allocate(request, placement)
        if is_calm and self.choose(2):
            check_cells(self.cells)
            self.cells.release(gang)
            assert snapshot(self.cells) == before, "starting and ending a gang left something behind"
            gang = self.cells.allocate(request, placement)
        self.records[gang.name] = record(gang)

    def reserve(self, request: GangRequest, answer: GangAnswer) -> None:
        assert answer.placement is not None
        is_calm = not changes_others(self.cells, answer.placement)
        before = snapshot(self.cells)
        gang = self.cells.reserve(request, answer.placement)
        assert {victim.name for victim in answer.victims} == set(left_by(self.cells, gang))
        if is_calm and self.choose(2):
            check_cells(self.cells)
            self.cells.cancel(gang)
            assert snapshot(self.cells) == before, "a cancelled preemption left something behind"
            self.cells.reserve(request, answer.placement)

    # Ends of gangs and preemptions -----------------------------------------------------------------------------

    def gang(self, *states: GangState) -> Gang | None:
        found = [gang for gang in self.cells.gangs.values() if gang.state in states]
        return pick(self.choose, found) if found else None

    def release(self) -> None:
        gang = self.gang(GangState.ALLOCATED, GangState.LEAVING)
        if gang is not None:
            self.end(gang)

    def end(self, gang: Gang) -> None:
        self.cells.release(gang)
        self.records.pop(gang.name, None)

    def evict(self) -> None:
        """One victim leaves; the gang that waited starts when there is none left."""
        gang = self.gang(GangState.PREEMPTING)
        if gang is None:
            return
        victims = left_by(self.cells, gang)
        if victims:
            self.end(pick(self.choose, list(victims.values())))
        elif any(not leaf.is_healthy for leaf, _ in gang.pairs()):
            self.cells.cancel(gang)
        else:
            self.cells.start(gang)
            self.records[gang.name] = record(gang)

    def cancel(self) -> None:
        gang = self.gang(GangState.PREEMPTING)
        if gang is None:
            return
        victims = left_by(self.cells, gang)
        self.cells.cancel(gang)
        assert gang.name not in self.cells.gangs
        for victim in victims.values():
            assert all(self.cells.on(leaf).gang is victim for leaf, _ in victim.pairs())

    # Nodes -----------------------------------------------------------------------------------------------------

    def fail(self) -> None:
        self.cells.set_node(pick(self.choose, list(self.cells.nodes)), is_bad=True)

    def heal(self) -> None:
        bad = sorted(self.cells.bad_nodes)
        if bad:
            self.cells.set_node(pick(self.choose, bad), is_bad=False)

    # Restart and change ----------------------------------------------------------------------------------------

    def restart(self) -> None:
        """From the placements of what runs; a preemption under way is forgotten."""
        self.cancel_all()
        before, is_calm = outline(self.cells), not has_doomed(self.cells)
        placements = [(gang.request, self.placement(gang)) for gang in self.cells.gangs.values()]
        self.take_up(placements)
        if is_calm:
            assert outline(self.cells) == before, "what was recovered is not what was"
        assert outline(self.cells)["gpus"] == before["gpus"]
        assert outline(self.cells)["gangs"] == before["gangs"]

    def reconfigure(self) -> None:
        self.cancel_all()
        for _ in range(1 + self.choose(3)):
            self.plan = changed_plan(self.choose, self.plan)
        running = {gang.name: gang for gang in self.cells.gangs.values()}
        self.take_up([(gang.request, self.records[gang.name]) for gang in running.values()])
        assert self.cells.gangs.keys() == running.keys()

    def cancel_all(self) -> None:
        for gang in list(self.cells.gangs.values()):
            if gang.state is GangState.PREEMPTING:
                self.cells.cancel(gang)

    def take_up(self, placements: list[tuple[GangRequest, GangRecord]]) -> None:
        bad = sorted(self.cells.bad_nodes)
        self.cells = GangScheduler(make_layout(self.plan))
        while placements:
            request, placement = placements.pop(self.choose(len(placements)))
            recover(self.cells, request, placement)
            check_cells(self.cells)
        for node in bad:
            self.cells.set_node(node, is_bad=True)

    def placement(self, gang: Gang) -> GangRecord:
        """As it is now; gpus that are no longer in the configuration are where they were."""
        now, before = record(gang), self.records[gang.name]
        pods = zip(now.pods, before.pods, strict=True)
        granted = [old.granted if new.granted or (not new.gpus and gang.virtual) else "" for new, old in pods]
        pods = zip(before.pods, granted, strict=True)
        return GangRecord(before.chain, tuple(PodRecord(pod.node, pod.gpus, kind) for pod, kind in pods))

    def drain(self) -> None:
        """When everything is over, the cluster is as good as new."""
        self.cancel_all()
        for gang in list(self.cells.gangs.values()):
            self.end(gang)
        for node in sorted(self.cells.bad_nodes):
            self.cells.set_node(node, is_bad=False)
        assert snapshot(self.cells) == snapshot(GangScheduler(make_layout(self.plan)))


def left_by(cells: GangScheduler, gang: Gang) -> dict[str, Gang]:
    """Those who have still to leave for a preempting gang."""
    held = [cells.on(leaf) for leaf, _ in gang.pairs()]
    return {gpu.gang.name: gpu.gang for gpu in held if gpu.use is GangUse.RESERVING and gpu.gang}


def changes_others(cells: GangScheduler, placement: Placement) -> bool:
    """Whether somebody loses a reservation or, being lazy, a guarantee: that is not taken back.

    Nor is it said which of the bad cells a VC is shown, where it is shown some.
    """
    if has_doomed(cells):
        return True
    if any(cells.on(leaf).reserver is not None for pod in placement.physical for leaf in pod):
        return True
    held = [cells.on(leaf.physical).gang for pod in placement.virtual or () for leaf in pod if leaf.physical]
    return any(gang is not None and gang.request.is_lazy for gang in held)


def has_doomed(cells: GangScheduler) -> bool:
    return any(any(map(any, chain.doomed.values())) for chain in cells.chains.values())


# What there is to see -------------------------------------------------------------------------------------------


def snapshot(cells: GangScheduler) -> dict[str, Any]:
    """Everything, down to which virtual cell is bound to which physical one; where order means nothing, as sets."""
    return {
        "physical": {f"{cell.chain} {cell.address}": seen(cells, cell) for cell in physical_cells(cells)},
        "virtual": {
            cell.address: (str(cell.physical), cell.priority, dict(cell.used))
            for tenancy in cells.tenancies.values()
            for root in roots_of(tenancy)
            for cell in every(root)
        },
        "chains": {
            name: (
                list(chain.left),
                list(chain.unused),
                {vc: list(unused) for vc, unused in chain.unused_by.items()},
                [addresses(level) for level in chain.free],
                [addresses(level) for level in chain.bad_free],
                {vc: [addresses(level) for level in levels] for vc, levels in chain.doomed.items()},
            )
            for name, chain in cells.chains.items()
        },
        "gangs": {name: (shown(gang), str(gang.virtual)) for name, gang in cells.gangs.items()},
    }


def outline(cells: GangScheduler) -> dict[str, Any]:
    """What users and administrators can tell apart: not which of a VC's equal cells something is bound to."""
    return {
        "gpus": {
            f"{leaf.chain} {leaf.address}": (
                cells.on(leaf).use,
                getattr(cells.on(leaf).gang, "name", ""),
                leaf.priority,
            )
            for chain in cells.chains.values()
            for leaf in chain.cells[1]
        },
        "granted": {
            f"{cell.chain} {cell.address}": cell.virtual.vc
            for cell in physical_cells(cells)
            if cell.virtual is not None and cell.virtual.parent is None
        },
        "books": {name: (list(chain.left), dict(chain.unused_by)) for name, chain in cells.chains.items()},
        "gangs": {name: shown(gang) for name, gang in cells.gangs.items()},
    }


def seen(cells: GangScheduler, cell: PhysicalCell) -> tuple[Any, ...]:
    gpu = cells.occupancies.get(id(cell))
    users = (str(gpu.use), str(gpu.gang), str(gpu.reserver)) if gpu is not None else ()
    return (
        *users,
        cell.priority,
        dict(cell.used),
        cell.used_total,
        cell.bad_count,
        cell.is_split,
        cell.is_free_listed,
        str(cell.virtual),
    )


def shown(gang: Gang) -> tuple[Any, ...]:
    return (gang.state, gang.is_downgraded, gang.priority, str(gang.physical))


def every(cell: Any) -> list[Any]:
    return [cell, *(found for child in cell.children for found in every(child))]


def addresses(cells: Any) -> set[str]:
    return {cell.address for cell in cells}
