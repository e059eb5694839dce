"""Skep's own cluster file: groups of equal nodes, with the cells around them and the cells inside them."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from skep.clusters.discovered import DISCOVERED, INNER, OF_DISCOVERY, found_nodes, parse_discovery
from skep.clusters.spec import GPUS_MAX, LARGEST, NODES_MAX, SizeMax, too_many
from skep.core.cluster import UNLIMITED, NodeSpec
from skep.files.document import Field

TOP = ("name", "levels", "nodes", "vcs", *OF_DISCOVERY)
OF_NODES = ("count", "name", "gpus", "gpu_type", "gpu_mem_gib", "speed", "cpus", "memory_gib", "tags", "extras", *INNER)
RESERVED = (*OF_NODES, "gpu", "node", "cluster")
CPUS_MAX = 1e6
GIB_MAX = 1e9
EXTRAS_MAX = 10**15
_TAG = re.compile(r"[^\s=!<>|&~]+(=[^\s=!<>|&~]*)?")
SPEED_MIN = 0.01
OTHERS = "default"
"""The key for the speed of models that are not named."""
EXAMPLE = "for example: nodes: [{count: 4, gpus: 8, gpu_type: v100}]"


class NodeGroup(NamedTuple):
    """Nodes that differ only in their name."""

    field: Field
    size: int
    name: str
    node: NodeSpec


def parse_nodes(document: Field, most: SizeMax = LARGEST) -> tuple[str, list[NodeSpec]]:
    """The name of the cluster, if it has one, and its nodes. `shares.py` reads their owners (`vcs`)."""
    top = document.fields(TOP)
    if "nodes" not in top:
        raise document.trouble("nodes is missing", hint=EXAMPLE)
    levels = _levels(top["levels"]) if "levels" in top else ("rack",)
    name = top["name"].text() if "name" in top else ""
    if not top["nodes"].is_list and top["nodes"].text() == DISCOVERED:
        parse_discovery(document)
        return name, found_nodes(document)
    for key in OF_DISCOVERY:
        if key in top:
            raise top[key].fault("none where the file names the nodes", hint="nodes: discovered")
    groups = [_group(field, levels) for field in top["nodes"].items()]
    total = sum(group.size for group in groups)
    if not 0 < total <= NODES_MAX:
        raise top["nodes"].trouble(f"nodes are {total:,}, expected 1 to {NODES_MAX:,}", hint=EXAMPLE)
    if excess := too_many(total, sum(group.size * group.node.gpus for group in groups), most):
        raise top["nodes"].trouble(f"nodes: {excess}", hint=EXAMPLE)
    _check_speeds(groups)
    return name, _expand(groups, total)


def _levels(field: Field) -> tuple[str, ...]:
    """Names of the cells above a node, outermost first."""
    names: list[str] = []
    for item in field.items():
        name = item.text()
        if name in RESERVED or name in names:
            raise item.fault("a name of its own such as row or rack")
        names.append(name)
    return tuple(names)


def _group(field: Field, levels: tuple[str, ...]) -> NodeGroup:
    given = field.fields(OF_NODES + levels)
    count = given["count"].whole(least=1, most=NODES_MAX) if "count" in given else 1
    gpus = given["gpus"].whole(least=0, most=GPUS_MAX) if "gpus" in given else 0
    if not gpus:
        _check_without_gpus(field, given)
    node = NodeSpec(
        name="",
        gpus=gpus,
        gpu_type=given["gpu_type"].text().lower() if "gpu_type" in given else "",
        gpu_mem_mib=_scaled(given.get("gpu_mem_gib"), 1024, GIB_MAX),
        cpu_milli=_scaled(given.get("cpus"), 1000, CPUS_MAX),
        memory_mib=_scaled(given.get("memory_gib"), 1024, GIB_MAX),
        within=tuple((level, given[level].text()) for level in levels if level in given),
        inner=_inner(given, gpus),
        speeds=_speeds(given["speed"]) if "speed" in given else (),
        tags=_tags(given["tags"]) if "tags" in given else (),
        extras=_extras(given["extras"]) if "extras" in given else (),
    )
    return NodeGroup(field, count, _node_name(given["name"]) if "name" in given else "", node)


def _tags(field: Field) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(item.text() for item in field.items()))
    for tag in found:
        if _TAG.fullmatch(tag) is None:
            raise field.trouble(f"{field.path}: {tag[:80]!r} is not a tag", hint="for example zone=a or ssd")
    return tuple(sorted(found))


def _extras(field: Field) -> tuple[tuple[str, int], ...]:
    return tuple((name, each.whole(least=1, most=EXTRAS_MAX)) for name, each in sorted(field.fields().items()))


def _check_without_gpus(field: Field, given: dict[str, Field]) -> None:
    if "cpus" not in given or given["cpus"].number() == 0:
        raise field.trouble(f"{field.path} has neither GPUs nor CPUs, expected at least one", hint=EXAMPLE)
    for key in ("gpu_type", "gpu_mem_gib", "speed", *INNER):
        if key in given:
            raise given[key].fault("none where a node has no GPUs")


def _scaled(field: Field | None, unit: int, most: float) -> int:
    return UNLIMITED if field is None else round(field.number(most=most) * unit)


def _speeds(field: Field) -> tuple[tuple[str, float], ...]:
    """A number, or numbers by model: the part of a full GPU's speed that a virtual one has."""
    by_model = field.fields() if field.is_mapping else {OTHERS: field}
    found = {"" if model == OTHERS else model: each.number(least=SPEED_MIN, most=1) for model, each in by_model.items()}
    return tuple(sorted(found.items()))


