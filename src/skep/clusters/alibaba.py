"""Alibaba's node list of 2023 (Weng et al., ATC'23): `sn,cpu_milli,memory_mib,gpu,model`, read unchanged."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from skep.clusters.spec import GPUS_MAX, LARGEST, NODES_MAX, SizeMax, too_many
from skep.core.cluster import NodeSpec
from skep.core.errors import InputError
from skep.files.text import shorten

COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
AMOUNT_MAX = 10**12


def is_node_list(text: str) -> bool:
    """True if the first line is a header that has the name and the GPUs of a node."""
    header = {cell.strip(' "') for cell in text.lstrip().split("\n", 1)[0].strip().split(",")}
    return {"sn", "gpu"} <= header


def read_node_list(text: str, path: str, most: SizeMax = LARGEST) -> list[NodeSpec]:
    rows = _rows(text, path)
    line, header = next(rows)
    columns = [cell.strip() for cell in header]
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise InputError(f"{path}:{line}: no column {missing[0]}, expected {','.join(COLUMNS)}")
    nodes: dict[str, NodeSpec] = {}
    for line, row in rows:
        if len(row) != len(columns):
            raise InputError(f"{path}:{line}: {len(row)} cells, expected {len(columns)}")
        node = _node(f"{path}:{line}", dict(zip(columns, (cell.strip() for cell in row), strict=True)))
        if node.name in nodes:
            raise InputError(f"{path}:{line}: sn {node.name} is given twice")
        nodes[node.name] = node
    if not 0 < len(nodes) <= NODES_MAX:
        raise InputError(f"{path}: has {len(nodes):,} nodes, expected 1 to {NODES_MAX:,}")
    if excess := too_many(len(nodes), sum(node.gpus for node in nodes.values()), most):
        raise InputError(f"{path}: has {excess}")
    return list(nodes.values())


def _rows(text: str, path: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: is not CSV: {error}") from None


def _node(where: str, cells: dict[str, str]) -> NodeSpec:
    name = cells["sn"]
    if not name:
        raise InputError(f"{where}: sn is empty, expected a name")
    gpus = _whole(where, cells, "gpu", GPUS_MAX)
    cpu_milli = _whole(where, cells, "cpu_milli", AMOUNT_MAX)
    memory_mib = _whole(where, cells, "memory_mib", AMOUNT_MAX)
    if not gpus and not cpu_milli:
        raise InputError(f"{where}: gpu is 0 and cpu_milli is 0, expected one of them above 0")
    gpu_type = cells["model"].lower() if gpus else ""
    return NodeSpec(name, gpus, gpu_type, cpu_milli=cpu_milli, memory_mib=memory_mib)


def _whole(where: str, cells: dict[str, str], column: str, most: int) -> int:
    cell = cells[column]
    if cell.isascii() and cell.isdigit() and len(cell) < 20 and int(cell) <= most:
        return int(cell)
    shown = shorten(cell) or "empty"
    raise InputError(f"{where}: {column} is {shown}, expected a whole number from 0 to {most:,}")
