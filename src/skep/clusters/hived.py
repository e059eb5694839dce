"""HiveD's configuration: hardware as a tree of cells, and the virtual clusters that own them.

The file is read as HiveD and OpenPAI read it, with two differences. What makes HiveD crash, or silently deviate from
the file, is an error with a line number; and a chain that no virtual cluster uses is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from skep.clusters.fit import refuse_misfit
from skep.clusters.hived_cells import read_cells, read_types
from skep.clusters.spec import LARGEST, SizeMax
from skep.core.cells.layout import CellSpec, Grant, Layout, Sku, VcLayout
from skep.core.errors import did_you_mean
from skep.files.document import Field, plain_document
from skep.files.text import shorten

OF_HARDWARE = ("skuTypes", "gpuTypes", "cellTypes", "physicalCells")
"""`gpuTypes` is from before HiveD 0.3 and is not used."""
OF_VC = ("virtualCells", "pinnedCells", "policy")
OF_GRANT = ("cellType", "cellNumber")
CELLS_GRANTED_MAX = 1_000_000

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTPE]i|[kKMGTPE]|)")
_EXPONENTS = {letter: power for power, letter in enumerate("KMGTPE", start=1)}


def is_hived(document: Field) -> bool:
    """True if it is such a configuration, or was meant to be."""
    return document.is_mapping and not {"physicalCluster", "virtualClusters", "hivedscheduler"}.isdisjoint(
        document.fields()
    )


def parse_layout(
    source: Field | Mapping[str, object], where: str = "the configuration", most: SizeMax = LARGEST
) -> Layout:
    """The layout of a configuration, or of the part of a document that contains one.

    `source` may be plain values too (from JSON); error messages about them begin with `where` and have no line number.
    """
    document = source if isinstance(source, Field) else plain_document(dict(source), where)
    top = _top(document)
    hardware = top["physicalCluster"].fields(OF_HARDWARE, required=("cellTypes", "physicalCells"))
    types = read_types(hardware["cellTypes"])
    cells, pinned = read_cells(hardware["physicalCells"], types, most.cells)
    skus = _skus(hardware["skuTypes"]) if "skuTypes" in hardware else {}
    layout = Layout(types, cells, skus=skus)
    if "virtualClusters" in top and not top["virtualClusters"].is_null:
        _OwnerReader(layout, pinned).read(top["virtualClusters"])
    return layout


def _top(document: Field) -> dict[str, Field]:
    """The entries of the file. Those of HiveD's server (`webServerAddress`, …) are ignored."""
    top = document.fields()
    for key, field in top.items():
        for name in ("physicalCluster", "virtualClusters"):
            if key != name and key.lower().rstrip("s") == name.lower().rstrip("s"):
                raise field.trouble(f"unknown key {field.path}, did you mean {name}?")
    if "physicalCluster" not in top:
        is_wrapped = "hivedscheduler" in top
        hint = "put what is below hivedscheduler.config into a file of its own" if is_wrapped else ""
        raise document.trouble("physicalCluster is missing", hint=hint)
    return top


def _skus(field: Field) -> dict[str, Sku]:
    """The CPUs and memory that come with one GPU of a type. An entry for an unused type does no harm."""
    return {} if field.is_null else {name: _sku(entry) for name, entry in field.fields().items()}


def _sku(field: Field) -> Sku:
    given = field.fields()
    return Sku(
        gpu=given["gpu"].whole(least=0, most=1000) if "gpu" in given else 0,
        cpu_milli=round(given["cpu"].number(most=1e6) * 1000) if "cpu" in given else 0,
        memory_mib=_memory_mib(given["memory"]) if "memory" in given else 0,
    )


def _memory_mib(field: Field) -> int:
    """A quantity as Kubernetes writes them: `54Gi`, `8192Mi`, `100G`, or bytes."""
    expected = "memory such as 54Gi or 8192Mi"
    match = _QUANTITY.fullmatch(field.text(expected))
    if match is None or len(match[1]) > 20:
        raise field.fault(expected)
    suffix = match[2]
    base = 1024 if suffix.endswith("i") else 1000
    scale = base ** _EXPONENTS[suffix[0].upper()] if suffix else 1
    return int(float(match[1]) * scale) // 2**20


class _OwnerReader:
    """Reads the virtual clusters into a layout whose hardware is known."""

    def __init__(self, layout: Layout, pinned: dict[str, CellSpec]) -> None:
        self.layout = layout
        self.pinned = pinned
        self.chains = {
            chain: [kind.name for kind in layout.chain_types(chain)]
            for chain in dict.fromkeys(cell.type for cell in layout.cells)
        }
        self.granted: dict[tuple[str, str], Field] = {}
        """The last field that grants cells of a (chain, type)."""
        self.owned: dict[str, Field] = {}
        """The field where a pinned cell is given to a VC."""

    def read(self, field: Field) -> None:
        for name, entry in field.fields().items():
            refuse_nameless(name, field, entry)
            self.layout.vcs[name] = self._vc(name, entry)
        refuse_misfit(self.layout, self.granted, self.owned, cells="cellNumber")

    def _vc(self, name: str, field: Field) -> VcLayout:
        """A VC that owns nothing is valid: all its work is opportunistic."""
        given = field.fields(OF_VC) if not field.is_null else {}
        vc = VcLayout(name, policy=given["policy"].text() if "policy" in given else "")
        for item in _items(given.get("virtualCells")):
            grant = self._grant(item)
            if grant.count:
                vc.grants.append(grant)
                self.granted[grant.chain, grant.type] = item
        vc.pinned = [self._pinned(item) for item in _items(given.get("pinnedCells"))]
        return vc

    def _grant(self, field: Field) -> Grant:
        """The first element of a dotted path names the chain, the last the level; HiveD ignores the rest too."""
        given = field.fields(OF_GRANT, required=OF_GRANT)
        kind = given["cellType"]
        path = kind.text().split(".")
        if path[0] not in self.chains:
            near = did_you_mean(path[0], self.chains, start=", ")
            hint = f"physicalCells has {', '.join(self.chains)}"
            raise kind.trouble(f"{kind.path}: no physical cells of type {shorten(path[0])}{near}", hint=hint)
        types = self.chains[path[0]]
        if path[-1] not in types:
            near = did_you_mean(path[-1], types, start=", ")
            hint = f"from the top it has {', '.join(reversed(types))}"
            problem = f"{kind.path}: unknown cell type {shorten(path[-1])} in the chain {path[0]}{near}"
            raise kind.trouble(problem, hint=hint)
        return Grant(path[0], path[-1], given["cellNumber"].whole(least=0, most=CELLS_GRANTED_MAX))

    def _pinned(self, field: Field) -> str:
        given = field.fields(("pinnedCellId",), required=("pinnedCellId",))["pinnedCellId"]
        name = given.text()
        if name not in self.pinned:
            near = did_you_mean(name, self.pinned, start=", ")
            raise given.trouble(f"{given.path}: unknown pinned cell {shorten(name)}{near}")
        if name in self.owned:
            problem = f"{given.path}: the pinned cell {name} is already taken by {self.owned[name].path}"
            raise given.trouble(problem)
        self.owned[name] = given
        return name


def refuse_nameless(vc: str, field: Field, entry: Field) -> None:
    if not vc.strip() or not vc.isprintable():
        raise entry.trouble(f"{field.path}: the name of a virtual cluster is {vc!r}, expected a text")


def _items(field: Field | None) -> list[Field]:
    return [] if field is None or field.is_null else field.items()