def _check_speeds(groups: list[NodeGroup]) -> None:
    """A speed belongs to a GPU type."""
    known: dict[str, tuple[tuple[str, float], ...]] = {}
    for group in groups:
        node = group.node
        if node.gpus and known.setdefault(node.gpu_type, node.speeds) != node.speeds:
            of = f"GPU type {node.gpu_type}" if node.gpu_type else "GPUs without a type"
            raise group.field.trouble(
                f"{group.field.path}.speed differs from that of other nodes with {of}, expected one speed for a type",
                hint="give the slower GPUs a gpu_type of their own",
            )


def _inner(given: dict[str, Field], gpus: int) -> tuple[tuple[str, int], ...]:
    """Each cell is divided into equal cells of the next level, so every size must divide the next larger one."""
    cells: list[tuple[str, int]] = []
    outer, outer_gpus = "gpus", gpus
    for level in INNER:
        if level in given:
            size = given[level].whole(least=1, most=GPUS_MAX)
            if outer_gpus % size:
                raise given[level].fault(f"gpus of one {level}: a divisor of {outer} {outer_gpus}")
            cells.append((level, size))
            outer, outer_gpus = level, size
    return tuple(cells)


def _node_name(field: Field) -> str:
    name = field.text()
    if len(name) > 200 or any(letter.isspace() for letter in name):
        raise field.fault("a name without blanks, of at most 200 letters")
    return name


def _expand(groups: list[NodeGroup], total: int) -> list[NodeSpec]:
    """All nodes; generated names have leading zeros, so that they sort by number."""
    nodes: dict[str, NodeSpec] = {}
    for group in groups:
        first, prefix, last = (0, group.name, group.size) if group.name else (len(nodes), "n", total)
        width = len(str(last - 1))
        for number in range(first, first + group.size):
            is_single = group.name and group.size == 1
            name = group.name if is_single else f"{prefix}{number:0{width}}"
            if name in nodes:
                raise group.field.trouble(f"{group.field.path}: a second node {name}, expected another name")
            nodes[name] = msgspec.structs.replace(group.node, name=name)
    return list(nodes.values())
