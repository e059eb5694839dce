"""Tiny scenarios, and `skep scenario` as typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from skep.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT.parent / "shared" / "hived" / "cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason=f"the recorded cases are not at {CASES}")

CLUSTER = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: POOL, cellChildren: [{cellAddress: n0}, {cellAddress: n1}]}
virtualClusters:
  a: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
  b: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
"""
CONFIG: dict[str, Any] = {
    "physicalCluster": {
        "cellTypes": {
            "NODE": {"childCellType": "GPU", "childCellNumber": 4, "isNodeLevel": True},
            "POOL": {"childCellType": "NODE", "childCellNumber": 2},
        },
        "physicalCells": [{"cellType": "POOL", "cellChildren": [{"cellAddress": "n0"}, {"cellAddress": "n1"}]}],
    },
    "virtualClusters": {
        "a": {"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": 1}]},
        "b": {"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": 1}]},
    },
}


def ask(pod: str, gpus: int = 4, *, vc: str = "a", priority: int = 0, **more: Any) -> dict[str, Any]:
    spec = {"virtualCluster": vc, "priority": priority, "leafCellNumber": gpus}
    return {"op": "schedule", "pod": pod, "spec": spec, **more}


def write_json(file: Path, steps: list[Any], **more: Any) -> Path:
    file.write_text(json.dumps({"config": CONFIG, "steps": steps, **more}), "utf-8")
    return file


def skep_scenario(monkeypatch: pytest.MonkeyPatch, *args: str | Path) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["skep", "scenario", *map(str, args)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code
