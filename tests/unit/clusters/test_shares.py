"""The short form of virtual clusters, and what lists of nodes are as cells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.clusters import read_cluster, read_layout
from skep.clusters.fit import accounts
from skep.clusters.read import describe_layout
from skep.core.cells.layout import CellSpec, CellType, Grant, Layout, Sku, VcLayout
from skep.core.errors import InputError
from skep.report.cell_tree import cell_tree

ROOT = Path(__file__).parents[3]
NODES = """
nodes:
  - {count: 2, name: a, gpus: 8, gpu_type: V100, rack: r1, socket: 4, switch: 2, cpus: 96, memory_gib: 512}
  - {count: 2, name: b, gpus: 8, gpu_type: V100, rack: r2, socket: 4, switch: 2, cpus: 64}
  - {count: 3, name: c, gpus: 4, gpu_type: p100}
"""
MIXED = "nodes: [{count: 2, gpus: 8, gpu_type: t4}, {count: 2, gpus: 4, gpu_type: t4}, {count: 2, gpus: 2}]\n"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "lab.yaml"
    path.write_text(text)
    return str(path)


def addresses(cells: list[CellSpec]) -> list[str]:
    return [address for cell in cells for address in [cell.address, *addresses(cell.children)]]


def test_nodes_of_one_shape_are_a_chain(tmp_path: Path) -> None:
    layout = read_layout(written(tmp_path, NODES))
    assert layout.types == {
        "v100-switch": CellType("v100-switch", "v100", 2),
        "v100-socket": CellType("v100-socket", "v100-switch", 2),
        "v100-node": CellType("v100-node", "v100-socket", 2, True),
        "v100-rack": CellType("v100-rack", "v100-node", 2),
        "p100-node": CellType("p100-node", "p100", 4, True),
    }
    assert [cell.address for cell in layout.cells] == ["r1", "r2", "c0", "c1", "c2"]
    a1 = layout.cells[0].children[1]
    assert addresses([a1.children[1]]) == [
        "r1/a1/1",
        *("r1/a1/1/2", "r1/a1/1/2/4", "r1/a1/1/2/5"),
        *("r1/a1/1/3", "r1/a1/1/3/6", "r1/a1/1/3/7"),
    ]
    assert (layout.cells[0].node, a1.node, a1.children[1].node) == ("", "a1", "a1")
    assert layout.skus == {"v100": Sku(1, 8000, 65536)}
    assert layout.name == "lab.yaml"


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ("4x8", ["node"]),
        ("4x8:v100", ["v100-node"]),
        ("4x8:v100+2x4:v100", ["v100x8-node", "v100x4-node"]),
        ("4x8+2x4", ["gpux8-node", "gpux4-node"]),
        ("4x8+2x4:node", ["gpux8-node", "node-node"]),
    ],
    ids=["no type", "a type", "nodes of two sizes", "of no type", "a GPU type that is called like a cell"],
)
def test_chains_have_names_of_their_own(spec: str, types: list[str]) -> None:
    assert list(read_layout(spec).types) == types


def test_alibabas_node_list_has_cells_too(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,32000,1024,0,\n")
    layout, notes = describe_layout(path)
    assert addresses(layout.cells) == ["a", "a/0", "a/1"]
    assert notes == ["1 node has no GPUs and no cells"]


def test_uneven_racks_are_no_level(tmp_path: Path) -> None:
    text = "nodes: [{count: 2, gpus: 8, rack: r1}, {gpus: 8, rack: r2}]"
    layout, notes = describe_layout(written(tmp_path, text))
    assert [cell.address for cell in layout.cells] == ["n0", "n1", "n2"]
    assert notes == ["rack: those of the 8-GPU nodes hold 1 to 2 cells, so rack cannot be a level of their cells"]


def test_even_racks_in_uneven_rows(tmp_path: Path) -> None:
    text = """
levels: [row, rack]
nodes:
  - {count: 2, gpus: 1, rack: r1, row: east}
  - {count: 2, gpus: 1, rack: r2, row: east}
  - {count: 2, gpus: 1, rack: r1, row: west}
