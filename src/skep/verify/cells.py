"""Checks of virtual clusters: a VC on shared cells gets everything it would get alone."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from skep.core.cells.layout import CellSpec, CellType, Grant, Layout, VcLayout
from skep.core.cells.tree import OPPORTUNISTIC
from skep.core.chance import draw
from skep.scenarios.gangs import GangRequest
from skep.scenarios.scheduler import GangScheduler
from skep.verify.check import Check, Finding, same, show

NODES, GPUS = 4, 8
LEVELS = (("rack", NODES), ("node", 2), ("socket", 2), ("switch", 2))
"""From the top: a rack of 4 nodes of 2 sockets of 2 switches of 2 GPUs."""
OWNED = {
    "A": {"socket": 1, "switch": 1, "gpu": 1},
    "B": {"socket": 1, "switch": 1, "gpu": 1},
    "C": {"node": 2, "switch": 1},
}
SIZES = {"A": (1, 2, 4), "B": (1, 2, 4), "C": (1, 2, 4, 8, 8)}
SEEDS, STEPS = 60, 150


class Count(NamedTuple):
    """Requests that a VC alone would take, and those of them that were refused."""

    legal: int
    refused: int


class SharedCells(Protocol):
    """A way to share the rack."""

    def start(self, request: GangRequest) -> bool: ...

    def end(self, name: str) -> None: ...


class CellsOnly:
    """Cells, of all VCs or of one alone; borrowed GPUs are returned at once."""

    def __init__(self, *vcs: str) -> None:
        self.cells = GangScheduler(rack(*vcs))

    def start(self, request: GangRequest) -> bool:
        answer = self.cells.ask(request)
        if answer.placement is None:
            return False
        for victim in answer.victims:
            self.cells.release(victim)
        self.cells.allocate(request, answer.placement)
        return True

    def end(self, name: str) -> None:
        if name in self.cells.gangs:  # a borrower may have had to leave
            self.cells.release(self.cells.gangs[name])


class QuotaOnly:
    """Each VC may use as many GPUs as it owns, wherever a cell of that size is free; on the fullest node that has one.

    The number is never what is missing: a VC alone has no more GPUs.
    """

    def __init__(self) -> None:
        self.used = [0] * NODES
        """The GPUs in use on each node, as bits."""
        self.held: dict[str, tuple[int, int]] = {}

    def start(self, request: GangRequest) -> bool:
        size = request.sizes[0]
        cells = [((1 << size) - 1) << first for first in range(0, GPUS, size)]
        fitting = [(node, cell) for node in range(NODES) for cell in cells if not self.used[node] & cell]
        if not fitting:
            return False
        node, cell = max(fitting, key=lambda place: self.used[place[0]].bit_count())
        self.used[node] |= cell
        self.held[request.name] = (node, cell)
        return True

    def end(self, name: str) -> None:
        node, cell = self.held.pop(name)
        self.used[node] ^= cell


def rack(*vcs: str) -> Layout:
    types = {}
    for at, (name, count) in enumerate(LEVELS):
        child = LEVELS[at + 1][0] if at + 1 < len(LEVELS) else "gpu"
        types[name] = CellType(name, child, count, name == "node")
    owners = {
        vc: VcLayout(vc, [Grant("rack", kind, count) for kind, count in OWNED[vc].items()]) for vc in vcs or OWNED
    }
    return Layout(types, [cell_spec(types, "rack", "0", "")], owners)


def cell_spec(types: dict[str, CellType], name: str, address: str, node: str) -> CellSpec:
    """GPUs are numbered within their node."""
    kind = types.get(name)
    if kind is None:
        head, _, socket, switch, gpu = address.rsplit("/", 4)
        return CellSpec(name, f"{head}/{socket}/{switch}/{4 * int(socket) + 2 * int(switch) + int(gpu)}", node)
    node = node or (f"n{address.rpartition('/')[2]}" if kind.is_node else "")
    children = [cell_spec(types, kind.child, f"{address}/{at}", node) for at in range(kind.count)]
    return CellSpec(name, address, node, "", children)


def play(seed: int, shared: SharedCells, *, can_borrow: bool) -> Count:
    """Requests come and go; those that would not fit a VC alone are not made."""
    alone = {vc: CellsOnly(vc) for vc in OWNED}
    running: list[GangRequest] = []
    legal = refused = 0
    for step in range(STEPS):
        chance = draw(seed, step)
        if running and chance % 10 < 3:
            gone = running.pop(draw(seed, step, 1) % len(running))
            shared.end(gone.name)
            alone[gone.vc].end(gone.name)
            continue
        request = make_request(seed, step, can_borrow=can_borrow)
        if request.priority == OPPORTUNISTIC:
            if shared.start(request):
                running.append(request)
        elif alone[request.vc].start(request):
            legal += 1
            if shared.start(request):
                running.append(request)
            else:
                refused += 1
                alone[request.vc].end(request.name)
    return Count(legal, refused)


def make_request(seed: int, step: int, *, can_borrow: bool) -> GangRequest:
    vc = "ABC"[draw(seed, step, 2) % 3]
    sizes = SIZES[vc]
    size = sizes[draw(seed, step, 3) % len(sizes)]
    is_borrower = can_borrow and draw(seed, step, 4) % 3 == 0
    return GangRequest(f"{vc}{step}", vc, OPPORTUNISTIC if is_borrower else 0, {size: 1})


def total(*, with_cells: bool, can_borrow: bool, seeds: int = SEEDS) -> Count:
    counts = [play(seed, CellsOnly() if with_cells else QuotaOnly(), can_borrow=can_borrow) for seed in range(seeds)]
    return Count(sum(count.legal for count in counts), sum(count.refused for count in counts))


def safety() -> list[Finding]:
    cells = total(with_cells=True, can_borrow=False)
    lent = total(with_cells=True, can_borrow=True)
    quota = total(with_cells=False, can_borrow=False)
    asked = f"of {quota.legal:,} requests a VC alone would take, refused with quotas by number only"
    return [
        same(f"of {cells.legal:,} requests a VC alone would take, refused with cells", 0, cells.refused),
        same(f"of {lent.legal:,}, refused with cells while others borrow", 0, lent.refused),
        Finding(asked, "more than 0", show(quota.refused), quota.refused > 0),
    ]


CHECKS = (
    Check(
        name="hived",
        policy="hived",
        title="What a VC would get on its own GPUs it gets on shared ones, with cells but not with quotas",
        source="Zhao et al., OSDI 2020, its example: a rack of four 8-GPU nodes; A and B own a 4-GPU, a 2-GPU and a "
        f"1-GPU cell each, C two nodes and a 2-GPU cell; random requests and departures over {SEEDS} seeds",
        ask=safety,
    ),
)
