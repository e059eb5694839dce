"""HiveD's configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.clusters import read_cluster, read_layout
from skep.clusters.fit import FitAccount, accounts
from skep.clusters.hived import parse_layout
from skep.core.cells.layout import CellSpec, CellType, Grant, Sku, VcLayout
from skep.core.errors import InputError
from skep.files.document import Field, read_document

HIVED = Path(__file__).parents[3] / ".." / "shared" / "hived"
CASES = sorted(HIVED.glob("cases/*/*.json"))
WITH_CELLS = sorted(HIVED.glob("cases/config/*.json"))
ACCEPTED_ERROR = "hived-bug-chain-without-vc"
needs_cases = pytest.mark.skipif(not CASES, reason="needs ../shared/hived/cases")

TYPES = """
physicalCluster:
  cellTypes:
    SWITCH: {childCellType: K80, childCellNumber: 2}
    NODE: {childCellType: SWITCH, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
"""


def layout_text(cells: str, vcs: str = "{}") -> str:
    return f"{TYPES}  physicalCells: {cells}\nvirtualClusters: {vcs}\n"


def parse(text: str) -> Any:
    return parse_layout(read_document(text, "h.yaml"))


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "hived.yaml"
    path.write_text(text)
    return str(path)


def all_cells(cells: list[CellSpec]) -> Iterator[CellSpec]:
    for cell in cells:
        yield cell
        yield from all_cells(cell.children)


def leaves(cell: CellSpec) -> list[CellSpec]:
    return [found for found in all_cells([cell]) if not found.children]


def hived_line(cell: CellSpec) -> str:
    """`type|address|nodes|gpus` as the recorded cases have it."""
    nodes = ",".join(dict.fromkeys(leaf.node for leaf in leaves(cell)))
    indices = [leaf.address.rpartition("/")[2] for leaf in leaves(cell)]
    return f"{cell.type}|{cell.address}|{nodes}|{','.join(indices) if cell.node else '-1'}"


def obtainable(book: FitAccount) -> dict[str, int]:
    """Cells that are free or come from splitting free ones: HiveD's totalLeftCellNum."""
    found: dict[str, int] = {}
    number = 0
    for at in reversed(range(len(book.types))):
        fan_out = book.types[at + 1].count if at + 1 < len(book.types) else 0
        number = number * fan_out + book.whole[at]
        found[f"{book.types[at].name}@{book.chain}"] = number
    return found


def test_everything_arrives(tmp_path: Path) -> None:
    text = """
kubeApiServerAddress: http://10.0.0.1:8080
webServerAddress: ":30096"
waitingPodSchedulingBlockMilliSec: 50
physicalCluster:
  skuTypes: {K80: {gpu: 1, cpu: 5, memory: 54Gi}, CPU: {cpu: 1, memory: 8192Mi}}
  cellTypes:
    K80-NODE: {childCellType: K80, childCellNumber: 2, isNodeLevel: true}
    POOL: {childCellType: K80-NODE, childCellNumber: 2}
  physicalCells:
  - cellType: POOL
    cellChildren: [{cellAddress: node1}, {cellAddress: node2, pinnedCellId: mine}]
virtualClusters:
  a: {virtualCells: [{cellType: POOL.K80-NODE, cellNumber: 1}], policy: fifo}
  b: {pinnedCells: [{pinnedCellId: mine}]}
  c:
  d: {virtualCells: [{cellType: POOL, cellNumber: 0}]}
"""
    layout = read_layout(written(tmp_path, text))
    assert layout.name == "hived.yaml"
    assert layout.types == {
        "K80-NODE": CellType("K80-NODE", "K80", 2, True),
        "POOL": CellType("POOL", "K80-NODE", 2, False),
    }
    assert layout.skus == {"K80": Sku(1, 5000, 54 * 1024), "CPU": Sku(0, 1000, 8192)}
    node1 = CellSpec("K80-NODE", "0/node1", "node1", "", [])
    node1.children = [CellSpec("K80", "0/node1/0", "node1"), CellSpec("K80", "0/node1/1", "node1")]
    assert layout.cells[0].children[0] == node1
    assert (layout.cells[0].node, layout.cells[0].children[1].pinned) == ("", "mine")
    assert layout.vcs == {
        "a": VcLayout("a", [Grant("POOL", "K80-NODE", 1)], [], "fifo"),
        "b": VcLayout("b", [], ["mine"]),
        "c": VcLayout("c"),
        "d": VcLayout("d"),
    }


@pytest.mark.parametrize(
    ("memory", "mib"),
    [("54Gi", 55296), ("8192Mi", 8192), ("1048576", 1), ("2097152Ki", 2048), ("1G", 953), ("0.5Ti", 524288)],
)
def test_memory_is_written_as_in_kubernetes(memory: str, mib: int) -> None:
    text = layout_text("[{cellType: NODE}]").replace(
        "cellTypes:", f"skuTypes: {{K80: {{memory: {memory}}}}}\n  cellTypes:", 1
    )
    assert parse(text).skus["K80"].memory_mib == mib


@pytest.mark.parametrize(
    ("cells", "addresses"),
    [
        ("[{cellType: NODE}]", ["0/0/0", "0/0/1", "0/1/2", "0/1/3"]),
        (
            "[{cellType: NODE, cellAddress: x}, {cellType: NODE}]",
            ["x/0/0", "x/0/1", "x/1/2", "x/1/3", "1/0/0", "1/0/1", "1/1/2", "1/1/3"],
        ),
        (
            "[{cellType: NODE, cellChildren: [{cellAddress: 7}, {cellChildren: [{cellAddress: 9}, null]}]}]",
            ["0/7/0", "0/7/1", "0/1/9", "0/1/3"],
        ),
        (
            "[{cellType: NODE}, {cellType: RACK, cellChildren: null}]",
            [
                *("0/0/0", "0/0/1", "0/1/2", "0/1/3"),
                *("1/2/0/0", "1/2/0/1", "1/2/1/2", "1/2/1/3", "1/3/0/0", "1/3/0/1", "1/3/1/2", "1/3/1/3"),
            ],
        ),
    ],
    ids=[
        "numbers start again below a node",
        "given and inferred",
        "a given address does not move the others",
        "above a node they follow the parent's",
    ],
)
def test_addresses_are_inferred(cells: str, addresses: list[str]) -> None:
    assert [leaf.address for cell in parse(layout_text(cells)).cells for leaf in leaves(cell)] == addresses


@pytest.mark.parametrize("path", ["RACK.NODE.SWITCH", "RACK.SWITCH", "RACK.whatever.SWITCH"])
def test_only_the_first_and_the_last_of_a_path_count(path: str) -> None:
    layout = parse(layout_text("[{cellType: RACK}]", f"{{v: {{virtualCells: [{{cellType: {path}, cellNumber: 3}}]}}}}"))
    assert layout.vcs["v"].grants == [Grant("RACK", "SWITCH", 3)]


@pytest.mark.parametrize("vcs", ["{}", "", "{v: {virtualCells: [{cellType: RACK, cellNumber: 1}]}}"])
def test_a_chain_that_nobody_owns_is_welcome(vcs: str) -> None:
    layout = parse(layout_text("[{cellType: RACK}, {cellType: NODE}]", vcs))
    assert accounts(layout)["NODE"].left() == [0, 0, 1]


def test_a_node_may_have_devices_of_two_types() -> None:
    text = layout_text("[{cellType: NODE, cellAddress: n}, {cellType: CPU-NODE, cellAddress: n}]").replace(
        "    SWITCH:", "    CPU-NODE: {childCellType: CPU, childCellNumber: 8, isNodeLevel: yes}\n    SWITCH:"
    )
    assert [(cell.type, cell.address, cell.node) for cell in parse(text).cells] == [
        ("NODE", "n", "n"),
        ("CPU-NODE", "n", "n"),
    ]


def grant(kind: str, number: object = 1) -> str:
    return f"virtualCells: [{{cellType: {kind}, cellNumber: {number}}}]"


def pin(*names: str) -> str:
    return f"pinnedCells: [{', '.join(f'{{pinnedCellId: {name}}}' for name in names)}]"


PINNED_RACK = (
    "[{cellType: RACK, pinnedCellId: r, cellChildren: [{pinnedCellId: p}, {pinnedCellId: s}]}, "
    "{cellType: RACK, cellChildren: [{pinnedCellId: q}, null]}]"
)
RACK = "[{cellType: RACK}]"
FAULTS = {
    "an unknown top type": (
        layout_text("[{cellType: RAK}]"),
        ":7: physicalCluster.physicalCells[0].cellType: unknown cell type RAK, did you mean RACK?",
    ),
    "a gpu as top cell": (layout_text("[{cellType: K80}]"), "unknown cell type K80"),
    "a top cell below the nodes": (layout_text("[{cellType: SWITCH}]"), "SWITCH is below the node level NODE"),
    "no node level": (
        layout_text(RACK).replace(", isNodeLevel: true", ""),
        "the chain RACK has no type with isNodeLevel: true",
    ),
    "two node levels": (
        layout_text(RACK)
        .replace("childCellNumber: 2}\nvirtual", "")
        .replace("NODE, childCellNumber: 2", "NODE, childCellNumber: 2, isNodeLevel: true"),
        "has two node levels, RACK and NODE",
    ),
    "a cycle": (
        layout_text(RACK).replace("childCellType: K80", "childCellType: RACK"),
        ":4: physicalCluster.cellTypes.SWITCH.childCellType: SWITCH contains itself: SWITCH > RACK > NODE > SWITCH",
    ),
    "a type without a number of children": (
        layout_text(RACK).replace("K80, childCellNumber: 2", "K80"),
        ":4: physicalCluster.cellTypes.SWITCH.childCellNumber is missing",
    ),
    "no children": (
        layout_text(RACK).replace("K80, childCellNumber: 2", "K80, childCellNumber: 0"),
        "is 0, expected a whole",
    ),
    "a flag that is none": (
        layout_text(RACK).replace("isNodeLevel: true", "isNodeLevel: 1"),
        "is 1, expected true or false",
    ),
    "a type twice": (
        layout_text(RACK).replace("    RACK:", "    SWITCH: {}\n    RACK:"),
        ":6: physicalCluster.cellTypes.SWITCH is given twice",
    ),
    "a key twice": (
        layout_text("[{cellType: RACK, cellType: RACK}]"),
        "physicalCluster.physicalCells[0].cellType is given twice",
    ),
    "a misspelt key of a cell": (
        layout_text("[{cellType: RACK, cellAdress: x}]"),
        "unknown key physicalCluster.physicalCells[0].cellAdress, did you mean cellAddress?",
    ),
    "a top cell without a type": (layout_text("[{cellAddress: x}]"), "physicalCells[0].cellType is missing"),
    "no cells": (layout_text("[]"), "physicalCluster.physicalCells is an empty list, expected at least one cell"),
    "too few children": (
        layout_text("[{cellType: RACK, cellChildren: [{}]}]"),
        "physicalCells[0].cellChildren: 1 children of a RACK, expected 2",
    ),
    "too many children": (
        layout_text("[{cellType: RACK, cellChildren: [{}, {}, {}]}]"),
        "physicalCells[0].cellChildren: 3 children of a RACK, expected 2",
    ),
    "children of a gpu": (
        layout_text("[{cellType: NODE, cellChildren: [{}, {cellChildren: [{}, {cellChildren: [{}]}]}]}]"),
        "cellChildren[1].cellChildren[1].cellChildren: a K80 is a GPU type and has no children",
    ),
    "a child of another type": (
        layout_text("[{cellType: RACK, cellChildren: [{cellType: SWITCH}, {}]}]"),
        "cellChildren[0].cellType is SWITCH, expected NODE, as cellTypes says",
    ),
    "a gpu that is no number": (
        layout_text("[{cellType: NODE, cellChildren: [{cellChildren: [{cellAddress: gpu0}, {}]}, {}]}]"),
        ":7: physicalCluster.physicalCells[0].cellChildren[0].cellChildren[0].cellAddress is gpu0, expected the index",
    ),
    "an address that is a path": (
        layout_text("[{cellType: NODE, cellAddress: a/b}]"),
        "is a/b, expected a name without /",
    ),
    "siblings of one address": (
        layout_text("[{cellType: NODE, cellChildren: [{cellAddress: 1}, {}]}]"),
        "cellChildren[1]: a second cell with the address 0/1",
    ),
    "two top cells of one address": (
        layout_text(
            "[{cellType: RACK}, {cellType: RACK, cellAddress: 0, cellChildren: [{cellAddress: a}, {cellAddress: b}]}]"
        ),
        "physicalCells[1]: a second RACK with the address 0",
    ),
    "a node in two racks": (
        layout_text(
            "[{cellType: RACK, cellChildren: [{cellAddress: a}, {}]}, "
            "{cellType: RACK, cellChildren: [{}, {cellAddress: a}]}]"
        ),
        "physicalCells[1].cellChildren[1]: a second node a in the chain RACK",
    ),
    "a gpu twice in a node": (
        layout_text("[{cellType: NODE, cellChildren: [{cellChildren: [{cellAddress: 2}, {}]}, {}]}]"),
        "physicalCells[0].cellChildren[1]: a second GPU 2 of type K80 on node 0",
    ),
    "a gpu in two chains": (
        layout_text("[{cellType: NODE, cellAddress: a}, {cellType: RACK, cellChildren: [{cellAddress: a}, {}]}]"),
        "physicalCells[1].cellChildren[0]: a second GPU 0 of type K80 on node a",
    ),
    "more cells than anybody has": (
        layout_text(RACK)
        .replace("NODE, childCellNumber: 2", "NODE, childCellNumber: 100000")
        .replace("K80, childCellNumber: 2", "K80, childCellNumber: 100"),
        "more than 4,000,000 cells",
    ),
    "a pinned name twice": (
        layout_text("[{cellType: NODE, pinnedCellId: p}, {cellType: NODE, pinnedCellId: p}]"),
        "physicalCells[1].pinnedCellId: p is already the name of the cell 0",
    ),
    "a memory that is none": (
        layout_text(RACK).replace("cellTypes:", "skuTypes: {K80: {memory: 5 apples}}\n  cellTypes:", 1),
        ":3: physicalCluster.skuTypes.K80.memory is 5 apples, expected memory such as 54Gi",
    ),
    "no hardware": ("virtualClusters: {}", "physicalCluster is missing"),
    "no cell types": ("physicalCluster: {physicalCells: []}", "physicalCluster.cellTypes is missing"),
    "a misspelt section": (
        layout_text(RACK).replace("virtualClusters", "virtualCluster"),
        ":8: unknown key virtualCluster, did",
    ),
    "a share of an unknown chain": (
        layout_text(RACK, f"{{v: {{{grant('NODE')}}}}}"),
        ":8: virtualClusters.v.virtualCells[0].cellType: no physical cells of type NODE",
    ),
    "a share of an unknown type": (
        layout_text(RACK, f"{{v: {{{grant('RACK.NODES', 0)}}}}}"),
        "unknown cell type NODES in the chain RACK, did you mean NODE?",
    ),
    "a share that is no number": (
        layout_text(RACK, f"{{v: {{{grant('RACK', 'all')}}}}}"),
        "cellNumber is all, expected a whole",
    ),
    "a share without a number": (
        layout_text(RACK, "{v: {virtualCells: [{cellType: RACK}]}}"),
        "virtualClusters.v.virtualCells[0].cellNumber is missing",
    ),
    "a misspelt key of a vc": (layout_text(RACK, "{v: {virtualCell: []}}"), "did you mean virtualCells?"),
    "a vc twice": (layout_text(RACK, "{v: {}, v: {}}"), "virtualClusters.v is given twice"),
    "too many top cells": (
        layout_text(RACK, f"{{v: {{{grant('RACK', 2)}}}}}"),
        ":8: virtualClusters.v.virtualCells[0]: chain RACK, level 4 (RACK): 2 needed, 1 available",
    ),
    "too many below what is left": (
        layout_text(
            "[{cellType: RACK}, {cellType: RACK}]", f"{{v: {{{grant('RACK')}}}, w: {{{grant('RACK.NODE', 3)}}}}}"
        ),
        "virtualClusters.w.virtualCells[0]: chain RACK, level 3 (NODE): 3 needed, 2 available",
    ),
    "pinned cells count": (
        layout_text(PINNED_RACK, f"{{v: {{{pin('p')}, {grant('RACK.NODE', 4)}}}}}"),
        "chain RACK, level 3 (NODE): 5 needed, 4 available",
    ),
    "pins that leave no whole rack": (
        layout_text(PINNED_RACK, f"{{v: {{{pin('p', 'q')}, {grant('RACK')}}}}}"),
        "chain RACK, level 4 (RACK): 1 needed, 0 available",
    ),
    "an unknown pinned cell": (
        layout_text(PINNED_RACK, f"{{v: {{{pin('z')}}}}}"),
        ":8: virtualClusters.v.pinnedCells[0].pinnedCellId: unknown pinned cell z",
    ),
    "a pinned cell of two": (
        layout_text(PINNED_RACK, f"{{v: {{{pin('p')}}}, w: {{{pin('p')}}}}}"),
        "w.pinnedCells[0].pinnedCellId: the pinned cell p is already taken by virtualClusters.v.pinnedCells[0]",
    ),
    "a pinned cell in a pinned cell": (
        layout_text(PINNED_RACK, f"{{v: {{{pin('r')}}}, w: {{{pin('p')}}}}}"),
        "virtualClusters.w.pinnedCells[0].pinnedCellId: p lies in r, which is owned as well",
    ),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_layout(path)
    assert re.match(re.escape(path) + r":\d+: ", str(caught.value))
    assert "\n" not in str(caught.value)


def test_openpai_wraps_it_and_the_hint_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, "hivedscheduler:\n  config: |\n    physicalCluster: {}\n")
    with pytest.raises(InputError, match="physicalCluster is missing") as caught:
        read_layout(path)
    assert "hivedscheduler.config" in caught.value.hint


def test_a_shortage_names_the_owners() -> None:
    with pytest.raises(InputError) as caught:
        parse(layout_text(RACK, f"{{v: {{{grant('RACK.NODE')}}}, w: {{{grant('RACK.NODE', 2)}}}}}"))
    assert "owners: v 1 + w 2" in caught.value.hint


def test_plain_values_do_as_well_but_know_no_line() -> None:
    config: dict[str, Any] = {
        "physicalCluster": {
            "cellTypes": {"N": {"childCellType": "A", "childCellNumber": 2, "isNodeLevel": True}},
            "physicalCells": [{"cellType": "N", "cellAddress": "n0", "cellChildren": None}],
        },
        "virtualClusters": {"v": {"virtualCells": [{"cellType": "N", "cellNumber": 1}]}},
    }
    assert parse_layout(config, "case 7").vcs["v"].grants == [Grant("N", "N", 1)]
    config["virtualClusters"]["v"]["virtualCells"][0]["cellNumber"] = 2
    with pytest.raises(InputError, match=r"^case 7: virtualClusters\.v\.virtualCells\[0\]: chain N"):
        parse_layout(config, "case 7")


def test_what_is_left_is_kept_as_large_as_it_can() -> None:
    vcs = f"{{v: {{{grant('RACK.SWITCH')}}}, w: {{{pin('q')}}}}}"
    book = accounts(parse(layout_text(PINNED_RACK, vcs)))["RACK"]
    assert (book.total, book.pinned, book.granted) == ([16, 8, 4, 2], [0, 0, 1, 0], [0, 1, 0, 0])
    assert book.left() == [0, 1, 0, 1]


@needs_cases
@pytest.mark.parametrize("path", WITH_CELLS, ids=lambda path: path.stem)
def test_recorded_configurations(path: Path) -> None:
    case = json.loads(path.read_text())
    config = read_document(path.read_text(), path).fields()["config"]
    wrong = case.get("expectConfigError")
    if wrong and wrong["reasonClass"] != ACCEPTED_ERROR:
        with pytest.raises(InputError):
            parse_layout(config)
        return
    layout = parse_layout(config)
    if not wrong:
        assert sorted(map(hived_line, all_cells(layout.cells))) == sorted(case["expectCells"])
        left = {key: count for book in accounts(layout).values() for key, count in obtainable(book).items()}
        assert left == case["expectInitial"]["totalLeftCellNum"]


def configs(case: Field) -> Iterator[Field]:
    given = case.fields()
    if "config" in given:
        yield given["config"]
    for step in given["steps"].items() if "steps" in given else []:
        if "config" in step.fields():
            yield step.fields()["config"]


@needs_cases
@pytest.mark.parametrize(
    "path", [path for path in CASES if path.parent.name != "config"], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_recorded_case_loads(path: Path) -> None:
    found = [parse_layout(config) for config in configs(read_document(path.read_text(), path))]
    assert found
    assert all(layout.cells for layout in found)


@pytest.mark.parametrize("name", ["cluster-1.yaml", "cluster-2.yaml"])
def test_the_classroom_clusters_load(name: str) -> None:
    path = HIVED / "lab6" / name
    if not path.exists():
        pytest.skip("needs ../shared/hived/lab6")
    layout = read_layout(path)
    assert layout.vcs["default"].grants
    assert {leaf.node for cell in layout.cells for leaf in leaves(cell)} == {"hostname-carol", "hostname-dan"}


def test_without_its_virtual_clusters_it_is_a_cluster_of_nodes(tmp_path: Path) -> None:
    path = written(tmp_path, layout_text(RACK))
    nodes = {leaf.node for cell in read_layout(path).cells for leaf in leaves(cell)}
    assert {node.name for node in read_cluster(path).nodes} == nodes
