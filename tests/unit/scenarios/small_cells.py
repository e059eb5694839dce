"""Small shared clusters in few words: `cells(racks=2, a="2 node, 1 switch", b="1 rack")`."""

from __future__ import annotations

from tests.support.cells_invariants import check_cells

from skep.core.cells.layout import CellSpec, CellType, Grant, Layout, VcLayout
from skep.scenarios.gangs import Gang, GangAnswer, GangRequest
from skep.scenarios.scheduler import GangScheduler

LEVELS = ("rack", "node", "switch", "gpu")


def layout(
    *, racks: int = 1, nodes: int = 2, switches: int = 2, gpus: int = 2, pins: dict[str, str] | None = None, **vcs: str
) -> Layout:
    """Nodes are n0, n1, … over all racks; `pins` are addresses (`0/n1`) → name; a VC owns `2 node, 1 @name`."""
    types = {
        "rack": CellType("rack", "node", nodes),
        "node": CellType("node", "switch", switches, is_node=True),
        "switch": CellType("switch", "gpu", gpus),
    }
    tops = []
    for rack in range(racks):
        inside = [node_spec(f"{rack}/n{rack * nodes + at}", switches, gpus) for at in range(nodes)]
        tops.append(CellSpec("rack", str(rack), "", "", inside))
    for top in tops:
        pin(top, pins or {})
    return Layout(types, tops, {name: vc_layout(name, owned) for name, owned in vcs.items()})


def node_spec(address: str, switches: int, gpus: int) -> CellSpec:
    name = address.rpartition("/")[2]
    inside = []
    for at in range(switches):
        leaves = [CellSpec("gpu", f"{address}/{at}/{gpu}", name) for gpu in range(at * gpus, (at + 1) * gpus)]
        inside.append(CellSpec("switch", f"{address}/{at}", name, "", leaves))
    return CellSpec("node", address, name, "", inside)


def pin(spec: CellSpec, pins: dict[str, str]) -> None:
    spec.pinned = pins.get(spec.address, "")
    for child in spec.children:
        pin(child, pins)


def vc_layout(name: str, owned: str) -> VcLayout:
    grants, pinned = [], []
    for part in filter(None, owned.split(", ")):
        count, kind = part.split()
        if kind.startswith("@"):
            pinned.append(kind[1:])
        else:
            grants.append(Grant("rack", kind, int(count)))
    return VcLayout(name, grants, pinned)


def cells(**given: object) -> GangScheduler:
    return GangScheduler(layout(**given))  # type: ignore[arg-type]


def request(
    name: str, vc: str = "a", priority: int = 0, *pods: int, lazy: bool = False, pinned: str = ""
) -> GangRequest:
    sizes = pods or (1,)
    return GangRequest(name, vc, priority, {size: sizes.count(size) for size in sizes}, is_lazy=lazy, pinned=pinned)


def start(of: GangScheduler, asked: GangRequest) -> Gang:
    """There is room, and nobody has to leave."""
    answer = of.ask(asked)
    assert answer.placement is not None, answer.cause
    assert not answer.victims, answer.victims
    gang = of.allocate(asked, answer.placement)
    check_cells(of)
    return gang


def reserve(of: GangScheduler, asked: GangRequest) -> tuple[Gang, GangAnswer]:
    answer = of.ask(asked)
    assert answer.placement is not None, answer.cause
    gang = of.reserve(asked, answer.placement)
    check_cells(of)
    return gang, answer


def fail(of: GangScheduler, *nodes: str) -> None:
    for node in nodes:
        of.set_node(node, is_bad=True)
        check_cells(of)


def heal(of: GangScheduler, *nodes: str) -> None:
    for node in nodes:
        of.set_node(node, is_bad=False)
        check_cells(of)


def where(gang: Gang) -> list[str]:
    """Its gpus by address, pod by pod."""
    return [leaf.address for leaf, _ in gang.pairs()]


def free(of: GangScheduler) -> dict[str, list[str]]:
    """The free list by type, largest cells first."""
    chain = of.chains["rack"]
    found = {kind: sorted(cell.address for cell in chain.free[4 - at]) for at, kind in enumerate(LEVELS)}
    return {kind: addresses for kind, addresses in found.items() if addresses}
