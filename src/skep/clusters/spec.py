"""Clusters that fit on the command line: `64x8`, `64x8:v100`, `32x8:v100+16x4:p100`."""

from __future__ import annotations

import re
from typing import NamedTuple

from skep.core.cluster import NodeSpec
from skep.core.errors import InputError
from skep.files.text import shorten

NODES_MAX = 100_000
GPUS_MAX = 1_000
"""Of one node. Beyond any hardware: a larger number is a slip of the keyboard."""


class SizeMax(NamedTuple):
    """The most of a cluster. Each GPU costs memory, so this is checked before anything is built."""

    nodes: int
    gpus: int
    cells: int
    """Of all levels, where a file lists them: nodes of 16 GPUs with switches and sockets."""


LARGEST = SizeMax(NODES_MAX, 1_600_000, 4_000_000)
LIVE = SizeMax(10_000, 160_000, 400_000)
"""Of a server, which builds clusters while its jobs wait."""

EXAMPLES = "nodes x GPUs of each, for example 64x8, 64x8:v100 or 32x8:v100+16x4:p100; or a YAML file"

_PART = re.compile(r"([0-9]+)[xX×]([0-9]+)(?::([A-Za-z0-9][\w.-]*))?")
_ATTEMPT = re.compile(r"[0-9]*\s*[xX×*]\s*[0-9]*(:[\w.+:*-]*|\+.*)?", re.DOTALL)


def looks_like_spec(spec: str) -> bool:
    """Whether a spec was meant, well-formed or not; a file of such a name can be given as `./64x8`."""
    return _ATTEMPT.fullmatch(spec.strip()) is not None


def parse_spec(spec: str, most: SizeMax = LARGEST) -> list[NodeSpec]:
    """The nodes, named `n0`, `n1`, … with as many digits as the last needs, so that they sort."""
    groups = parse_groups(spec, most)
    total = sum(count for count, _, _ in groups)
    width = len(str(total - 1))
    nodes: list[NodeSpec] = []
    for count, gpus, gpu_type in groups:
        first = len(nodes)
        nodes += [NodeSpec(f"n{at:0{width}}", gpus, gpu_type) for at in range(first, first + count)]
    return nodes


def parse_groups(spec: str, most: SizeMax = LARGEST) -> list[tuple[int, int, str]]:
    """(number of nodes, GPUs of each, their type), within the limits. Nothing is built."""
    groups = [_parse_part(spec, part.strip()) for part in spec.split("+")]
    if excess := too_many(sum(count for count, _, _ in groups), sum(count * gpus for count, gpus, _ in groups), most):
        raise InputError(f"cluster {shorten(spec)}: {excess}")
    return groups


def too_many(nodes: int, gpus: int, most: SizeMax) -> str:
    """What a cluster of this size would have too many of; empty if it may be built."""
    for what, count, bound in (("nodes", nodes, most.nodes), ("GPUs", gpus, most.gpus)):
        if count > bound:
            return f"{count:,} {what}, expected at most {bound:,}{' on a server' if most is LIVE else ''}"
    return ""


def _parse_part(spec: str, part: str) -> tuple[int, int, str]:
    where = f"cluster {shorten(spec)}"
    match = _PART.fullmatch(part)
    if match is None:
        shown = shorten(part) or "an empty part"
        raise InputError(f"{where}: {shown} is not NODESxGPUS or NODESxGPUS:TYPE", hint=EXAMPLES)
    count = _limited(where, match[1], "nodes", NODES_MAX)
    gpus = _limited(where, match[2], "GPUs per node", GPUS_MAX)
    return count, gpus, (match[3] or "").lower()


def _limited(where: str, digits: str, what: str, most: int) -> int:
    # A number of thousands of digits is not even converted: Python refuses to, with an error of its own.
    value = int(digits) if len(digits) < 20 else most + 1
    if 1 <= value <= most:
        return value
    raise InputError(f"{where}: {shorten(digits)} {what}, expected 1 to {most:,}", hint=EXAMPLES)
