"""A cluster from a short spec, or from a file recognised by its content."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skep.clusters.spec import EXAMPLES, LARGEST, SizeMax, looks_like_spec, parse_spec
from skep.core.cells.layout import Layout
from skep.core.cluster import Cluster, NodeSpec
from skep.core.errors import InputError
from skep.files.text import load_text, shorten

if TYPE_CHECKING:
    from skep.files.document import Field

WHAT = "a cluster file (YAML, or Alibaba's node list)"


def read_cluster(spec: str) -> Cluster:
    """The cluster of a spec such as `32x8:v100+16x4:p100`, or of a file.

    Its name is the spec as typed, or the name in the file, or the name of the file.
    """
    if looks_like_spec(spec):
        return Cluster(parse_spec(spec), spec.strip())
    _refuse_neither(spec)
    return _read_file(spec)


class Described(NamedTuple):
    """A layout, and warnings about how its file was read."""

    layout: Layout
    notes: list[str]


def read_text(text: str, name: str, most: SizeMax = LARGEST) -> tuple[Cluster, Layout | None]:
    """A cluster from a spec or a file, and its layout if it has virtual clusters."""
    if looks_like_spec(text):
        return Cluster(parse_spec(text, most), text.strip()), None
    layout = _from_text(text, name, most).layout
    if layout.vcs:
        from skep.core.cells.hardware import cluster_of

        return cluster_of(layout), layout
    return _cluster_of_text(text, name), None


def read_layout(spec: str | Path) -> Layout:
    """The cells of a cluster and their owners: HiveD's configuration, or anything `read_cluster` accepts."""
    return describe_layout(spec).layout


def describe_layout(spec: str | Path) -> Described:
    shown = str(spec)
    if looks_like_spec(shown):
        return _from_nodes(parse_spec(shown), shown.strip())
    _refuse_neither(shown)
    return _from_text(_load(shown), shown)


def _from_text(text: str, shown: str, most: SizeMax = LARGEST) -> Described:
    from skep.clusters.alibaba import is_node_list, read_node_list

    name = Path(shown).name
    if is_node_list(text):
        return _from_nodes(read_node_list(text, shown, most), name)
    from skep.clusters.hived import is_hived, parse_layout
    from skep.files.document import read_document

    document = read_document(text, shown)
    if is_hived(document):
        layout = parse_layout(document, most=most)
        layout.name = name
        return Described(layout, [])
    return _from_own(document, name, most)


def _from_own(document: Field, file_name: str, most: SizeMax) -> Described:
    from skep.clusters.nodes_file import parse_nodes

    name, nodes = parse_nodes(document, most)
    vcs = document.fields().get("vcs")
    return _from_nodes(nodes, name or file_name, vcs)


def _from_nodes(nodes: list[NodeSpec], name: str, vcs: Field | None = None) -> Described:
    from skep.clusters.chains import layout_of, node_chains, notes_of

    chains = node_chains(nodes)
    layout = layout_of(chains, nodes, name)
    if vcs is not None:
        from skep.clusters.shares import read_vcs

        read_vcs(vcs, chains, layout)
    return Described(layout, notes_of(chains, nodes))


def _refuse_neither(spec: str) -> None:
    if not _is_file(spec):
        raise InputError(f"cluster {shorten(spec) or repr(spec)} is neither a spec nor a file", hint=EXAMPLES)


def _is_file(spec: str) -> bool:
    """True if a path was meant: the file exists, or the text has the form of a path."""
    path = Path(spec)
    try:
        is_there = bool(spec) and path.exists()
    except (OSError, ValueError):
        return False
    return is_there or path.suffix.lower() in (".yaml", ".yml", ".json", ".csv") or "/" in spec


def _read_file(path: str) -> Cluster:
    return _cluster_of_text(_load(path), path)


def _load(path: str) -> str:
    from skep.clusters.discovered import refuse_undiscovered

    text = load_text(path, what=WHAT)
    refuse_undiscovered(text, path)
    return text


def _cluster_of_text(text: str, path: str) -> Cluster:
    from skep.clusters.alibaba import is_node_list, read_node_list

    if is_node_list(text):
        return Cluster(read_node_list(text, path), Path(path).name)
    from skep.clusters.hived import is_hived, parse_layout
    from skep.clusters.nodes_file import parse_nodes
    from skep.files.document import read_document

    document = read_document(text, path)
    if is_hived(document):
        from skep.core.cells.hardware import cluster_of

        layout = parse_layout(document)
        layout.name = Path(path).name
        return cluster_of(layout)
    name, nodes = parse_nodes(document)
    return Cluster(nodes, name or Path(path).name)
