"""Small traces, byte for byte; `python tests/golden/regenerate.py` writes what they give now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from regenerate import CASES, HERE, Case, outcomes

from skep.experiments.output import folder_names


@pytest.mark.parametrize("case", CASES, ids=[case.trace for case in CASES])
def test_golden_traces_give_what_they_gave(case: Case) -> None:
    found = outcomes(case)
    assert len(found) == len(case.policies)
    for name, text in found.items():
        assert text == (HERE / "expected" / name).read_text(), f"{name}: see tests/golden/regenerate.py"


def test_every_expectation_is_used() -> None:
    kept = {str(path.relative_to(HERE / "expected")) for path in (HERE / "expected").rglob("*.csv")}
    assert kept == {f"{case.trace}/{name}.csv" for case in CASES for name in folder_names(list(case.policies))}
    assert {path.stem for path in (HERE / "traces").glob("*.csv")} == {case.trace for case in CASES}


def simulate(out: Path, hash_seed: str) -> dict[str, str]:
    """The real command in a process of its own; all it wrote, but for what depends on the wall clock."""
    policies = ["srtf", "tiresias-g", "yarn-cs:quotas=usage", "fifo:walk=skip,place=random", "drf"]
    command = [sys.executable, "-m", "skep.cli.main", "simulate", str(HERE / "traces" / "tenants.csv")]
    command += ["--cluster", "2x4", "--seed", "5", "--failures", "mtbf=2000,repair=50", "--out", str(out)]
    command += [word for policy in policies for word in ("--policy", policy)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    subprocess.run(command, check=True, env=env, capture_output=True, cwd=out.parent)
    found = {}
    for path in sorted(out.rglob("*.*")):
        text = path.read_text()
        if path.name == "summary.json":
            values = json.loads(text)
            for name in ("wall_s", "events_per_s", "decision_avg_ms", "decision_p99_ms"):
                del values[name]
            text = json.dumps(values)
        found[str(path.relative_to(out))] = text
    return found


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    one, two = (simulate(tmp_path / seed, seed) for seed in ("1", "2"))
    assert len(one) == 10
    assert one == two
