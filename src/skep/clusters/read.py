"""A cluster from what the user typed: a short spec, or a file recognised by what is in it."""

from __future__ import annotations

from pathlib import Path

from skep.clusters.spec import EXAMPLES, looks_like_spec, parse_spec
from skep.core.cluster import Cluster
from skep.core.errors import InputError
from skep.files.text import load_text, shorten

WHAT = "a cluster file (YAML, or Alibaba's node list)"


def read_cluster(spec: str) -> Cluster:
    """The cluster of a spec such as `32x8:v100+16x4:p100`, or of a file.

    It is named as the spec was typed, or as its file says, or after its file.
    """
    if looks_like_spec(spec):
        return Cluster(parse_spec(spec), spec.strip())
    if not _is_file(spec):
        raise InputError(f"cluster {shorten(spec) or repr(spec)} is neither a spec nor a file", hint=EXAMPLES)
    return _read_file(spec)


def _is_file(spec: str) -> bool:
    """Whether a path was meant: something is there, or its form says so and the fault is that nothing is."""
    path = Path(spec)
    try:
        is_there = bool(spec) and path.exists()
    except (OSError, ValueError):
        return False
    return is_there or path.suffix.lower() in (".yaml", ".yml", ".json", ".csv") or "/" in spec


def _read_file(path: str) -> Cluster:
    text = load_text(path, what=WHAT)
    from skep.clusters.alibaba import is_node_list, read_node_list

    if is_node_list(text):
        return Cluster(read_node_list(text, path), Path(path).name)
    from skep.clusters.nodes_file import read_nodes

    name, nodes = read_nodes(text, path)
    return Cluster(nodes, name or Path(path).name)
