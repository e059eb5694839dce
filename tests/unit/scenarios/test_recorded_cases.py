"""HiveD's recorded cases: none differs where any correct scheduler must agree; its quirks are not ours."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scenario_files import CASES, needs_cases, skep_scenario

from skep.scenarios.read import read_scenario
from skep.scenarios.run import Played, play

pytestmark = needs_cases


def quirk(number: int) -> Played:
    (file,) = CASES.glob(f"quirks/quirk-{number:02}-*.json")
    found = read_scenario(file)
    assert found is not None
    return play(found)


def results(played: Played) -> list[Any]:
    return [outcome.get("result") for outcome in played.outcomes]


def test_the_checker_finds_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers.jsonl"
    start = time.process_time()
    assert skep_scenario(monkeypatch, CASES, "--out", out) == 0
    assert time.process_time() - start < 10
    assert " different" not in capsys.readouterr().out
    line = [sys.executable, str(CASES / "check.py"), str(out), "--mode", "semantic"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].endswith("failed=0")


def test_every_pod_is_on_the_very_gpus_that_hived_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict mode. One case holds a victim of a cancelled preemption, which HiveD never takes for its own again; in the
    other two VCs share a chain, whose order at the start, and so that of equal cells, HiveD leaves to chance."""
    out = tmp_path / "answers.jsonl"
    assert skep_scenario(monkeypatch, CASES, "--out", out) == 0
    line = [sys.executable, str(CASES / "check.py"), str(out), "--mode", "strict"]
    found = subprocess.run(line, capture_output=True, text=True, check=False).stdout.splitlines()
    assert [differs.split()[1] for differs in found[:-1]] == ["rand-0033", "rand-0092"], found


def test_ours_and_the_checker_agree_about_what_differs(tmp_path: Path) -> None:
    """Every answer of one case is spoilt in turn: both must see it, or neither."""
    file = CASES / "schedule" / "hand-15-lazy-preempt.json"
    index = [entry for entry in json.loads((CASES / "index.json").read_text()) if entry["file"].endswith(file.name)]
    (tmp_path / "index.json").write_text(json.dumps(index), "utf-8")
    (tmp_path / "schedule").mkdir()
    for step in range(len(json.loads(file.read_text())["steps"])):
        values = json.loads(file.read_text())
        expect = values["steps"][step]["expect"]
        expect["groups"] = {"nobody": "Allocated"}
        (tmp_path / "schedule" / file.name).write_text(json.dumps(values), "utf-8")
        found = read_scenario(tmp_path / "schedule" / file.name)
        assert found is not None
        played = play(found)
        (tmp_path / "answers.jsonl").write_text(json.dumps(played.answer()) + "\n", "utf-8")
        line = [sys.executable, str(CASES / "check.py"), str(tmp_path / "answers.jsonl"), "--cases", str(tmp_path)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert (played.verdict == "differs") == ("failed=1" in done.stdout), (step, done.stdout)


def test_quirk_1_a_gang_that_fits_is_found() -> None:
    assert results(quirk(1)) == ["bind", "bind", "bind"]


def test_quirk_2_opportunistic_work_that_fits_is_found() -> None:
    assert results(quirk(2)) == ["bind", "bind", "bind"]


def test_quirk_3_a_victim_of_a_cancelled_preemption_is_as_it_was() -> None:
    played = quirk(3)
    assert played.outcomes[3]["groups"] == {"a": "BeingPreempted", "b": "Preempting"}
    assert played.outcomes[4]["groups"] == {"a": "Allocated"}
    lost, back = played.outcomes[1], played.outcomes[7]
    assert (back["result"], back["node"], back["leafCells"]) == ("bind", lost["node"], lost["leafCells"])


def test_quirk_4_a_chain_without_a_vc_is_accepted_and_serves_opportunistic_work() -> None:
    played = quirk(4)
    assert played.scenario.expect_refused == "hived-bug-chain-without-vc"
    assert played.answer()["configError"] is False
    layout = played.scenario.layout
    assert layout is not None
    from skep.scenarios.replay import Replay

    spec = {"virtualCluster": "v", "leafCellType": "M", "leafCellNumber": 1}
    replay = Replay(layout)
    assert replay.play({"op": "schedule", "pod": "p", "spec": {**spec, "priority": -1}})["node"] == "m"
    assert replay.play({"op": "schedule", "pod": "q", "spec": spec})["errorClass"] == "user_error"


def test_quirk_5_listing_works_after_a_node_was_removed_and_shows_what_is_missing() -> None:
    assert quirk(5).outcomes[3]["groupDetails"] == {
        "g": {"placement": {"f1": list(range(8))}, "missingLeafCells": 8},
    }


def test_quirk_6_a_late_pod_of_a_gang_that_is_leaving_waits() -> None:
    assert results(quirk(6))[5] == "wait"


def test_quirk_8_a_question_has_no_side_effects() -> None:
    played = quirk(8)
    assert played.outcomes[1]["result"] == "preempt"
    assert {json.dumps(outcome["groups"]) for outcome in played.outcomes} == {'{"a": "Allocated"}'}
