"""The short form of virtual clusters: the section `vcs` of Skep's own cluster file.

vcs:
  research: 4 nodes
  vision: [2 nodes of v100, 1 rack of p100]
  prod: {cells: {node: 2, switch: 1}, gpu_type: v100, pinned: [n07], policy: tiresias-l}
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from skep.clusters.chains import NodeChain
from skep.clusters.fit import refuse_misfit
from skep.clusters.hived import refuse_nameless
from skep.core.cells.layout import CellSpec, Grant, Layout, VcLayout
from skep.core.errors import InputError, did_you_mean
from skep.files.document import Field
from skep.files.text import shorten

OF_VC = ("cells", "gpu_type", "pinned", "policy")
COUNT_MAX = 1_000_000
EXAMPLE = "a share such as 4 nodes, 2 nodes of v100, 1 rack or 8 GPUs"

_SHARE = re.compile(r"([0-9]{1,9})\s+([^\s]+)(?:\s+of\s+([^\s]+))?")


def read_vcs(field: Field, chains: Sequence[NodeChain], layout: Layout) -> None:
    """Put the virtual clusters into a layout that has the cells of these chains."""
    _ShareReader(chains, layout).read(field)


class _ShareReader:
    def __init__(self, chains: Sequence[NodeChain], layout: Layout) -> None:
        self.chains = chains
        self.layout = layout
        self.granted: dict[tuple[str, str], Field] = {}
        """The last field that grants cells of a (chain, type)."""
        self.owned: dict[str, Field] = {}
        self.named: dict[str, list[CellSpec]] = {}
        """Cells by address, nodes by name too; built when the first one is pinned."""

    def read(self, field: Field) -> None:
        for name, entry in ({} if field.is_null else field.fields()).items():
            refuse_nameless(name, field, entry)
            self.layout.vcs[name] = self._vc(name, entry)
        refuse_misfit(self.layout, self.granted, self.owned, cells="share")

    def _vc(self, name: str, field: Field) -> VcLayout:
        """A VC that owns nothing is valid: all its work is opportunistic."""
        if not field.is_mapping:
            return VcLayout(name, self._shares(field, ""))
        given = field.fields(OF_VC)
        gpu_type = given["gpu_type"].text().lower() if "gpu_type" in given else ""
        grants = self._shares(given["cells"], gpu_type) if "cells" in given else []
        if "gpu_type" in given and not grants:
            raise given["gpu_type"].trouble(f"{given['gpu_type'].path}: a GPU type needs cells")
        pinned = [self._pinned(item) for item in given["pinned"].items()] if "pinned" in given else []
        return VcLayout(name, grants, pinned, given["policy"].text() if "policy" in given else "")

    def _shares(self, field: Field, gpu_type: str) -> list[Grant]:
        if field.is_null:
            return []
        if field.is_list:
            return [self._share(item, gpu_type) for item in field.items()]
        if not field.is_mapping:
            return [self._share(field, gpu_type)]
        return [
            self._grant(entry, level, gpu_type, entry.whole(least=1, most=COUNT_MAX))
            for level, entry in field.fields().items()
        ]

    def _share(self, field: Field, gpu_type: str) -> Grant:
        match = _SHARE.fullmatch(field.text(EXAMPLE))
        if match is None or not 1 <= int(match[1]) <= COUNT_MAX:
            raise field.fault(EXAMPLE)
        return self._grant(field, match[2], (match[3] or gpu_type).lower(), int(match[1]))

    def _grant(self, field: Field, word: str, gpu_type: str, count: int) -> Grant:
        level = self._level(field, word)
        chain = self._chain(field, level, gpu_type)
        grant = Grant(chain.top, chain.type_of(level), count)
        self.granted[grant.chain, grant.type] = field
        return grant

    def _level(self, field: Field, word: str) -> str:
        levels = list(dict.fromkeys(level for chain in self.chains for level in chain.levels()))
        for level in levels:
            if word in (level, f"{level}s", f"{level}es"):
                return level
        near = did_you_mean(word, levels, start=", ")
        uneven = " ".join(note for chain in self.chains for note in chain.notes)
        hint = uneven or f"levels of this cluster: {', '.join(levels)}"
        raise field.trouble(f"{field.path}: no cells {shorten(word)}{near}", hint=hint)

    def _chain(self, field: Field, level: str, gpu_type: str) -> NodeChain:
        fitting = [chain for chain in self.chains if gpu_type in ("", chain.gpu_type, chain.label)]
        if not fitting:
            near = did_you_mean(gpu_type, [chain.label for chain in self.chains], start=", ")
            raise field.trouble(f"{field.path}: unknown GPU type {shorten(gpu_type)}{near}")
        having = [chain for chain in fitting if level in chain.levels()]
        if len(having) == 1:
            return having[0]
        if having:
            labels = [chain.label for chain in having]
            hint = f"choose one: {level} of {' or of '.join(labels)}"
            raise field.trouble(f"{field.path}: {level} may be of {' or '.join(labels)}", hint=hint)
        notes = " ".join(note for chain in fitting for note in chain.notes)
        raise field.trouble(f"{field.path}: no {level} of {gpu_type}", hint=notes)

    def _pinned(self, field: Field) -> str:
        """A cell by its address, or a node by its name."""
        name = field.text("the name of a node or the address of a cell")
        cells = self._by_name().get(name, [])
        if len(cells) != 1:
            raise self._unclear(field, name, cells)
        if cells[0].pinned:
            raise field.trouble(f"{field.path}: {name} is taken already by {self.owned[cells[0].pinned].path}")
        cells[0].pinned = name
        self.owned[name] = field
        return name

    def _unclear(self, field: Field, name: str, cells: list[CellSpec]) -> InputError:
        if cells:
            return field.trouble(f"{field.path}: {shorten(name)} is in {len(cells)} chains, pin its nodes instead")
        near = did_you_mean(name, self._by_name(), start=", ")
        return field.trouble(f"{field.path}: no node or cell {shorten(name)}{near}")

    def _by_name(self) -> dict[str, list[CellSpec]]:
        if not self.named:
            nodes = {chain.type_of("node") for chain in self.chains}
            for cell in self.layout.cells:
                self._index(cell, nodes)
        return self.named

    def _index(self, cell: CellSpec, nodes: set[str]) -> None:
        names = {cell.address, cell.node} if cell.type in nodes else {cell.address}
        for name in names:
            self.named.setdefault(name, []).append(cell)
        for child in cell.children:
            self._index(child, nodes)