"""
    layout, notes = describe_layout(written(tmp_path, text))
    assert list(layout.types) == ["node", "rack"]
    assert len(layout.cells) == 3
    assert notes[0].startswith("row: ")


SHARES = {
    "nodes": ("2 nodes of v100", [Grant("v100-rack", "v100-node", 2)]),
    "one": ("1 node of p100", [Grant("p100-node", "p100-node", 1)]),
    "a level that only one chain has": ("1 rack", [Grant("v100-rack", "v100-rack", 1)]),
    "a plural in es": ("2 switches", [Grant("v100-rack", "v100-switch", 2)]),
    "gpus": ("8 gpus of P100", [Grant("p100-node", "p100", 8)]),
    "several": (
        "[1 rack, 2 nodes of p100]",
        [Grant("v100-rack", "v100-rack", 1), Grant("p100-node", "p100-node", 2)],
    ),
    "by level": (
        "{cells: {node: 1, switch: 2}, gpu_type: v100}",
        [Grant("v100-rack", "v100-node", 1), Grant("v100-rack", "v100-switch", 2)],
    ),
    "text below cells": ("{cells: 2 nodes, gpu_type: v100}", [Grant("v100-rack", "v100-node", 2)]),
    "a list below cells": (
        "{cells: [2 nodes, 1 node of p100], gpu_type: v100}",
        [Grant("v100-rack", "v100-node", 2), Grant("p100-node", "p100-node", 1)],
    ),
    "nothing": ("", []),
    "nothing at all": ("{}", []),
}


@pytest.mark.parametrize(("share", "grants"), SHARES.values(), ids=SHARES.keys())
def test_a_share_becomes_grants(tmp_path: Path, share: str, grants: list[Grant]) -> None:
    layout = read_layout(written(tmp_path, f"{NODES}vcs:\n  v: {share}\n"))
    assert layout.vcs == {"v": VcLayout("v", grants)}


def test_nodes_of_two_sizes_are_told_apart_by_their_label(tmp_path: Path) -> None:
    layout = read_layout(written(tmp_path, MIXED + "vcs: {v: 1 node of t4x4, w: 2 nodes of gpu}"))
    assert layout.vcs["v"].grants == [Grant("t4x4-node", "t4x4-node", 1)]
    assert layout.vcs["w"].grants == [Grant("node", "node", 2)]


def pins(cells: list[CellSpec]) -> dict[str, str]:
    found = {cell.pinned: cell.address for cell in cells if cell.pinned}
    for cell in cells:
        found |= pins(cell.children)
    return found


def test_cells_are_pinned_by_name_or_address(tmp_path: Path) -> None:
    vcs = "vcs: {v: {pinned: [a1, r2, r1/a0/1], policy: fifo}, w: 1 node of p100}"
    layout = read_layout(written(tmp_path, NODES + vcs))
    assert layout.vcs["v"] == VcLayout("v", [], ["a1", "r2", "r1/a0/1"], "fifo")
    assert pins(layout.cells) == {"a1": "r1/a1", "r2": "r2", "r1/a0/1": "r1/a0/1"}


FAULTS = {
    "a nameless VC": ('vcs: {"": 1 node}', "vcs: the name of a virtual cluster is '', expected a text"),
    "no share": ("vcs: {v: lots}", ":6: vcs.v is lots, expected a share such as 4 nodes"),
    "no cells": ("vcs: {v: 0 nodes of v100}", "vcs.v is 0 nodes of v100, expected a share"),
    "an unknown level": ("vcs: {v: 1 rak}", "vcs.v: no cells rak, did you mean rack?"),
    "an unknown gpu type": ("vcs: {v: 1 node of v10}", "vcs.v: unknown GPU type v10, did you mean v100?"),
    "a share that may be of two types": ("vcs: {v: 1 node}", "vcs.v: node may be of v100 or p100"),
    "a level the type has not": ("vcs: {v: 1 rack of p100}", "vcs.v: no rack of p100"),
    "an unknown key": ("vcs: {v: {cell: 1 node}}", "unknown key vcs.v.cell, did you mean cells?"),
    "a vc twice": ("vcs: {v: 1 rack, v: 1 rack}", "vcs.v is given twice"),
    "a number that is none": ("vcs: {v: {cells: {rack: few}}}", "vcs.v.cells.rack is few, expected a whole number"),
    "a type without cells": ("vcs: {v: {gpu_type: v100}}", "vcs.v.gpu_type: a GPU type needs cells"),
    "more than there is": (
        "vcs:\n  v: 1 rack\n  w: 3 nodes of v100",
        ":8: vcs.w: chain v100-rack, level 4 (v100-node): 3 needed, 2 available",
    ),
    "pins that break up a rack": (
        "vcs: {v: {pinned: [a0, b0]}, w: 1 rack}",
        "vcs.w: chain v100-rack, level 5 (v100-rack): 1 needed, 0 available",
    ),
    "an unknown pinned cell": ("vcs: {v: {pinned: [a9]}}", "vcs.v.pinned[0]: no node or cell a9, did you mean"),
    "a cell pinned twice": (
        "vcs: {v: {pinned: [a0]}, w: {pinned: [r1/a0]}}",
        "w.pinned[0]: r1/a0 is taken already by vcs.v",
    ),
    "a pinned cell in a pinned cell": (
        "vcs: {v: {pinned: [a0, r1]}}",
        "vcs.v.pinned[0]: a0 lies in r1, which is owned",
    ),
    "vcs that are no mapping": ("vcs: 3", "vcs is 3, expected a mapping"),
}


@pytest.mark.parametrize(("vcs", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_one_line_with_its_place(tmp_path: Path, vcs: str, message: str) -> None:
    path = written(tmp_path, NODES + vcs)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_layout(path)
    assert re.match(re.escape(path) + r":\d+: ", str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_rack_of_two_chains_cannot_be_pinned(tmp_path: Path) -> None:
    text = "nodes: [{gpus: 8, rack: r}, {gpus: 4, rack: r}]\nvcs: {v: {pinned: [r]}}"
    with pytest.raises(InputError, match=r"vcs\.v\.pinned\[0\]: r is in 2 chains, pin its nodes instead"):
        read_layout(written(tmp_path, text))


def test_uneven_racks_explain_why_there_is_no_share_of_them(tmp_path: Path) -> None:
    text = "nodes: [{count: 2, gpus: 8, rack: r1}, {gpus: 8, rack: r2}]\nvcs: {v: 1 rack}"
    with pytest.raises(InputError, match="no cells rack") as caught:
        read_layout(written(tmp_path, text))
    assert "hold 1 to 2 cells" in caught.value.hint


def test_the_example_of_the_page_loads(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "cluster-files.md").read_text()
    own, hived = (read_layout(written(tmp_path, text)) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert list(own.vcs) == ["research", "vision", "prod", "guests"]
    assert list(hived.vcs) == ["vc1", "vc2"]
    lines = page.split("## `skep cluster check FILE`")[1].split("```")[1].strip().splitlines()
    assert cell_tree(own) == lines[2:]


def gpus_of(layout: Layout) -> int:
    return sum(book.total[0] for book in accounts(layout).values())


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 4, 8]), st.sampled_from(["", "v100", "v100x8", "node"])),
        min_size=1,
        max_size=6,
    )
)
def test_the_cells_have_every_gpu_once(parts: list[tuple[int, int, str]]) -> None:
    spec = "+".join(f"{count}x{gpus}" + (f":{name}" if name else "") for count, gpus, name in parts)
    layout, cluster = read_layout(spec), read_cluster(spec)
    leaves = {address for address in addresses(layout.cells) if "/" in address}
    assert leaves == {f"{node.name}/{gpu}" for node in cluster.nodes for gpu in range(node.gpu_count)}
    assert gpus_of(layout) == cluster.gpu_total
    chains = {cell.type for cell in layout.cells}
    assert len(chains) == len({(gpus, name) for _, gpus, name in parts})
