"""`nodes: discovered` in a cluster file: the nodes are those that the engine finds, and the file says what their labels
mean.

    nodes: discovered
    only: [pool=training]                                # default: nodes with GPUs
    labels: {rack: topology.example/rack, switch: topology.example/gpus-per-switch}
    gpu_types: {NVIDIA-A100-SXM4-80GB: a100}
    vcs: {research: 4 nodes}

The server adds `found`, the nodes that it knew when the file was applied.
"""

from __future__ import annotations

import re

import msgspec

from skep.core.cluster import NodeSpec
from skep.core.errors import InputError
from skep.core.tags import check_expression, has_tags
from skep.files.document import Field, read_document

DISCOVERED = "discovered"
OF_DISCOVERY = ("only", "labels", "gpu_types", "found")
INNER = ("socket", "switch")
NAMED = ("gpu_type", "gpu_mem_gib", *INNER)
"""What a label may tell beside the cells around a node."""
FOUND = re.compile(r"^found: '.*'\n", re.MULTILINE)


class Discovery(msgspec.Struct, frozen=True):
    """How nodes that an engine finds become those of the cluster."""

    levels: tuple[str, ...] = ("rack",)
    labels: dict[str, str] = {}
    """The keys of the labels that tell the cells around a node, the cells inside, the GPU type and its memory."""
    gpu_types: dict[str, str] = {}
    """The names of GPU types, by what the label says."""
    only: tuple[str, ...] = ()

    def node(self, found: NodeSpec) -> NodeSpec | None:
        """None if it is not one of the cluster."""
        if not has_tags(frozenset(found.tags), self.only) or not (found.gpus or self.only):
            return None
        values = dict(tag.split("=", 1) for tag in found.tags if "=" in tag)
        told = {name: values[key] for name, key in self.labels.items() if values.get(key)}
        gpu_type = told.get("gpu_type", found.gpu_type)
        return msgspec.structs.replace(
            found,
            gpu_type=self.gpu_types.get(gpu_type, self.gpu_types.get(gpu_type.lower(), gpu_type)).lower(),
            gpu_mem_mib=number(told.get("gpu_mem_gib", "")) * 1024 or found.gpu_mem_mib,
            within=tuple((level, told[level]) for level in self.levels if level in told),
            inner=inner_of(told, found.gpus),
        )


def number(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0


def inner_of(told: dict[str, str], gpus: int) -> tuple[tuple[str, int], ...]:
    """Sizes that do not divide the GPUs are left out: a label is no reason to do without the node."""
    found, outer = [], gpus
    for level in INNER:
        size = number(told.get(level, ""))
        if size and outer and outer % size == 0:
            found.append((level, size))
            outer = size
    return tuple(found)


def is_discovered(text: str) -> bool:
    """Whether this is such a file, as far as the text shows."""
    return re.search(r"^nodes:\s*discovered\s*$", text, re.MULTILINE) is not None


def read_discovery(text: str) -> Discovery | None:
    """None if the file names its nodes."""
    return parse_discovery(read_document(without_found(text), "")) if is_discovered(text) else None


def parse_discovery(document: Field) -> Discovery:
    top = document.fields()
    levels = tuple(item.text() for item in top["levels"].items()) if "levels" in top else ("rack",)
    labels = {name: field.text() for name, field in given(top, "labels").items()}
    for name in labels:
        if name not in (*NAMED, *levels):
            raise top["labels"].trouble(f"labels: {name!r}", hint=f"expected {', '.join((*levels, *NAMED))}")
    only = tuple(item.text() for item in top["only"].items()) if "only" in top else ()
    for text in only:
        if not check_expression(text):
            raise top["only"].trouble(f"only: {text[:80]!r} is not an expression", hint="for example pool=training")
    types = {name: field.text() for name, field in given(top, "gpu_types").items()}
    return Discovery(levels, labels, types, only)


def given(top: dict[str, Field], name: str) -> dict[str, Field]:
    return top[name].fields() if name in top else {}


def found_nodes(document: Field) -> list[NodeSpec]:
    """The nodes that the server has added to the file."""
    top = document.fields()
    if "found" not in top:
        return []
    try:
        return msgspec.json.decode(top["found"].text(), type=list[NodeSpec])
    except msgspec.DecodeError:
        raise top["found"].fault("what the server has written", hint="leave it out") from None


def found_in(text: str) -> list[NodeSpec]:
    """The same, of the text of any cluster file."""
    return found_nodes(read_document(text, "")) if is_discovered(text) else []


def with_found(text: str, nodes: list[NodeSpec]) -> str:
    """The file with these nodes of the engine, as far as they are those of the cluster."""
    discovery = read_discovery(text)
    assert discovery is not None
    ours = [spec for node in nodes if (spec := discovery.node(node)) is not None]
    told = msgspec.json.encode(sorted(ours, key=lambda spec: spec.name)).decode().replace("'", "''")
    return f"{without_found(text).rstrip()}\nfound: '{told}'\n"


def without_found(text: str) -> str:
    return FOUND.sub("", text)


def refuse_undiscovered(text: str, where: str) -> None:
    if is_discovered(text) and FOUND.search(text) is None:
        raise InputError(f"{where}: nodes are discovered by a server, and there is none here", hint="name the nodes")
