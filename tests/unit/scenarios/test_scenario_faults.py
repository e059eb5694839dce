"""Wrong scenario files: one line that names the file and the step, exit code 2, never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scenario_files import CLUSTER, CONFIG, ask, skep_scenario, write_json

SPEC = {"virtualCluster": "a", "leafCellNumber": 1}

STEPS: dict[str, tuple[Any, str]] = {
    "a step is not a mapping": (["x"], "step 1: is not a mapping"),
    "no op": ([{}], "step 1: op is missing"),
    "an unknown op": ([ask("p"), {"op": "node-bad"}], "step 2: unknown op 'node-bad', did you mean node_bad?"),
    "an op that is a list": ([{"op": ["schedule"]}], "step 1: unknown op"),
    "no pod": ([{"op": "schedule", "spec": SPEC}], "step 1: pod is missing"),
    "a pod that is a list": ([{"op": "schedule", "pod": [], "spec": SPEC}], "step 1: pod is not a name"),
    "no spec": ([{"op": "schedule", "pod": "p"}], "step 1: expected either spec or rawAnnotation"),
    "an unknown key": ([ask("p", phse="Filtering")], "step 1: unknown key phse, did you mean phase?"),
    "an unknown phase": ([ask("p", phase="preempting")], "step 1: phase is 'preempting', expected Filtering or"),
    "commit is text": ([ask("p", commit="no")], "step 1: commit is 'no', expected true or false"),
    "suggested nodes are text": ([ask("p", suggestedNodes="n0")], "step 1: suggestedNodes is not a list of names"),
    "an unknown suggested node": ([ask("p", suggestedNodes=["n7"])], "step 1: there is no node n7, did you mean"),
    "an unknown node": ([{"op": "node_bad", "node": "n7"}], "step 1: there is no node n7, did you mean"),
    "no node": ([{"op": "node_healthy"}], "step 1: node is missing"),
    "an unknown pod ends": ([ask("p"), {"op": "delete", "pod": "q"}], "step 2: there is no pod q before this step"),
    "expect is text": ([ask("p", expect="bind")], "step 1: expect is not a mapping"),
    "an unknown expectation": (
        [ask("p", expect={"nodes": 1})],
        "step 1: expect: unknown key nodes, did you mean node?",
    ),
    "an unknown result": ([ask("p", expect={"result": "bound"})], "step 1: expect.result is 'bound', expected one of"),
    "victims are text": ([ask("p", expect={"victims": "x"})], "step 1: expect.victims is not a list"),
    "a result of a delete": (
        [ask("p"), {"op": "delete", "pod": "p", "expect": {"result": "bind"}}],
        "step 2: of a delete only groups can be expected",
    ),
    "no new configuration": ([{"op": "reconfigure"}], "step 1: config is missing"),
    "a wrong new configuration": ([{"op": "reconfigure", "config": 7}], "step 1: config is not a mapping"),
    "a replay order of numbers": ([{"op": "restart", "replayOrder": 5}], "step 1: replayOrder is not a list of names"),
    "steps are text": ("all", "steps is not a list"),
}


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS.keys())
def test_a_fault_of_a_step_names_it(
    case: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, problem = case
    assert skep_scenario(monkeypatch, write_json(tmp_path / "s.json", steps)) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {tmp_path}/s.json: {problem}"), err
    assert len(err.splitlines()) <= 2


FILES: dict[str, tuple[str, str, str]] = {
    "no JSON": ("s.json", '{"steps": [}', "s.json:1: is not JSON: Expecting value"),
    "deep JSON": ("s.json", '{"steps":' + "[" * 100_000, "s.json: is nested too deep"),
    "a number of many digits": ("s.json", '{"steps":' + "1" * 10_000 + "}", "s.json: is not JSON"),
    "no YAML": ("s.yaml", "steps: [\n  a: b: c", "s.yaml:2: is not YAML"),
    "a key twice": ("s.yaml", "steps: []\nsteps: []\n", "s.yaml:2: steps is given twice"),
    "an empty file": ("s.yaml", "\n", "s.yaml: is empty"),
    "no cluster": ("s.yaml", "steps: []\n", "s.yaml: config is missing"),
    "a cluster that is not there": ("s.yaml", "cluster: x.yaml\nsteps: []\n", "x.yaml: no such file"),
    "a cluster that is a list": ("s.yaml", "cluster: [x]\nsteps: []\n", "s.yaml: cluster is ['x'], expected the path"),
    "an unknown key": ("s.yaml", "clustr: x\nsteps: []\n", "s.yaml: unknown key clustr, did you mean cluster?"),
    "a configuration with a fault": ("s.yaml", "config: {physicalCluster: {}}\nsteps: []\n", "s.yaml:1: "),
    "a line for a step": (
        "s.yaml",
        "cluster: c.yaml\nsteps:\n- op: inspect\n- op: inspct\n",
        "s.yaml:4: step 2: unknown",
    ),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES.keys())
def test_a_faulty_file_is_one_line(
    case: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, text, problem = case
    (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "c.yaml").write_text(CLUSTER, "utf-8")
    assert skep_scenario(monkeypatch, tmp_path / name) == 2
    first, *hints = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert problem in first
    assert len(hints) <= 1


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert skep_scenario(monkeypatch, "nowhere.yaml") == 2
    assert "nowhere.yaml: no such file, expected a scenario" in capsys.readouterr().err


def test_two_scenarios_of_one_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.json", "b.json"):
        write_json(tmp_path / name, [ask("p")], id="same")
    assert skep_scenario(monkeypatch, tmp_path) == 2
    assert "b.json: has the id same, as has " in capsys.readouterr().err


def test_a_refused_configuration_of_a_recorded_case_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {**CONFIG, "virtualClusters": {"a": {"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": 9}]}}}
    values = {"config": config, "steps": [], "robustPrefix": 0, "kind": "schedule"}
    (tmp_path / "s.json").write_text(json.dumps(values), "utf-8")
    assert skep_scenario(monkeypatch, tmp_path / "s.json", "--out", tmp_path / "o") == 1
    assert json.loads((tmp_path / "o").read_text("utf-8")) == {"id": "s", "configError": True}
    assert "9 needed, 2 available" in capsys.readouterr().out
