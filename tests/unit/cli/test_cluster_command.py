"""`skep cluster check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.cli.main import main, skep
from skep.core.errors import InputError

LAB = """\
name: lab
nodes:
  - {count: 4, name: a, gpus: 4, gpu_type: v100, rack: r1, switch: 2}
  - {count: 4, name: b, gpus: 4, gpu_type: v100, rack: r2, switch: 2}
  - {name: head, cpus: 32}
vcs:
  research: 1 rack
  prod: {cells: {node: 1, switch: 1}, pinned: [a2], policy: fifo}
  guests:
"""
TREE = """\
lab: 8 nodes, 32 GPUs

chain v100-rack: 2 × v100-rack, 8 × v100-node, 16 × v100-switch, 32 × v100
├─ r1  v100-rack
│  ├─ a0  v100-node
│  │  ├─ 0  v100-switch, gpus 0 1
│  │  └─ … 1 more like it: 1
│  ├─ … 1 more like it: a1
│  ├─ a2  v100-node, pinned by prod, inside like a0
│  └─ a3  v100-node, inside like a0
└─ r2  v100-rack
   ├─ b0  v100-node, inside like a0
   └─ … 3 more like it: b1, b2, b3
"""


@pytest.fixture
def lab(tmp_path: Path) -> str:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB)
    return str(path)


def check(*args: str) -> str:
    found = CliRunner().invoke(skep, ["cluster", "check", *args], catch_exceptions=False)
    assert found.exit_code == 0
    return found.stdout


def test_it_draws_the_cells(lab: str) -> None:
    assert check(lab).startswith(TREE)


def test_it_lists_the_shares_and_what_is_left(lab: str) -> None:
    rows = [line.split() for line in check(lab).splitlines()]
    assert ["research", "v100-rack", "v100-rack", "1", "16"] in rows
    assert ["prod", "v100-rack", "v100-node", "1", "4", "a2", "(r1/a2)"] in rows
    assert ["guests", "nothing", "of", "its", "own", "0", "0"] in rows
    assert rows[rows.index(["without", "an", "owner", "cell", "type", "cells", "gpus"]) + 2 :][:2] == [
        ["v100-rack", "v100-node", "1", "4"],
        ["v100-rack", "v100-switch", "1", "2"],
    ]


def test_a_note_goes_to_stderr(lab: str) -> None:
    found = CliRunner().invoke(skep, ["cluster", "check", lab])
    assert found.stderr == "warning: 1 node has no GPUs and no cells\n"


def test_json_has_all_of_it(lab: str) -> None:
    found = json.loads(check(lab, "--json"))
    assert (found["name"], found["nodes"], found["gpus"]) == ("lab", 8, 32)
    node = next(level for level in found["chains"][0]["levels"] if level["is_node"])
    assert node == {
        "level": 3,
        "type": "v100-node",
        "is_node": True,
        "gpus": 4,
        "cells": 8,
        "granted": 1,
        "pinned": 1,
        "left": 1,
    }
    assert found["vcs"][1] == {
        "name": "prod",
        "policy": "fifo",
        "gpus": 10,
        "cells": [
            {"chain": "v100-rack", "type": "v100-node", "count": 1, "gpus": 4},
            {"chain": "v100-rack", "type": "v100-switch", "count": 1, "gpus": 2},
        ],
        "pinned": [{"name": "a2", "address": "r1/a2", "chain": "v100-rack", "type": "v100-node", "gpus": 4}],
    }
    assert found["notes"] == ["1 node has no GPUs and no cells"]


def test_a_policy_that_does_not_exist_is_a_fault_of_the_file(lab: str) -> None:
    Path(lab).write_text(LAB.replace("policy: fifo", "policy: fifoo"))
    found = CliRunner().invoke(skep, ["cluster", "check", lab])
    assert isinstance(found.exception, InputError)
    assert str(found.exception) == f"{lab}: VC prod: policy 'fifoo' is not known"


@pytest.mark.parametrize(
    ("spec", "lines"),
    [
        ("64x8", ["├─ n00  node, gpus 0-7", "└─ … 63 more like it: n01 to n63"]),
        ("1x1:t4", ["└─ n0  t4-node, gpu 0"]),
    ],
)
def test_a_spec_without_virtual_clusters(spec: str, lines: list[str]) -> None:
    shown = check(spec).splitlines()
    assert shown[3:-2] == lines
    assert shown[-1] == "no virtual clusters: all users share all GPUs"


def test_odd_numbers_and_pinned_gpus_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "hived.yaml"
    path.write_text(
        """
physicalCluster:
  cellTypes: {N: {childCellType: A, childCellNumber: 2, isNodeLevel: true}}
  physicalCells:
  - {cellType: N, cellAddress: x}
  - {cellType: N, cellAddress: y, cellChildren: [{cellAddress: 3}, {cellAddress: 1}]}
  - {cellType: N, cellAddress: z, cellChildren: [{pinnedCellId: mine}, {pinnedCellId: spare}]}
virtualClusters: {v: {pinnedCells: [{pinnedCellId: mine}]}}
"""
    )
    assert check(str(path)).splitlines()[3:8] == [
        "├─ x  N, gpus 0 1",
        "├─ y  N, gpus 3 1",
        "└─ z  N",
        "   ├─ 0  A, pinned as mine by v",
        "   └─ 1  A, named spare",
    ]


def test_a_fault_is_one_line_and_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("nodes: [{count: 2, gpus: 8}]\nvcs: {a: 1 node, b: 2 nodes}\n")
    monkeypatch.setattr("sys.argv", ["skep", "cluster", "check", str(path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}:2: vcs.b: chain node, level 2 (node): 3 needed, 2 available\n")
    assert "hint: owners: a 1 + b 2" in error
