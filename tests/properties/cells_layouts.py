"""Random layouts of shared clusters, and others made from them as an administrator would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from tests.support.cells_invariants import check_safety

from skep.core.cells.layout import CellSpec, CellType, Grant, Layout, VcLayout
from skep.core.errors import InvariantBroken
from skep.scenarios.scheduler import GangScheduler

Choose = Callable[[int], int]
"""A number below the one given."""
T = TypeVar("T")

SHAPES: tuple[tuple[tuple[str, int], ...], ...] = (
    # From the node down to the gpus; above the node stands what is written before it.
    (("node", 4),),
    (("node", 2), ("switch", 2)),
    (("rack", 2), ("node", 4)),
    (("rack", 2), ("node", 2), ("switch", 2)),
    (("node", 2), ("socket", 2), ("switch", 2)),
    (("row", 2), ("rack", 2), ("node", 2)),
    (("rack", 3), ("node", 2), ("switch", 2)),
)
VCS = ("a", "b", "c")


class ChainPlan(NamedTuple):
    """A chain in few words: its levels from the top, and the names of the nodes in each top cell."""

    name: str
    gpu: str
    shape: tuple[tuple[str, int], ...]
    tops: tuple[tuple[str, ...], ...]
    first_gpu: int = 0
    """The number of the first gpu on each node."""

    @property
    def types(self) -> list[str]:
        """From the top to the gpu."""
        return [f"{self.name}-{word}" for word, _ in self.shape] + [self.gpu]

    @property
    def nodes_per_top(self) -> int:
        count = 1
        for word, size in self.shape:
            if word == "node":
                return count
            count *= size
        return count


class Plan(NamedTuple):
    """Everything a layout is made of."""

    chains: tuple[ChainPlan, ...]
    vcs: tuple[tuple[str, tuple[Grant, ...], tuple[str, ...]], ...]
    """Name, grants, names of pinned cells."""
    pins: tuple[tuple[str, str], ...]
    """Address, name."""


def pick(choose: Choose, options: Sequence[T]) -> T:
    return options[choose(len(options))]


def make_plan(choose: Choose) -> Plan:
    chains = tuple(make_chain(choose, f"c{number}") for number in range(1 + choose(3)))
    plan = Plan(chains, tuple((vc, (), ()) for vc in VCS[: 1 + choose(3)]), ())
    for _ in range(choose(3)):
        plan = with_pin(choose, plan)
    for _ in range(1 + choose(8)):
        plan = with_grant(choose, plan)
    return plan


def make_chain(choose: Choose, name: str) -> ChainPlan:
    chain = ChainPlan(name, pick(choose, ("k80", "v100")), pick(choose, SHAPES), ())
    gpus = 1
    for _, size in chain.shape:
        gpus *= size
    count = 1 + choose(max(32 // gpus, 1) if gpus < 16 else 2)
    # Nodes of the second chain may be those of the first: machines with two kinds of gpus.
    is_mixed = name == "c1" and choose(4) == 3
    prefix = "c0" if is_mixed else name
    return chain._replace(
        first_gpu=16 if is_mixed else 0, tops=tuple(top_nodes(chain, prefix, number) for number in range(count))
    )


def top_nodes(chain: ChainPlan, prefix: str, number: int) -> tuple[str, ...]:
    size = chain.nodes_per_top
    return tuple(f"{prefix}n{number * size + at}" for at in range(size))


def with_grant(choose: Choose, plan: Plan) -> Plan:
    """One more granted cell, if there is room for it."""
    vc, chain = choose(len(plan.vcs)), pick(choose, plan.chains)
    grant = Grant(chain.name + "-" + chain.shape[0][0], pick(choose, chain.types), 1 + choose(3))
    name, grants, pinned = plan.vcs[vc]
    return or_else(with_vc(plan, vc, (name, (*grants, grant), pinned)), plan)


def with_pin(choose: Choose, plan: Plan) -> Plan:
    """One more cell pinned for a VC, if that can be."""
    vc, specs = choose(len(plan.vcs)), [spec for top in make_layout(plan).cells for spec in all_specs(top)]
    name, grants, pinned = plan.vcs[vc]
    pin = (pick(choose, specs).address, f"pin{len(plan.pins)}")
    changed = with_vc(plan, vc, (name, grants, (*pinned, pin[1])))
    return or_else(changed._replace(pins=(*plan.pins, pin)), plan)


def with_vc(plan: Plan, number: int, vc: tuple[str, tuple[Grant, ...], tuple[str, ...]]) -> Plan:
    vcs = list(plan.vcs)
    vcs[number] = vc
    return plan._replace(vcs=tuple(vcs))


def or_else(plan: Plan, before: Plan) -> Plan:
    return plan if is_valid(plan) else before


def is_valid(plan: Plan) -> bool:
    layout = make_layout(plan)
    specs = {spec.address: spec for top in layout.cells for spec in all_specs(top)}
    pinned = [name for _, _, names in plan.vcs for name in names]
    if len({address for address, _ in plan.pins}) < len(plan.pins) or not set(pinned) <= dict_of(plan.pins).keys():
        return False
    if any(address not in specs for address, _ in plan.pins):
        return False
    if any(len({*nodes}) < len(nodes) for nodes in ([n for top in chain.tops for n in top] for chain in plan.chains)):
        return False
    names = {spec.type for spec in layout.cells}
    if any(grant.chain not in names for _, grants, _ in plan.vcs for grant in grants):
        return False
    try:
        cells = GangScheduler(layout)
        for chain in cells.chains.values():
            check_safety(cells, chain)
    except InvariantBroken:
        return False
    return True


def dict_of(pins: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {name: address for address, name in pins}


# From a plan to a layout ----------------------------------------------------------------------------------------


def make_layout(plan: Plan) -> Layout:
    types: dict[str, CellType] = {}
    cells: list[CellSpec] = []
    pins = dict(plan.pins)
    for chain in plan.chains:
        for at, (word, size) in enumerate(chain.shape):
            name = chain.types[at]
            types[name] = CellType(name, chain.types[at + 1], size, word == "node")
        for nodes in chain.tops:
            cells.append(make_cell(types, chain.types[0], str(len(cells)), "", list(nodes), [chain.first_gpu], pins))
    vcs = {name: VcLayout(name, list(grants), list(pinned)) for name, grants, pinned in plan.vcs}
    return Layout(types, cells, vcs)


def make_cell(
    types: dict[str, CellType],
    name: str,
    address: str,
    node: str,
    nodes: list[str],
    gpus: list[int],
    pins: dict[str, str],
) -> CellSpec:
    """`nodes` are the names still to be given, `gpus` counts the gpus of the node at hand."""
    kind = types.get(name)
    if kind is None:
        gpus[0] += 1
        path = f"{address.rpartition('/')[0]}/{gpus[0] - 1}"
        return CellSpec(name, path, node, pins.get(path, ""))
    if kind.is_node:
        node, gpus = nodes.pop(0), list(gpus)
    children = [
        make_cell(types, kind.child, f"{address}/{number}", node, nodes, gpus, pins) for number in range(kind.count)
    ]
    return CellSpec(name, address, node, pins.get(address, ""), children)


def all_specs(spec: CellSpec) -> list[CellSpec]:
    return [spec, *(found for child in spec.children for found in all_specs(child))]


# Changes of a plan ----------------------------------------------------------------------------------------------


def changed_plan(choose: Choose, plan: Plan) -> Plan:
    """The plan as an administrator might change it; the same plan where that would not fit."""
    change = pick(choose, (drop_grant, drop_vc, rename_vc, with_grant, drop_top, add_top, rename_node, swap_nodes))
    return or_else(change(choose, plan), plan)


def drop_grant(choose: Choose, plan: Plan) -> Plan:
    number = choose(len(plan.vcs))
    name, grants, pinned = plan.vcs[number]
    if not grants:
        return plan
    gone = choose(len(grants))
    less = [msgspec.structs.replace(grants[gone], count=grants[gone].count - 1)] if grants[gone].count > 1 else []
    return with_vc(plan, number, (name, (*grants[:gone], *less, *grants[gone + 1 :]), pinned))


def drop_vc(choose: Choose, plan: Plan) -> Plan:
    number = choose(len(plan.vcs))
    if len(plan.vcs) == 1:
        return plan
    return plan._replace(vcs=plan.vcs[:number] + plan.vcs[number + 1 :])


def rename_vc(choose: Choose, plan: Plan) -> Plan:
    number = choose(len(plan.vcs))
    name, grants, pinned = plan.vcs[number]
    return with_vc(plan, number, (name + "x", grants, pinned))


def drop_top(choose: Choose, plan: Plan) -> Plan:
    at = choose(len(plan.chains))
    tops = plan.chains[at].tops
    gone = choose(len(tops))
    return with_tops(plan, at, tops[:gone] + tops[gone + 1 :]) if len(tops) > 1 else plan


def add_top(choose: Choose, plan: Plan) -> Plan:
    at = choose(len(plan.chains))
    chain = plan.chains[at]
    return with_tops(plan, at, (*chain.tops, top_nodes(chain, f"new{len(chain.tops)}", 0)))


def rename_node(choose: Choose, plan: Plan) -> Plan:
    """One machine is gone, another is in its place."""
    at = choose(len(plan.chains))
    tops = [list(nodes) for nodes in plan.chains[at].tops]
    nodes = pick(choose, tops)
    nodes[choose(len(nodes))] += "x"
    return with_tops(plan, at, tuple(map(tuple, tops)))


def swap_nodes(choose: Choose, plan: Plan) -> Plan:
    """Two machines change places, perhaps between chains."""
    places = [
        (at, top, n)
        for at, chain in enumerate(plan.chains)
        for top, nodes in enumerate(chain.tops)
        for n in range(len(nodes))
    ]
    one, two = pick(choose, places), pick(choose, places)
    tops = [[list(nodes) for nodes in chain.tops] for chain in plan.chains]
    names = [tops[at][top][number] for at, top, number in (one, two)]
    for (at, top, number), name in zip((two, one), names, strict=True):
        tops[at][top][number] = name
    for at, nodes in enumerate(tops):
        plan = with_tops(plan, at, tuple(map(tuple, nodes)))
    return plan


def with_tops(plan: Plan, at: int, tops: tuple[tuple[str, ...], ...]) -> Plan:
    chains = list(plan.chains)
    chains[at] = chains[at]._replace(tops=tops)
    return plan._replace(chains=tuple(chains))
